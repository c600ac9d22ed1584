// Package storesuite contains the tests that secrets.Store and objects.Store have in common. Their packages storetest
// adapt their stores to [Store], describe them with a [Kind], and pass their own tests to [Run].
//
// Config.New returns a function that opens stores. All of them have the same records, like those of several processes.
package storesuite

import (
	"context"
	"errors"
	"testing"
	"time"
)

// SampleName is the name of a record in many of the tests.
const SampleName = "things/there"

// Config opens the stores of one implementation. S is the interface that they implement.
type Config[S any] struct {
	// New creates an empty store that exists until the test ends. Each call of the returned function opens it again, as
	// another process would.
	New func(t *testing.T) func() S
	// Denied returns a store whose caller has no permissions. Nil if only opening a store checks permissions.
	Denied func(t *testing.T) S
	// Throttled returns an empty store. After throttle, the service behind the store rejects the next n calls because of
	// their rate. Nil if there is no service.
	Throttled func(t *testing.T) (st S, throttle func(n int))
}

// Store is a store as the shared tests see it: named values, with a new version for each write.
type Store interface {
	Create(ctx context.Context, name, value string) (Record, error)
	Get(ctx context.Context, name string) (Record, error)
	// Replace writes value if old is the current version.
	Replace(ctx context.Context, old Record, value string) (Record, error)
	// Delete deletes the record if old is the current version. A store that deletes by name ignores the version.
	Delete(ctx context.Context, old Record) error
	// List returns the records whose name begins with folder, by name. A pageSize of 0 means one page.
	List(ctx context.Context, folder string, pageSize int) ([]Record, error)
	// OtherCalls returns a call of each method of the adapted store that this interface does not cover.
	OtherCalls(ctx context.Context) Calls
	// WantWrites fails the test unless n writes have succeeded, if the store counts its writes.
	WantWrites(t *testing.T, n int)
}

// Record is one version of a named value. A field is empty if the operation that returned the record omits it.
type Record struct {
	Name, Value string
	// Version changes with each write.
	Version string
	// Details contains whatever else the store keeps from the creation until the deletion.
	Details string
}

// Kind describes one interface to the shared tests.
type Kind struct {
	ErrNotFound, ErrExists, ErrConflict, ErrForbidden, ErrUnavailable, ErrInvalid error
	// RetryAfter returns how long to wait before a retry after err, or 0 if a retry is of no use.
	RetryAfter func(err error) time.Duration
	// MissingNames are valid names that resemble SampleName. InvalidNames are rejected by every method.
	MissingNames, InvalidNames []string
	// Unchanged is the number of constant records in the test of lists. It must exceed a page
	// of the tests (4 records), and of the service behind the store.
	Unchanged int
}

// Run runs the shared tests and those of own as subtests for the stores that c opens.
func Run[S any](t *testing.T, k Kind, c Config[S], adapt func(*testing.T, S) Store, own map[string]func(*testing.T)) {
	t.Helper()
	s := suite[S]{k, c, adapt}
	tests := map[string]func(*testing.T){
		"delete and create": s.deleteAndCreate,
		"missing":           s.missing,
		"invalid names":     s.invalidNames,
		"eight creators":    s.eightCreators,
		"eight writers":     s.eightWriters,
		"count up":          s.countUp,
		"list under change": s.listUnderChange,
		"ended context":     s.endedContext,
	}
	if c.Denied != nil {
		tests["permission refused"] = s.denied
	}
	if c.Throttled != nil {
		tests["throttled for a while"] = s.throttledForAWhile
		tests["throttled all of the time"] = s.throttledAllOfTheTime
	}
	for name, test := range own {
		if tests[name] != nil {
			t.Fatalf("the test %q of the suite has the name of a shared test", name)
		}
		tests[name] = test
	}
	for name, test := range tests {
		t.Run(name, test)
	}
}

type suite[S any] struct {
	Kind
	c     Config[S]
	adapt func(*testing.T, S) Store
}

func (s suite[S]) open(t *testing.T) Store { return s.adapt(t, s.c.New(t)()) }

// WantError fails the test unless err is want. The operation is the one that returned err.
func WantError(t *testing.T, operation string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got error %v, want %v", operation, err, want)
	}
}

func mustCreate(t *testing.T, st Store, name, value string) Record {
	t.Helper()
	r, err := st.Create(t.Context(), name, value)
	if err != nil {
		t.Fatalf("create %s: %v", name, err)
	}
	return r
}

func mustReplace(t *testing.T, st Store, old Record, value string) Record {
	t.Helper()
	r, err := st.Replace(t.Context(), old, value)
	if err != nil {
		t.Fatalf("replace %s: %v", old.Name, err)
	}
	return r
}

func mustDelete(t *testing.T, st Store, old Record) {
	t.Helper()
	if err := st.Delete(t.Context(), old); err != nil {
		t.Fatalf("delete %s: %v", old.Name, err)
	}
}

func wantCurrent(t *testing.T, st Store, want Record) {
	t.Helper()
	got, err := st.Get(t.Context(), want.Name)
	if err != nil || got.Value != want.Value || !got.matches(want) {
		t.Fatalf("get %s: got %+v, %v; want %+v", want.Name, got, err, want)
	}
}

func wantListed(t *testing.T, st Store, want Record) {
	t.Helper()
	records, err := st.List(t.Context(), want.Name, 0)
	if err != nil || len(records) != 1 || !records[0].matches(want) {
		t.Errorf("list %s: got %+v, %v; want %+v", want.Name, records, err, want)
	}
}

func (r Record) matches(want Record) bool {
	if r.Value == "" {
		r.Value = want.Value
	}
	if r.Details == "" {
		r.Details = want.Details
	}
	return r == want && r.Version != ""
}
