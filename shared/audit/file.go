package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/clusterpass/clusterpass/shared/filelock"
)

// DefaultMaxBackups is how many full files are kept beside the current one.
const DefaultMaxBackups = 9

// File is a file with rotation. All its files together have at most (MaxBackups+1)*MaxSize megabytes.
type File struct {
	Path       string
	MaxSize    int // megabytes; 0 means 100
	MaxBackups int // how many full files are kept, of which the oldest is deleted first; 0 means DefaultMaxBackups
}

// Open opens the file for Config.To. Several processes may write one file. A goroutine that deletes old files runs
// until the process ends.
func (f File) Open() (io.WriteCloser, error) {
	if f.MaxSize < 0 || f.MaxBackups < 0 || !filepath.IsAbs(f.Path) {
		return nil, fmt.Errorf("audit file %q: want an absolute path, and no negative size or number", f.Path)
	}
	if f.MaxBackups == 0 {
		f.MaxBackups = DefaultMaxBackups
	}
	// The file is created now, so that the user sees an error.
	file, err := os.OpenFile(f.Path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the audit file: %w", err)
	}
	if err := errors.Join(file.Chmod(0o600), file.Close()); err != nil {
		return nil, fmt.Errorf("open the audit file: %w", err)
	}
	if f.MaxSize == 0 {
		f.MaxSize = defaultMaxSize
	}
	dir, err := os.OpenRoot(filepath.Dir(f.Path))
	if err != nil {
		return nil, fmt.Errorf("open the audit file: %w", err)
	}
	return &sharedFile{
		Logger: lumberjack.Logger{Filename: f.Path, MaxSize: f.MaxSize, MaxBackups: f.MaxBackups},
		max:    int64(f.MaxSize) << 20, dir: dir,
	}, nil
}

const defaultMaxSize = 100

const rotateTimeout = 5 * time.Second

// sharedFile is a file that other processes write and rotate, too. It is not safe for concurrent use.
type sharedFile struct {
	lumberjack.Logger

	max   int64 // bytes
	dir   *os.Root
	known os.FileInfo // the file before the last Write; nil for none
}

// Write opens the file again if another process rotated it, which the library would not notice.
func (f *sharedFile) Write(p []byte) (int, error) {
	now, err := os.Stat(f.Filename)
	if err == nil && now.Size()+int64(len(p)) >= f.max {
		ctx, cancel := context.WithTimeout(context.Background(), rotateTimeout)
		defer cancel()
		lock, lerr := filelock.Lock(ctx, f.dir, filepath.Base(f.Filename)+".lock", filelock.Exclusive)
		if lerr != nil {
			return 0, fmt.Errorf("rotate the audit file: %w", lerr)
		}
		defer func() { _ = lock.Close() }()
		now, err = os.Stat(f.Filename) // another process may have rotated it meanwhile
	}
	if err != nil || f.known == nil || !os.SameFile(now, f.known) || now.Size()+int64(len(p)) >= f.max {
		if err := f.Logger.Close(); err != nil {
			return 0, err
		}
	}
	f.known = now
	if err != nil {
		f.known = nil
	}
	return f.Logger.Write(p)
}

func (f *sharedFile) Close() error { return errors.Join(f.Logger.Close(), f.dir.Close()) }
