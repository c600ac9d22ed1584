package backup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/recording/keys"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/stores"
)

const (
	pageSize = 100
	// maxChanges bounds the memory for the changes that are written while a store is listed.
	maxChanges = 10_000
	// changesTimeout exceeds the 30 s after which a hub completes the write of a gateway that died.
	changesTimeout = time.Minute
	changesPause   = 200 * time.Millisecond
)

// Save writes the content of the stores to w and closes w. It returns notes for the operator about what does not move.
//
// It lists the objects, then reads the secrets, then adds the changes that were written to the objects meanwhile. So
// the objects are those of one revision, and no object lacks a secret that was written before it.
func Save(ctx context.Context, st *stores.Stores, w *Writer, o Options) (Notes, error) {
	s := &saver{stores: st, w: w, Options: o, secrets: map[string]bool{}, labels: map[string]map[string]string{}}
	if err := s.save(ctx); err != nil {
		return Notes{}, err
	}
	return s.notes, w.Close()
}

type saver struct {
	Options

	stores  *stores.Stores
	w       *Writer
	notes   Notes
	labels  map[string]map[string]string
	secrets map[string]bool // names to read, and whether they were read
	newest  uint64          // the highest revision of a listed object
}

func (s *saver) save(ctx context.Context) error {
	if _, err := s.stores.Objects.Get(ctx, unfinished); err == nil {
		return errors.New("the store is incomplete: a restore into it has not finished; finish it by clusterpass restore")
	} else if !errors.Is(err, objects.ErrNotFound) {
		return err
	}
	revision, err := s.stores.Objects.Revision(ctx)
	if err != nil {
		return err
	}
	for _, prefix := range Prefixes {
		if err := s.list(ctx, prefix); err != nil {
			return err
		}
	}
	if s.w.Counts.Objects == 0 {
		return errors.New("the store is empty; name the store of an installation with --store")
	}
	listed, err := s.stores.Secrets.List(ctx, nil)
	if err != nil {
		return err
	}
	for _, m := range listed {
		s.labels[m.Name] = m.Labels
		s.want(m.Name)
	}
	// The list of secrets may lag.
	s.want(passes.PassKeys, passes.AgentKeys, passes.CASecret, passes.ServerCASecret, keys.Name)
	if err := s.readSecrets(ctx); err != nil {
		return err
	}
	if err := s.changes(ctx, revision); err != nil {
		return fmt.Errorf("read the changes of the last moments: %w", err)
	}
	return s.readSecrets(ctx)
}

func (s *saver) list(ctx context.Context, prefix string) error {
	for cont := ""; ; {
		page, err := s.stores.Objects.List(ctx, prefix, pageSize, cont)
		if err != nil {
			return err
		}
		for _, o := range page.Objects {
			s.newest = max(s.newest, o.Revision)
			if err := s.put(o.Key, o.Value); err != nil {
				return err
			}
		}
		if cont = page.Continue; cont == "" {
			return nil
		}
	}
}

func (s *saver) put(key string, value []byte) error {
	if !moves(key) || s.notes.skipExpired(key, value, s.now()) {
		return nil
	}
	s.notes.see(Record{Object: &objects.Object{Key: key, Value: value}})
	if name, ok := strings.CutPrefix(key, clusterv1alpha1.Prefix); ok {
		// An object that cannot be decoded moves, too. Its secret is in the list.
		if c, err := clusterv1alpha1.Decode(key, value); err == nil {
			c.Name = name
			s.want(append(c.OwnSecrets(), c.SecretName())...)
		}
	}
	defer func() { s.report(s.w.Counts) }()
	return s.w.PutObject(key, value)
}

func (s *saver) want(names ...string) {
	for _, name := range names {
		if !s.secrets[name] {
			s.secrets[name] = false
		}
	}
}

// readSecrets writes the secrets that were not read yet. One that does not exist was deleted, or never written.
func (s *saver) readSecrets(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(s.secrets)) {
		if s.secrets[name] || name == passes.TunnelKeys {
			continue
		}
		sec, err := s.stores.Secrets.Get(ctx, name)
		if errors.Is(err, secrets.ErrNotFound) {
			continue
		} else if err != nil {
			return err
		}
		s.secrets[name] = true
		s.notes.see(Record{Secret: sec})
		if err := s.w.PutSecret(name, s.labels[name], sec.Value); err != nil {
			return err
		}
		s.report(s.w.Counts)
	}
	return nil
}

// changes writes what was written to the objects after revision. A list may contain a write that Changes does not cover
// yet, because its writer has not completed it.
func (s *saver) changes(ctx context.Context, revision uint64) error {
	ctx, cancel := context.WithTimeout(ctx, changesTimeout)
	defer cancel()
	for {
		changes, to, err := s.stores.Objects.Changes(ctx, revision, maxChanges)
		if err != nil {
			return err
		}
		if to >= s.newest {
			for _, e := range changes {
				if err := s.change(e); err != nil {
					return err
				}
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(changesPause):
		}
	}
}

func (s *saver) change(e objects.Event) error {
	switch {
	case !moves(e.Object.Key):
		return nil
	case e.Type == objects.Deleted:
		s.notes.see(Record{Deleted: e.Object.Key})
		return s.w.DeleteObject(e.Object.Key)
	}
	return s.put(e.Object.Key, e.Object.Value)
}
