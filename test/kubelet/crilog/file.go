package crilog

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// File is the log of one run of a container. It is safe for concurrent use.
type File struct {
	path    string
	mu      sync.Mutex // guards the following fields
	file    *os.File   // nil after the run has ended
	changed chan struct{}
}

// Create creates an empty log. The file must not exist. Close ends the log and keeps the file.
func Create(path string) (*File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return nil, fmt.Errorf("create a log: %w", err)
	}
	return &File{path: path, file: file, changed: make(chan struct{})}, nil
}

// Close ends the log. Followers get the rest of it.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	close(f.changed)
	return err
}

// Remove deletes the log from the disk. Present readers may continue.
func (f *File) Remove() error { return os.Remove(f.path) }

func (f *File) append(entries []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return os.ErrClosed
	}
	if len(entries) == 0 {
		return nil
	}
	_, err := f.file.Write(entries)
	close(f.changed)
	f.changed = make(chan struct{})
	return err
}

// changed is closed when there is more to read, or when the log ends.
func (f *File) state() (ended bool, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file == nil, f.changed
}

// Writer logs one stream of output, Stdout or Stderr. Only one goroutine may use it.
type Writer struct {
	file     *File
	splitter splitter
	buffer   []byte
}

// Writer returns the writer of a stream. Its Close logs a last line without a newline.
func (f *File) Writer(stream string) *Writer {
	return &Writer{file: f, splitter: splitter{stream: stream}}
}

func (w *Writer) Write(p []byte) (int, error) {
	w.buffer = w.splitter.appendTo(w.buffer[:0], time.Now(), p)
	if err := w.file.append(w.buffer); err != nil {
		return 0, fmt.Errorf("write to the log: %w", err)
	}
	return len(p), nil
}

// Close implements io.Closer. The File stays open.
func (w *Writer) Close() error {
	if len(w.splitter.line) == 0 {
		return nil
	}
	return w.file.append(w.splitter.flush(nil, time.Now(), true))
}

// Options select the output of Copy. The zero value selects the whole present log.
type Options struct {
	Follow     bool      // waits for more until the log ends
	Timestamps bool      // adds the time before each line
	Since      time.Time // omits older entries
	Tail       *int64    // number of entries at the end to start with; nil means all
	Limit      *int64    // maximum number of bytes; nil means no limit
	Stream     string    // Stdout or Stderr; empty means both
}

// Copy writes the log to w as the container wrote it, and calls flush before it waits for more. It ends with the log,
// with ctx or with an error of w.
func (f *File) Copy(ctx context.Context, w io.Writer, flush func(), o Options) error {
	file, err := os.Open(f.path)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer file.Close()
	if o.Tail != nil {
		if err := seekTail(file, *o.Tail); err != nil {
			return fmt.Errorf("find the end of the log: %w", err)
		}
	}
	if o.Limit != nil {
		w = &limitedWriter{w: w, left: *o.Limit}
	}
	c := copier{r: bufio.NewReaderSize(file, 64<<10), w: w, options: o, atLineStart: true}
	for {
		ended, changed := f.state() // before reading, so that nothing is missed
		if err := c.copyEntries(); errors.Is(err, errLimit) {
			return nil
		} else if err != nil {
			return err
		}
		if ended || !o.Follow {
			return nil
		}
		flush()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

type copier struct {
	r           *bufio.Reader
	w           io.Writer
	options     Options
	line        []byte // the beginning of an entry that is not complete yet
	atLineStart bool   // whether the next entry begins a line of the container
}

// copyEntries copies until the end of the file. An incomplete entry remains in c.line.
func (c *copier) copyEntries() error {
	for {
		part, err := c.r.ReadSlice('\n')
		c.line = append(c.line, part...)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		e, err := parse(c.line)
		if err != nil {
			return err
		}
		c.line = c.line[:0]
		if err := c.write(e); err != nil {
			return err
		}
	}
}

func (c *copier) write(e entry) error {
	if e.time.Before(c.options.Since) || c.options.Stream != "" && c.options.Stream != e.stream {
		return nil
	}
	out := e.output()
	if c.options.Timestamps && c.atLineStart {
		out = append(append(e.time.AppendFormat(nil, timeFormat), ' '), out...)
	}
	c.atLineStart = !e.partial
	_, err := c.w.Write(out)
	return err
}

func seekTail(file *os.File, n int64) error {
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil || n <= 0 {
		return err
	}
	block := make([]byte, 64<<10)
	for n++; end > 0; { // the n+1st newline from the end precedes the tail
		start := max(0, end-int64(len(block)))
		b := block[:end-start]
		if _, err := file.ReadAt(b, start); err != nil {
			return err
		}
		for i := bytes.LastIndexByte(b, '\n'); i >= 0; i = bytes.LastIndexByte(b[:i], '\n') {
			if n--; n == 0 {
				_, err := file.Seek(start+int64(i)+1, io.SeekStart)
				return err
			}
		}
		end = start
	}
	_, err = file.Seek(0, io.SeekStart)
	return err
}

var errLimit = errors.New("limit reached")

type limitedWriter struct {
	w    io.Writer
	left int64
}

func (l *limitedWriter) Write(p []byte) (int, error) {
	over := int64(len(p)) >= l.left
	if over {
		p = p[:l.left]
	}
	n, err := l.w.Write(p)
	l.left -= int64(n)
	if err == nil && over {
		err = errLimit
	}
	return n, err
}
