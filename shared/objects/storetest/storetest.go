// Package storetest contains the tests that every implementation of objects.Store must pass, besides storesuite.
package storetest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/storesuite"
)

// Config opens the stores under test.
type Config struct {
	storesuite.Config[objects.Store]
	// Compact drops the history of a store that New opened, up to a revision.
	Compact func(t *testing.T, st objects.Store, to uint64)
}

var kind = storesuite.Kind{
	ErrNotFound: objects.ErrNotFound, ErrExists: objects.ErrExists, ErrConflict: objects.ErrConflict,
	ErrForbidden: objects.ErrForbidden, ErrUnavailable: objects.ErrUnavailable, ErrInvalid: objects.ErrInvalid,
	RetryAfter:   objects.RetryAfter,
	Unchanged:    30,
	MissingNames: []string{"things/missing", "things/the", "things/there2", "things/there/2", "thing/there"},
	InvalidNames: []string{
		"", "things", "things/", "/there", "things//a", "things/a/", "things/..", "things/./a", "Things/a", "th ings/a",
		"-a/b", "things/a\x00", "things/a\nb", "things/\xff", "things/" + strings.Repeat("a", 512),
	},
}

// Run runs the suite.
func Run(t *testing.T, c Config) {
	s := suite{c}
	storesuite.Run(t, kind, c.Config, adapt, map[string]func(*testing.T){
		"one object":          s.oneObject,
		"conflicts":           s.conflicts,
		"values":              s.values,
		"keys":                s.keys,
		"invalid":             s.invalid,
		"pages":               s.pages,
		"independent writers": s.independentWriters,
		"watch":               s.watch,
		"watch prefix":        s.watchPrefix,
		"watch ends":          s.watchEnds,
		"watch has no gap":    s.watchHasNoGap,
		"list and watch":      s.listAndWatch,
		"compaction":          s.compaction,
	})
}

// CountUp is the storesuite.Program that CountInProcesses starts.
func CountUp(ctx context.Context, st objects.Store) error {
	return kind.CountUp(ctx, records{st}, storesuite.CountsEach)
}

// CountInProcesses has eight processes increment one number in the empty store st, whose directory is dir.
func CountInProcesses(t *testing.T, st objects.Store, dir string) {
	t.Helper()
	got := kind.CountInProcesses(t, records{st}, dir)
	if want := uint64(storesuite.Writers*storesuite.CountsEach + 1); revision(got) != want {
		t.Errorf("the number has revision %s, want %d", got.Version, want)
	}
}

type suite struct{ c Config }

func adapt(_ *testing.T, st objects.Store) storesuite.Store { return records{st} }

type records struct{ st objects.Store }

func record(o objects.Object) storesuite.Record {
	return storesuite.Record{
		Name: o.Key, Value: string(o.Value),
		Version: strconv.FormatUint(o.Revision, 10), Details: fmt.Sprintf("created at revision %d", o.Created),
	}
}

func revision(r storesuite.Record) uint64 {
	rev, err := strconv.ParseUint(r.Version, 10, 64)
	if err != nil {
		panic(err) // every version comes from record
	}
	return rev
}

func (r records) Create(ctx context.Context, name, value string) (storesuite.Record, error) {
	o, err := r.st.Create(ctx, name, []byte(value))
	return record(o), err
}

func (r records) Get(ctx context.Context, name string) (storesuite.Record, error) {
	o, err := r.st.Get(ctx, name)
	return record(o), err
}

func (r records) Replace(ctx context.Context, old storesuite.Record, value string) (storesuite.Record, error) {
	o, err := r.st.Update(ctx, old.Name, []byte(value), revision(old))
	return record(o), err
}

func (r records) Delete(ctx context.Context, old storesuite.Record) error {
	_, err := r.st.Delete(ctx, old.Name, revision(old))
	return err
}

func (r records) List(ctx context.Context, folder string, pageSize int) ([]storesuite.Record, error) {
	all, _, err := readPages(ctx, r.st, folder, pageSize)
	var list []storesuite.Record
	for _, o := range all {
		list = append(list, record(o))
	}
	return list, err
}

func (r records) OtherCalls(ctx context.Context) storesuite.Calls {
	return storesuite.Calls{
		"revision": func() error { _, err := r.st.Revision(ctx); return err },
		"watch": func() error {
			return r.st.Watch(ctx, "", 0, func(objects.Event) error { return nil }, nil)
		},
	}
}

func (r records) WantWrites(t *testing.T, n int) {
	t.Helper()
	wantRevision(t, r.st, uint64(n))
}

func mustCreate(t *testing.T, s objects.Store, key, value string) objects.Object {
	t.Helper()
	o, err := s.Create(t.Context(), key, []byte(value))
	if err != nil {
		t.Fatalf("create %s: %v", key, err)
	}
	return o
}

func mustUpdate(t *testing.T, s objects.Store, key, value string, rev uint64) objects.Object {
	t.Helper()
	o, err := s.Update(t.Context(), key, []byte(value), rev)
	if err != nil {
		t.Fatalf("update %s: %v", key, err)
	}
	return o
}

func mustDelete(t *testing.T, s objects.Store, key string, rev uint64) objects.Object {
	t.Helper()
	o, err := s.Delete(t.Context(), key, rev)
	if err != nil {
		t.Fatalf("delete %s: %v", key, err)
	}
	return o
}

func wantRevision(t *testing.T, s objects.Store, want uint64) {
	t.Helper()
	if got, err := s.Revision(t.Context()); err != nil || got != want {
		t.Errorf("revision %d, %v; want %d", got, err, want)
	}
}

func show(o objects.Object) string {
	return fmt.Sprintf("%q=%.40q(%d) %d/%d", o.Key, o.Value, len(o.Value), o.Created, o.Revision)
}
