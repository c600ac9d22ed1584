package published

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// A bar shows the progress of a transfer: in one line of a terminal, elsewhere in a line now and then.
type bar struct {
	out      io.Writer
	what     string
	terminal bool
	every    time.Duration

	done, total int64 // bytes; total is 0 if the server does not send it
	began, next time.Time
	offset      int64 // bytes of earlier transfers
}

func newBar(out io.Writer, what string) *bar {
	b := &bar{out: out, what: what, every: 5 * time.Second}
	if f, ok := out.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			b.terminal, b.every = true, 100*time.Millisecond
		}
	}
	return b
}

// start begins a transfer of length bytes after offset bytes that are there. An unknown length is negative.
func (b *bar) start(offset, length int64) {
	b.done, b.offset, b.total, b.began = offset, offset, 0, time.Now()
	if length >= 0 {
		b.total = offset + length
	}
	b.show()
}

func (b *bar) add(n int) {
	b.done += int64(n)
	if time.Now().After(b.next) {
		b.show()
	}
}

func (b *bar) end() {
	b.show()
	if b.terminal {
		_, _ = fmt.Fprintln(b.out)
	}
}

const barWidth = 30

func (b *bar) show() {
	b.next = time.Now().Add(b.every)
	line := fmt.Sprintf("%s: %d MB", b.what, b.done/1e6)
	if b.total > 0 {
		full := int(barWidth * min(b.done, b.total) / b.total)
		line = fmt.Sprintf("%s [%s%s] %d of %d MB", b.what, strings.Repeat("=", full),
			strings.Repeat(" ", barWidth-full), b.done/1e6, b.total/1e6)
	}
	if seconds := time.Since(b.began).Seconds(); seconds >= 1 {
		line += fmt.Sprintf(", %.1f MB/s", float64(b.done-b.offset)/1e6/seconds)
	}
	if b.terminal {
		_, _ = fmt.Fprint(b.out, "\r\x1b[K"+line)
		return
	}
	_, _ = fmt.Fprintln(b.out, line)
}
