package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"gopkg.in/natefinch/lumberjack.v2"
)

// DefaultMaxBackups is how many full files are kept beside the current one.
const DefaultMaxBackups = 9

// File is a file with rotation. All its files together have at most (MaxBackups+1)*MaxSize megabytes.
type File struct {
	Path       string
	MaxSize    int // megabytes; 0 means 100
	MaxBackups int // how many full files are kept, of which the oldest is deleted first; 0 means DefaultMaxBackups
}

// Open opens the file, mode 0600, for Config.To. Several processes may write one file. (One goroutine that deletes
// old files stays until the process ends; it is the library's.)
func (f File) Open() (io.WriteCloser, error) {
	if f.MaxSize < 0 || f.MaxBackups < 0 || !filepath.IsAbs(f.Path) {
		return nil, fmt.Errorf("audit file %q: want an absolute path, and no negative size or number", f.Path)
	}
	if f.MaxBackups == 0 {
		f.MaxBackups = DefaultMaxBackups
	}
	// Now, rather than with the first event, and never wider than 0600.
	file, err := os.OpenFile(f.Path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the audit file: %w", err)
	}
	if err := errors.Join(file.Chmod(0o600), file.Close()); err != nil {
		return nil, fmt.Errorf("open the audit file: %w", err)
	}
	return &sharedFile{Logger: lumberjack.Logger{Filename: f.Path, MaxSize: f.MaxSize, MaxBackups: f.MaxBackups}}, nil
}

// sharedFile is a file that other processes rotate too. It is not safe for concurrent use.
type sharedFile struct {
	lumberjack.Logger

	known os.FileInfo // the file before the last Write; nil for none
}

// Write implements io.Writer. It opens the file anew after another process has rotated it. Otherwise this process
// would write to a full file, and to one that was deleted later.
func (f *sharedFile) Write(p []byte) (int, error) {
	now, err := os.Stat(f.Filename)
	if err != nil || f.known == nil || !os.SameFile(now, f.known) {
		if err := f.Close(); err != nil {
			return 0, err
		}
	}
	f.known = now
	if err != nil {
		f.known = nil
	}
	return f.Logger.Write(p)
}
