package dirstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
	id       string
	size     int64     // on the disk
	last     time.Time // when it was last written, or was open
	hasFirst bool      // its first part exists, and is not empty
}

// rank returns 0 for a recording that never began, and 1 for others. A session begins after its first part was stored.
// Another process may be writing that, so a directory without it has rank 1 until it is old.
func (r *stored) rank(now time.Time) int {
	if !r.hasFirst && now.Sub(r.last) > maxTmpAge {
		return 0
	}
	return 1
}

// block is the unit in which space is counted. ext4 has by default one inode for each 16 KiB, so its inodes suffice for
// MaxSize if its space does.
const block = 16 << 10

// sizeOnDisk returns the space that counts for a file.
func sizeOnDisk(size int64) int64 { return (size + block - 1) / block * block }

// keptRecording is a recording that this process has open.
type keptRecording struct {
	calls  int   // of Keep, without those that were released
	size   int64 // on the disk, of the parts since Keep
	isFull bool  // gets no more parts
}

// Keep implements recording.Keeper. For other processes, Run renews the time of the directory each minute.
func (s *Store) Keep(id string) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kept[id]
	if k == nil {
		k = &keptRecording{}
		s.kept[id] = k
	}
	k.calls++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if k.calls--; k.calls > 0 {
			return
		}
		delete(s.kept, id)
		if !k.isFull {
			s.keptSize -= k.size
		}
	}
}

// openShare is the part of MaxSize that the recordings of open sessions may have: one divided by it.
const openShare = 2

// grow counts a part before it is written. If all open recordings are too large then, the largest one becomes full. It
// may be deleted from then on, so that many sessions cannot fill the disk one after the other.
func (s *Store) grow(id string, size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kept[id]
	if k == nil || s.cfg.MaxSize == 0 {
		return nil
	}
	if !k.isFull {
		k.size += size
		s.keptSize += size
	}
	limit := s.cfg.MaxSize / openShare
	for s.keptSize > limit {
		largest := &keptRecording{}
		for _, other := range s.kept {
			if !other.isFull && other.size > largest.size {
				largest = other
			}
		}
		largest.isFull = true
		s.keptSize -= largest.size
	}
	if k.isFull {
		return fmt.Errorf("the recordings of open sessions had more than %d bytes, and this was the largest of them", limit)
	}
	return nil
}

// isKept reports whether a recording may not be deleted.
func (s *Store) isKept(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kept[id]
	return k != nil && !k.isFull
}

// touchKept renews the times of the directories of open recordings, so that no other process deletes them as old.
func (s *Store) touchKept() {
	s.mu.Lock()
	ids := slices.Collect(maps.Keys(s.kept))
	s.mu.Unlock()
	now := s.cfg.Now()
	for _, id := range ids {
		if err := s.root.Chtimes(id, now, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.cfg.Log.Error("the time of an open recording cannot be renewed", "recording", id, "err", err)
		}
	}
}

// Enforce deletes recordings beyond the limits, but not those that are kept. Concurrent calls are not safe.
func (s *Store) Enforce(ctx context.Context) error {
	if s.cfg.MaxAge == 0 && s.cfg.MaxSize == 0 {
		return nil
	}
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
		if s.isKept(r.id) || !old && !large {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
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

// recordings returns all recordings in the order of their deletion: those that never began, and then the one that was
// open or written first. It deletes files that a killed Put left.
func (s *Store) recordings(ctx context.Context) ([]stored, error) {
	ids, err := s.List(ctx, "")
	if err != nil {
		return nil, err
	}
	all := make([]stored, 0, len(ids))
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r, err := s.measure(id)
		if errors.Is(err, recording.ErrNotFound) {
			continue // another process deleted it
		} else if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	now := s.cfg.Now()
	slices.SortStableFunc(all, func(a, b stored) int {
		return cmp.Or(cmp.Compare(a.rank(now), b.rank(now)), a.last.Compare(b.last))
	})
	return all, nil
}

func (s *Store) measure(id string) (stored, error) {
	r := stored{id: id, size: block} // the directory itself
	fi, err := s.root.Lstat(id)
	if errors.Is(err, fs.ErrNotExist) {
		return r, recording.ErrNotFound
	} else if err != nil {
		return r, err
	}
	r.last = fi.ModTime() // see touchKept
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
		r.hasFirst = r.hasFirst || e.Name() == recording.PartName(0) && fi.Size() > 0
		if fi.ModTime().After(r.last) {
			r.last = fi.ModTime()
		}
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
