package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"
)

const (
	// patience is how long a request waits for a place in a full queue before its event is lost.
	patience = time.Second
	// complainEvery is how often the log says that events are lost.
	complainEvery = 10 * time.Second
)

// Config configures a Log.
type Config struct {
	// To gets a line an event, in one Write each. If it is an io.Closer, Close closes it.
	To io.Writer
	// Queue is how many events may wait for To; 0 means that requests write themselves.
	Queue int
	Log   *slog.Logger     // for events that are lost; nil means slog.Default()
	Now   func() time.Time // nil means time.Now
}

// Log takes events. It is safe for concurrent use. With a queue, somebody must Close it.
type Log struct {
	cfg   Config
	lost  atomic.Uint64
	lines chan []byte // nil without a queue
	done  chan struct{}

	mu     sync.Mutex // held to write
	closed atomic.Bool
	gate   sync.RWMutex // held to write by closing, and to read by queueing

	complaint  sync.Mutex
	complained time.Time
}

// New returns a Log.
func New(cfg Config) *Log {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	l := &Log{cfg: cfg}
	if cfg.Queue > 0 {
		l.lines, l.done = make(chan []byte, cfg.Queue), make(chan struct{})
		go l.drain()
	}
	return l
}

// File is a file with rotation.
type File struct {
	Path       string
	MaxSize    int // megabytes; 0 means 100
	MaxBackups int // how many old files are kept; 0 means all
	MaxAge     int // days; 0 means for ever
	Compress   bool
}

// Open opens the file, mode 0600, for Config.To. Several processes may write one file: each event is one write at its end, and what one of
// them rotates is kept. (One goroutine that deletes and compresses old files stays until the
// process ends; it is the library's.)
func (f File) Open() (io.WriteCloser, error) {
	if f.MaxSize < 0 || f.MaxBackups < 0 || f.MaxAge < 0 || !filepath.IsAbs(f.Path) {
		return nil, fmt.Errorf("audit file %q: want an absolute path, and no negative size, number or age", f.Path)
	}
	// Now, rather than with the first event, and never wider than 0600.
	file, err := os.OpenFile(f.Path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the audit file: %w", err)
	}
	if err := errors.Join(file.Chmod(0o600), file.Close()); err != nil {
		return nil, fmt.Errorf("open the audit file: %w", err)
	}
	return &lumberjack.Logger{Filename: f.Path, MaxSize: f.MaxSize, MaxBackups: f.MaxBackups, MaxAge: f.MaxAge, Compress: f.Compress}, nil
}

// Lost is how many events could not be written.
func (l *Log) Lost() uint64 { return l.lost.Load() }

// Close writes what waits, until ctx ends, and closes Config.To if it is an io.Closer. Events after that are lost.
func (l *Log) Close(ctx context.Context) error {
	if l.closed.Swap(true) {
		return nil
	}
	if l.lines != nil {
		l.gate.Lock() // no request is queueing any more
		close(l.lines)
		l.gate.Unlock()
		select {
		case <-l.done:
		case <-ctx.Done():
			// The writer goes on, and ends with To.
			return fmt.Errorf("close the audit log: %d events wait: %w", len(l.lines), ctx.Err())
		}
	}
	if c, ok := l.cfg.To.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func (l *Log) now() time.Time { return l.cfg.Now() }

func (l *Log) write(e *Event) {
	line, err := json.Marshal(e)
	if err != nil {
		l.lose(err)
		return
	}
	line = append(line, '\n')
	if l.lines == nil {
		l.put(line)
		return
	}
	l.gate.RLock()
	defer l.gate.RUnlock()
	if l.closed.Load() {
		l.lose(errors.New("the audit log is closed"))
		return
	}
	select {
	case l.lines <- line:
		return
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case l.lines <- line:
	case <-timer.C:
		l.lose(errors.New("the queue is full"))
	}
}

func (l *Log) drain() {
	defer close(l.done)
	for line := range l.lines {
		l.put(line)
	}
}

func (l *Log) put(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines == nil && l.closed.Load() {
		l.lose(errors.New("the audit log is closed"))
		return
	}
	if _, err := l.cfg.To.Write(line); err != nil {
		l.lose(err)
	}
}

func (l *Log) lose(err error) {
	n := l.lost.Add(1)
	l.complaint.Lock()
	defer l.complaint.Unlock()
	if now := time.Now(); now.Sub(l.complained) >= complainEvery {
		l.complained = now
		l.cfg.Log.Error("audit events are lost", "count", n, "error", err.Error())
	}
}
