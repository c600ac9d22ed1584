// Package storetest contains the tests that every implementation of objects.Store must pass, besides storesuite.
package storetest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/storesuite"
)

// Config opens the stores under test.
type Config struct {
	storesuite.Config[objects.Store]
	// Compact drops the history of a store that New opened, up to a revision. Nil if the store keeps more history than a
	// test can drop.
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
	tests := map[string]func(*testing.T){
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
		"changes":             s.changes,
	}
	if c.Compact != nil {
		tests["compaction"] = s.compaction
	}
	storesuite.Run(t, kind, c.Config, adapt, tests)
}

// CountUp is the storesuite.Program that CountInProcesses starts.
func CountUp(ctx context.Context, st objects.Store) error {
	return kind.CountUp(ctx, records{st: st}, storesuite.CountsEach)
}

// CountInProcesses has eight processes increment one number in the empty store st, whose directory is dir.
func CountInProcesses(t *testing.T, st objects.Store, dir string) {
	t.Helper()
	kind.CountInProcesses(t, adapt(t, st), dir)
}

type suite struct{ c Config }

// adapt reads the revision of the empty store, unless access to it is denied.
func adapt(t *testing.T, st objects.Store) storesuite.Store {
	start, _ := st.Revision(t.Context())
	return records{st, start}
}

type records struct {
	st    objects.Store
	start uint64
}

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
			return r.st.Watch(ctx, "", r.start, func(objects.Event) error { return nil }, nil)
		},
		"changes": func() error { _, _, err := r.st.Changes(ctx, r.start, manyWrites); return err },
	}
}

func (r records) WantWrites(t *testing.T, n int) {
	t.Helper()
	wantWrites(t, r.st, r.start, n)
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

// manyWrites exceeds the number of writes of each test.
const manyWrites = 10_000

// wantWrites fails the test unless the store has exactly n writes after the revision from.
func wantWrites(t *testing.T, s objects.Store, from uint64, n int) {
	t.Helper()
	changes, to, err := s.Changes(t.Context(), from, manyWrites)
	if err != nil || len(changes) != n {
		t.Errorf("%d writes after revision %d, %v; want %d", len(changes), from, err, n)
		return
	}
	last := from
	for _, e := range changes {
		if e.Object.Revision <= last {
			t.Errorf("a write of revision %d follows revision %d", e.Object.Revision, last)
		}
		last = e.Object.Revision
	}
	if rev, err := s.Revision(t.Context()); err != nil || rev < last || to < last {
		t.Errorf("revision %d, %v, and changes to %d; want at least %d", rev, err, to, last)
	}
}

// history is a store that records the revisions of its writes. It is not safe for concurrent use.
type history struct {
	objects.Store
	start  uint64 // the revision of the empty store
	writes []uint64
}

func (s suite) open(t *testing.T) *history {
	t.Helper()
	return newHistory(t, s.c.New(t)())
}

func newHistory(t *testing.T, st objects.Store) *history {
	t.Helper()
	start, err := st.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &history{Store: st, start: start}
}

func (h *history) Create(ctx context.Context, key string, value []byte) (objects.Object, error) {
	return h.record(h.Store.Create(ctx, key, value))
}

func (h *history) Update(ctx context.Context, key string, value []byte, rev uint64) (objects.Object, error) {
	return h.record(h.Store.Update(ctx, key, value, rev))
}

func (h *history) Delete(ctx context.Context, key string, rev uint64) (objects.Object, error) {
	return h.record(h.Store.Delete(ctx, key, rev))
}

func (h *history) record(o objects.Object, err error) (objects.Object, error) {
	if err == nil {
		h.writes = append(h.writes, o.Revision)
	}
	return o, err
}

// revision returns the revision of the nth write, or that of the empty store if n is 0.
func (h *history) revision(n int) uint64 {
	if n == 0 {
		return h.start
	}
	return h.writes[n-1]
}

// number returns which write made a revision. The revision of a deletion may be less than Delete returned.
func (h *history) number(rev uint64) int {
	if rev <= h.start {
		return 0
	}
	i, _ := slices.BinarySearch(h.writes, rev)
	return i + 1
}

// show is like the function show, with the numbers of writes instead of revisions.
func (h *history) show(o objects.Object) string {
	return fmt.Sprintf("%q=%.40q(%d) %d/%d", o.Key, o.Value, len(o.Value), h.number(o.Created), h.number(o.Revision))
}

func (h *history) showEvent(e objects.Event) string {
	return fmt.Sprintf("%s %s before %.40q(%d)", e.Type, h.show(e.Object), e.Previous, len(e.Previous))
}

func (h *history) wantWrites(t *testing.T, n int) {
	t.Helper()
	wantWrites(t, h.Store, h.start, n)
}

func show(o objects.Object) string {
	return fmt.Sprintf("%q=%.40q(%d) %d/%d", o.Key, o.Value, len(o.Value), o.Created, o.Revision)
}
