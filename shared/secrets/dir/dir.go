// Package dir stores secrets as files in a directory, for one machine. A file contains the value, after a line with the
// labels if there are any, see header. A new or edited file is immediately a new version.
//
//   - Files have mode 0600 and directories 0700. Wider modes are refused.
//   - Symbolic links in the store are never followed.
//   - A temporary file is synced before it gets the secret's name. A crash leaves the old content or the new one.
//   - Writers lock .lock. Editors do not: an edit may be lost while Replace writes the file.
//   - A version is a keyed hash of content and modification time. The key is in .lock. Without the key, a reader of
//     logs cannot test guesses of a short password against a version.
package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/shared/filelock"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

const (
	lockName  = ".lock"
	tmpPrefix = ".tmp-"
	keySize   = 32
	// openWait is the maximum time that Open waits for writers of other processes.
	openWait = 30 * time.Second
)

// Store implements secrets.Store. Close releases its file descriptor.
type Store struct {
	root *os.Root
	key  []byte
}

var _ secrets.Store = (*Store)(nil)

// Open opens the store in the directory name, and creates a missing one with mode 0700. It removes temporary files of
// writers that died.
func Open(name string) (*Store, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return nil, fmt.Errorf("open secrets in %s: %w", name, err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("open secrets in %s: %w", path, err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open secrets in %s: %w", path, err)
	}
	s := &Store{root: root}
	if err := s.prepare(); err != nil {
		_ = root.Close()
		return nil, fmt.Errorf("open secrets in %s: %w", path, err)
	}
	return s, nil
}

// Close releases the directory.
func (s *Store) Close() error { return s.root.Close() }

func (s *Store) prepare() error {
	if err := s.checkDir("."); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), openWait)
	defer cancel()
	lock, err := filelock.Lock(ctx, s.root, lockName, filelock.Exclusive)
	if err != nil {
		return err
	}
	defer lock.Close()
	if s.key, err = io.ReadAll(io.LimitReader(lock, keySize)); err != nil {
		return err
	}
	if len(s.key) < keySize {
		s.key = make([]byte, keySize)
		_, _ = rand.Read(s.key)
		if _, err := lock.WriteAt(s.key, 0); err != nil {
			return err
		}
		if err := lock.Sync(); err != nil {
			return err
		}
	}
	return s.sweep()
}

func (s *Store) sweep() error {
	return fs.WalkDir(s.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // List reports unreadable files
		case d.IsDir() && name != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case !d.IsDir() && strings.HasPrefix(d.Name(), tmpPrefix):
			return s.root.Remove(name)
		}
		return nil
	})
}

// Get implements secrets.Store.
func (s *Store) Get(ctx context.Context, name string) (*secrets.Secret, error) {
	if err := secrets.ValidName(name); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fail("get", name, err)
	}
	sec, err := s.read(name)
	if err != nil {
		return nil, fail("get", name, err)
	}
	sec.Labels = nil
	return sec, nil
}

// List implements secrets.Store. It ignores files with invalid names, such as backups of an editor. If files
// cannot be read, List returns the other secrets, and an error that names these files.
func (s *Store) List(ctx context.Context, labels map[string]string) ([]secrets.Meta, error) {
	var (
		metas   []secrets.Meta
		refused []error
	)
	err := fs.WalkDir(s.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if name == "." {
			return errors.Join(err, s.checkDir("."))
		}
		if secrets.ValidName(name) != nil {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err == nil && d.IsDir() {
			if err = s.checkDir(name); err == nil {
				return nil
			}
		} else if err == nil {
			var sec *secrets.Secret
			if sec, err = s.read(name); err == nil && sec.Has(labels) {
				metas = append(metas, sec.Meta)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // ErrNotExist: deleted meanwhile
			refused = append(refused, fail("list", name, err))
		}
		if err != nil && d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return nil, fail("list", s.root.Name(), err)
	}
	sortMetas(metas)
	return metas, errors.Join(refused...)
}

// Create implements secrets.Store. It returns ErrInvalid if the name is a folder of other secrets, or is
// below a secret.
func (s *Store) Create(ctx context.Context, name string, v secrets.Value, labels map[string]string) (string, error) {
	if err := errors.Join(secrets.ValidName(name), secrets.ValidValue(v), secrets.ValidLabels(labels)); err != nil {
		return "", err
	}
	lock, err := filelock.Lock(ctx, s.root, lockName, filelock.Exclusive)
	if err != nil {
		return "", fail("create", name, err)
	}
	defer lock.Close()
	if err := s.makeDirs(path.Dir(name)); err != nil {
		return "", fail("create", name, err)
	}
	if fi, err := s.root.Lstat(name); err == nil && fi.IsDir() {
		return "", fail("create", name, fmt.Errorf("%w: it is the folder of other secrets", secrets.ErrInvalid))
	}
	version, err := s.write(name, v, labels, time.Time{}, s.linkNew)
	if err != nil {
		return "", fail("create", name, err)
	}
	return version, nil
}

// Replace implements secrets.Store.
func (s *Store) Replace(ctx context.Context, name, old string, v secrets.Value) (string, error) {
	if err := errors.Join(secrets.ValidName(name), secrets.ValidValue(v)); err != nil {
		return "", err
	}
	lock, err := filelock.Lock(ctx, s.root, lockName, filelock.Exclusive)
	if err != nil {
		return "", fail("replace", name, err)
	}
	defer lock.Close()
	current, err := s.read(name)
	if err != nil {
		return "", fail("replace", name, err)
	}
	if current.Version != old {
		return "", fail("replace", name, fmt.Errorf("%w: want version %q, is %q", secrets.ErrConflict, old, current.Version))
	}
	version, err := s.write(name, v, current.Labels, current.Updated, s.root.Rename)
	if err != nil {
		return "", fail("replace", name, err)
	}
	return version, nil
}

// Delete implements secrets.Store. It also removes folders that become empty.
func (s *Store) Delete(ctx context.Context, name string) error {
	if err := secrets.ValidName(name); err != nil {
		return err
	}
	lock, err := filelock.Lock(ctx, s.root, lockName, filelock.Exclusive)
	if err != nil {
		return fail("delete", name, err)
	}
	defer lock.Close()
	if err := s.checkParents(name); err != nil {
		return fail("delete", name, err)
	}
	// Files with a wrong mode and symbolic links can be deleted, although Get refuses them.
	if fi, err := s.root.Lstat(name); err != nil {
		return fail("delete", name, err)
	} else if fi.IsDir() {
		return fail("delete", name, fs.ErrNotExist)
	}
	if err := s.root.Remove(name); err != nil {
		return fail("delete", name, err)
	}
	d := path.Dir(name)
	for ; d != "."; d = path.Dir(d) {
		if s.root.Remove(d) != nil { // not empty
			break
		}
	}
	if err := filelock.SyncDir(s.root, d); err != nil {
		return fail("delete", name, err)
	}
	return nil
}
