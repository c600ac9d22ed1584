package dirstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/shared/recording"
)

// deletedPrefix starts the name of the directory of a recording that is being deleted.
const deletedPrefix = ".deleted-"

// stored is a recording in the directory.
type stored struct {
	id   string
	size int64     // on the disk
	last time.Time // when the last part was stored
}

// block is the unit in which most file systems allocate space. Many small recordings need more than their bytes.
const block = 4 << 10

// sizeOnDisk returns the space of a file.
func sizeOnDisk(size int64) int64 { return (size + block - 1) / block * block }

// Keep implements recording.Keeper. It has no effect on other processes.
func (s *Store) Keep(id string) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[id]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.kept[id]--; s.kept[id] == 0 {
			delete(s.kept, id)
		}
	}
}

func (s *Store) isKept(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept[id] > 0
}

// Enforce deletes recordings beyond the limits.
func (s *Store) Enforce(ctx context.Context) error { return s.enforce(ctx, "") }

func (s *Store) tryEnforce(ctx context.Context, active string) {
	if err := s.enforce(ctx, active); err != nil && ctx.Err() == nil {
		s.cfg.Log.Error("recordings beyond the limits cannot be deleted", "err", err)
	}
}

// enforce deletes recordings beyond the limits, but not the one with the id active, or those that are kept. It returns
// at once if another call is running.
func (s *Store) enforce(ctx context.Context, active string) error {
	if s.cfg.MaxAge == 0 && s.cfg.MaxSize == 0 || !s.enforcing.TryLock() {
		return nil
	}
	defer s.enforcing.Unlock()
	s.written.Store(0)
	if err := s.finishDeletions(); err != nil {
		return fmt.Errorf("delete recordings in %s: %w", s.cfg.Path, err)
	}
	all, err := s.recordings(ctx)
	if err != nil {
		return fmt.Errorf("list recordings in %s: %w", s.cfg.Path, err)
	}
	total := int64(0)
	for _, r := range all {
		total += r.size
	}
	now := s.cfg.Now()
	for _, r := range all {
		old := s.cfg.MaxAge > 0 && now.Sub(r.last) > s.cfg.MaxAge
		large := s.cfg.MaxSize > 0 && total > s.cfg.MaxSize
		if r.id == active || s.isKept(r.id) || !old && !large {
			continue
		}
		if err := s.delete(r.id); err != nil {
			return fmt.Errorf("delete recording %s: %w", filepath.Join(s.cfg.Path, r.id), err)
		}
		total -= r.size
		s.cfg.Log.Info("recording deleted by retention", "recording", r.id, "bytes", r.size, "lastPart", r.last,
			"tooOld", old, "tooLarge", large)
	}
	return nil
}

// recordings returns all recordings, the one that was written first, first. It deletes files that a killed Put left.
func (s *Store) recordings(ctx context.Context) ([]stored, error) {
	ids, err := s.List(ctx, "")
	if err != nil {
		return nil, err
	}
	all := make([]stored, 0, len(ids))
	for _, id := range ids {
		r, err := s.measure(id)
		if errors.Is(err, recording.ErrNotFound) {
			continue // another process deleted it
		} else if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b stored) int { return a.last.Compare(b.last) })
	return all, nil
}

func (s *Store) measure(id string) (stored, error) {
	r := stored{id: id, size: block} // the directory itself
	entries, err := s.readDir(id)
	if err != nil {
		return r, err
	}
	for _, e := range entries {
		fi, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return r, err
		}
		if strings.HasPrefix(e.Name(), tmpPrefix) && s.cfg.Now().Sub(fi.ModTime()) > maxTmpAge {
			_ = s.root.Remove(path.Join(id, e.Name())) // or another process does
			continue
		}
		r.size += sizeOnDisk(fi.Size())
		if fi.ModTime().After(r.last) {
			r.last = fi.ModTime()
		}
	}
	if r.last.IsZero() { // the directory of a recording whose first part is being written
		fi, err := s.root.Lstat(id)
		if err != nil {
			return r, err
		}
		r.last = fi.ModTime()
	}
	return r, nil
}

// delete renames the directory of a recording first, so that no reader sees a part of it.
func (s *Store) delete(id string) error {
	name := deletedPrefix + id
	if err := s.root.Rename(id, name); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return s.root.RemoveAll(name)
}

// finishDeletions removes what an interrupted delete left.
func (s *Store) finishDeletions() error {
	entries, err := s.readDir(".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), deletedPrefix) {
			if err := s.root.RemoveAll(e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}
