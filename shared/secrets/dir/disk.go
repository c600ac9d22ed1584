package dir

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/clusterpass/clusterpass/shared/filelock"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

const maxFile = secrets.MaxValue + 16<<10

func (s *Store) read(name string) (*secrets.Secret, error) {
	if err := s.checkParents(name); err != nil {
		return nil, err
	}
	const tries = 3
	for i := 1; ; i++ {
		b, fi, settled, err := s.readFile(name)
		if err != nil {
			return nil, err
		}
		// An editor may be writing the file in place. Accept the result of the last try.
		if !settled && i < tries {
			continue
		}
		v, labels, err := decode(b)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", secrets.ErrInvalid, s.full(name), err)
		}
		if err := secrets.ValidValue(v); err != nil {
			return nil, err
		}
		return &secrets.Secret{
			Meta:  secrets.Meta{Name: name, Version: s.version(b, fi.ModTime()), Labels: labels, Updated: fi.ModTime()},
			Value: v,
		}, nil
	}
}

// readFile reads a regular file with mode 0600 or stricter. settled reports whether the file did not change meanwhile.
func (s *Store) readFile(name string) (b []byte, after fs.FileInfo, settled bool, err error) {
	named, err := s.root.Lstat(name)
	if err != nil {
		return nil, nil, false, err
	}
	if named.IsDir() {
		return nil, nil, false, fs.ErrNotExist
	}
	if err := s.checkFile(name, named); err != nil {
		return nil, nil, false, err
	}
	// O_NONBLOCK: do not block if the file was replaced by a pipe meanwhile.
	f, err := s.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, false, err
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return nil, nil, false, err
	}
	if err := s.checkFile(name, before); err != nil {
		return nil, nil, false, err
	}
	if b, err = io.ReadAll(io.LimitReader(f, maxFile+1)); err != nil {
		return nil, nil, false, err
	}
	if len(b) > maxFile {
		return nil, nil, false,
			fmt.Errorf("%w: %s has more than %d bytes", secrets.ErrInvalid, s.full(name), secrets.MaxValue)
	}
	if after, err = f.Stat(); err != nil {
		return nil, nil, false, err
	}
	settled = before.ModTime().Equal(after.ModTime()) && after.Size() == int64(len(b)) && os.SameFile(named, after)
	return b, after, settled, nil
}

// write writes and syncs a temporary file, and calls place to move it to name. The modification time is later than
// before, even if the clock was set back, so that versions are unique.
func (s *Store) write(name string, v secrets.Value, labels map[string]string, before time.Time,
	place func(tmp, name string) error) (string, error) {
	b, err := encode(v, labels)
	if err != nil {
		return "", err
	}
	parent := path.Dir(name)
	tmp := path.Join(parent, tmpPrefix+rand.Text())
	f, err := s.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = s.root.Remove(tmp) }() // missing after a rename
	_, err = f.Write(b)
	mtime := time.Now()
	if !mtime.After(before) {
		mtime = before.Add(time.Nanosecond)
	}
	if err := errors.Join(err, s.root.Chtimes(tmp, mtime, mtime), f.Sync(), f.Close()); err != nil {
		return "", err
	}
	fi, err := s.root.Lstat(tmp) // the file system may have rounded the time
	if err != nil {
		return "", err
	}
	if err := place(tmp, name); err != nil {
		return "", err
	}
	if err := filelock.SyncDir(s.root, parent); err != nil {
		return "", err
	}
	return s.version(b, fi.ModTime()), nil
}

func (s *Store) linkNew(tmp, name string) error {
	if err := s.root.Link(tmp, name); err != nil {
		return err
	}
	return s.root.Remove(tmp)
}

func (s *Store) version(b []byte, mtime time.Time) string {
	h := hmac.New(sha256.New, s.key)
	_ = binary.Write(h, binary.BigEndian, mtime.UnixNano())
	h.Write(b)
	return hex.EncodeToString(h.Sum(nil)[:12])
}

func (s *Store) makeDirs(dir string) error {
	if dir == "." {
		return s.checkDir(".")
	}
	parent := path.Dir(dir)
	if err := s.makeDirs(parent); err != nil {
		return err
	}
	switch err := s.root.Mkdir(dir, 0o700); {
	case err == nil:
		return filelock.SyncDir(s.root, parent)
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	if fi, err := s.root.Lstat(dir); err == nil && fi.Mode().IsRegular() {
		return fmt.Errorf("%w: there is a secret %s already", secrets.ErrInvalid, dir)
	}
	return s.checkDir(dir)
}

func (s *Store) checkParents(name string) error {
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		if err := s.checkDir(dir); err != nil {
			return err
		}
		if dir == "." {
			return nil
		}
	}
}

func (s *Store) checkDir(name string) error {
	fi, err := s.root.Lstat(name)
	switch {
	case err != nil:
		return err
	case fi.Mode().IsRegular(): // no secret is below a file
		return fs.ErrNotExist
	case !fi.IsDir():
		return fmt.Errorf("%w: %s is a symbolic link or a special file; make it a directory", secrets.ErrForbidden,
			s.full(name))
	case fi.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%w: %s is open to others (mode %04o): chmod 700 %[2]s", secrets.ErrForbidden, s.full(name),
			fi.Mode().Perm())
	}
	return nil
}

func (s *Store) checkFile(name string, fi fs.FileInfo) error {
	switch {
	case !fi.Mode().IsRegular():
		return fmt.Errorf("%w: %s is a symbolic link or a special file; put the file itself there", secrets.ErrForbidden,
			s.full(name))
	case fi.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%w: %s is open to others (mode %04o): chmod 600 %[2]s", secrets.ErrForbidden, s.full(name),
			fi.Mode().Perm())
	}
	return nil
}

func (s *Store) full(name string) string { return filepath.Join(s.root.Name(), name) }

func sortMetas(m []secrets.Meta) {
	slices.SortFunc(m, func(a, b secrets.Meta) int { return strings.Compare(a.Name, b.Name) })
}

// fail wraps err with one of the errors of package secrets, unless it is context.Canceled.
func fail(op, name string, err error) error {
	reason := secrets.ErrUnavailable
	switch {
	case isReason(err):
		return fmt.Errorf("%s secret %s: %w", op, name, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s secret %s: %w", op, name, secrets.ErrNotFound)
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s secret %s: %w", op, name, secrets.ErrExists)
	case errors.Is(err, fs.ErrPermission):
		reason = secrets.ErrForbidden
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s secret %s: %w", op, name, err)
	}
	return fmt.Errorf("%s secret %s: %w: %w", op, name, reason, err)
}

func isReason(err error) bool {
	for _, r := range []error{
		secrets.ErrNotFound, secrets.ErrExists, secrets.ErrConflict, secrets.ErrForbidden, secrets.ErrUnavailable,
		secrets.ErrInvalid,
	} {
		if errors.Is(err, r) {
			return true
		}
	}
	return false
}
