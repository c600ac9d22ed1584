package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	clusterpassv1alpha1 "github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	searchv1alpha1 "github.com/clusterpass/clusterpass/shared/api/search/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/recording/keys"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/stores"
)

// Result is the outcome of a restore.
type Result struct {
	Counts  Counts
	Resumed bool // an earlier restore of the same backup was interrupted
}

// mark is the value of the object unfinished.
type mark struct {
	Backup string    `json:"backup"` // Header.ID
	Begun  time.Time `json:"begun"`
}

const attempts = 5

// Backup is the content of a file that was read completely.
type Backup struct {
	Header  Header
	Notes   Notes
	content *io.SectionReader
}

// Verify reads the whole content, which Decrypt returned. It authenticates and parses every record.
func Verify(content *io.SectionReader) (*Backup, error) {
	b := &Backup{content: content}
	var err error
	b.Header, _, err = Read(b.reader(), func(r Record) error {
		b.Notes.see(r)
		return nil
	})
	return b, err
}

func (b *Backup) reader() io.Reader { return io.NewSectionReader(b.content, 0, b.content.Size()) }

// Restore writes the backup into new stores. A store is new while it has only what a gateway writes when it starts,
// which Restore replaces. After an error, a call with the same backup and stores continues.
func (b *Backup) Restore(ctx context.Context, st *stores.Stores, o Options) (*Result, error) {
	r := &restorer{Options: o, stores: st, id: b.Header.ID}
	resumed, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	_, counts, err := Read(b.reader(), func(record Record) error { return r.write(ctx, record) })
	if err == nil {
		err = r.deleteObject(ctx, unfinished)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; the store is incomplete: let no gateway use it, and run the same command again, which "+
			"continues", err)
	}
	return &Result{counts, resumed}, nil
}

type restorer struct {
	Options

	stores *stores.Stores
	id     string
	counts Counts
}

// begin writes the mark into a new store. If the store has the mark of this backup already, resumed is true.
func (r *restorer) begin(ctx context.Context) (resumed bool, err error) {
	o, err := r.stores.Objects.Get(ctx, unfinished)
	if err == nil {
		var m mark
		if json.Unmarshal(o.Value, &m) == nil && m.Backup == r.id {
			return true, nil
		}
		return false, fmt.Errorf("the store has a part of another backup (%.64q, since %s); finish that restore, or name an "+
			"empty store", m.Backup, m.Begun.UTC().Format(time.RFC3339))
	}
	if !errors.Is(err, objects.ErrNotFound) {
		return false, err
	}
	if err := r.checkNew(ctx); err != nil {
		return false, err
	}
	// The backup decides whether there is a default registry.
	for _, key := range []string{searchv1alpha1.Prefix + stores.DefaultRegistry, stores.DecisionKey} {
		if err := r.deleteObject(ctx, key); err != nil {
			return false, err
		}
	}
	value, err := json.Marshal(mark{r.id, r.now().UTC().Truncate(time.Second)})
	if err != nil {
		return false, err
	}
	_, err = r.stores.Objects.Create(ctx, unfinished, value)
	return false, err
}

// checkNew returns an error if the stores have more than a gateway writes when it starts.
func (r *restorer) checkNew(ctx context.Context) error {
	const todo = "; nothing was written. Name an empty store with --store"
	own := []string{
		passes.PassKeys, passes.AgentKeys, passes.TunnelKeys, clusterpassv1alpha1.InstallationKey,
		searchv1alpha1.Prefix + stores.DefaultRegistry, stores.DecisionKey, passes.CASecret, passes.ServerCASecret,
		keys.Name,
	}
	for _, prefix := range Prefixes {
		page, err := r.stores.Objects.List(ctx, prefix, len(own)+1, "")
		if err != nil {
			return err
		}
		for _, o := range page.Objects {
			if !slices.Contains(own, o.Key) {
				return fmt.Errorf("the store is not empty: it has the object %s"+todo, o.Key)
			}
		}
	}
	listed, err := r.stores.Secrets.List(ctx, nil)
	if err != nil {
		return err
	}
	for _, m := range listed {
		if !slices.Contains(own, m.Name) {
			return fmt.Errorf("the store is not empty: it has the secret %s"+todo, m.Name)
		}
	}
	return nil
}

func (r *restorer) write(ctx context.Context, record Record) error {
	var err error
	switch {
	case record.Object != nil:
		r.counts.Objects++
		err = r.putObject(ctx, record.Object.Key, record.Object.Value)
	case record.Secret != nil:
		r.counts.Secrets++
		err = r.putSecret(ctx, record.Secret)
	default:
		r.counts.Objects++
		err = r.deleteObject(ctx, record.Deleted)
	}
	if err == nil {
		r.report(r.counts)
	}
	return err
}

// putObject is repeated if a gateway that starts meanwhile writes the same object.
func (r *restorer) putObject(ctx context.Context, key string, value []byte) error {
	var err error
	for range attempts {
		if _, err = r.stores.Objects.Create(ctx, key, value); !errors.Is(err, objects.ErrExists) {
			return err
		}
		var old objects.Object
		if old, err = r.stores.Objects.Get(ctx, key); err == nil {
			if bytes.Equal(old.Value, value) {
				return nil
			}
			_, err = r.stores.Objects.Update(ctx, key, value, old.Revision)
		}
		if !errors.Is(err, objects.ErrConflict) && !errors.Is(err, objects.ErrNotFound) {
			return err
		}
	}
	return err
}

func (r *restorer) deleteObject(ctx context.Context, key string) error {
	var err error
	for range attempts {
		var old objects.Object
		if old, err = r.stores.Objects.Get(ctx, key); err == nil {
			_, err = r.stores.Objects.Delete(ctx, key, old.Revision)
		}
		if errors.Is(err, objects.ErrNotFound) {
			return nil
		}
		if !errors.Is(err, objects.ErrConflict) {
			return err
		}
	}
	return err
}

func (r *restorer) putSecret(ctx context.Context, s *secrets.Secret) error {
	var err error
	for range attempts {
		if _, err = r.stores.Secrets.Create(ctx, s.Name, s.Value, s.Labels); !errors.Is(err, secrets.ErrExists) {
			return err
		}
		var old *secrets.Secret
		if old, err = r.stores.Secrets.Get(ctx, s.Name); err == nil {
			if old.Value.Equal(s.Value) {
				return nil
			}
			_, err = r.stores.Secrets.Replace(ctx, s.Name, old.Version, s.Value)
		}
		if !errors.Is(err, secrets.ErrConflict) && !errors.Is(err, secrets.ErrNotFound) {
			return err
		}
	}
	return err
}
