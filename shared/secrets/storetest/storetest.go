// Package storetest contains the tests that every implementation of secrets.Store must pass, besides storesuite.
package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/storesuite"
)

// Config opens the stores under test.
type Config = storesuite.Config[secrets.Store]

var kind = storesuite.Kind{
	ErrNotFound: secrets.ErrNotFound, ErrExists: secrets.ErrExists, ErrConflict: secrets.ErrConflict,
	ErrForbidden: secrets.ErrForbidden, ErrUnavailable: secrets.ErrUnavailable, ErrInvalid: secrets.ErrInvalid,
	RetryAfter:   secrets.RetryAfter,
	Unchanged:    110, // a page of Secrets Manager has 100
	MissingNames: []string{"missing", "things/missing", "things", "things/the", "things/there2", "thing/there"},
	InvalidNames: []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a/.b", "A", "a b", "a_b", "a\x00", "a\n", "-a",
		"a-", "a/-b", "ž", strings.Repeat("a", 254),
	},
}

// Run runs the suite.
func Run(t *testing.T, c Config) {
	s := suite{c}
	storesuite.Run(t, kind, c, adapt, map[string]func(*testing.T){
		"versions":                  s.versions,
		"values":                    s.values,
		"invalid":                   s.invalid,
		"labels":                    s.labels,
		"four delete, four replace": s.fourDelete,
	})
}

// CountUp is the storesuite.Program that CountInProcesses starts.
func CountUp(ctx context.Context, st secrets.Store) error {
	return kind.CountUp(ctx, records{st}, storesuite.CountsEach)
}

// CountInProcesses has eight processes increment one number in the empty store st, whose directory is dir.
func CountInProcesses(t *testing.T, st secrets.Store, dir string) {
	t.Helper()
	kind.CountInProcesses(t, adapt(t, st), dir)
}

type suite struct{ c Config }

func (s suite) open(t *testing.T) secrets.Store { return errorChecker{s.c.New(t)(), t} }

func (s suite) openAll(t *testing.T) []secrets.Store {
	t.Helper()
	stores := s.c.Open(t)
	for i, st := range stores {
		stores[i] = errorChecker{st, t}
	}
	return stores
}

func adapt(t *testing.T, st secrets.Store) storesuite.Store { return records{errorChecker{st, t}} }

type records struct{ st secrets.Store }

func (r records) Create(ctx context.Context, name, v string) (storesuite.Record, error) {
	labels := map[string]string{"created-with": v, "only-" + v: ""}
	version, err := r.st.Create(ctx, name, value(v), labels)
	return storesuite.Record{Name: name, Value: v, Version: version, Details: fmt.Sprint(labels)}, err
}

func (r records) Get(ctx context.Context, name string) (storesuite.Record, error) {
	sec, err := r.st.Get(ctx, name)
	if err != nil {
		return storesuite.Record{}, err
	}
	if sec.Labels != nil || sec.Updated.IsZero() {
		return storesuite.Record{}, fmt.Errorf("got %+v, want no labels and a time", sec.Meta)
	}
	return storesuite.Record{
		Name: sec.Name, Value: strings.TrimPrefix(string(sec.Value.Reveal()), marker), Version: sec.Version,
	}, nil
}

func (r records) Replace(ctx context.Context, old storesuite.Record, v string) (storesuite.Record, error) {
	version, err := r.st.Replace(ctx, old.Name, old.Version, value(v))
	return storesuite.Record{Name: old.Name, Value: v, Version: version, Details: old.Details}, err
}

func (r records) Delete(ctx context.Context, old storesuite.Record) error {
	return r.st.Delete(ctx, old.Name)
}

func (r records) List(ctx context.Context, folder string, _ int) ([]storesuite.Record, error) {
	metas, err := r.st.List(ctx, nil)
	var list []storesuite.Record
	for _, m := range metas {
		if strings.HasPrefix(m.Name, folder) {
			list = append(list, storesuite.Record{Name: m.Name, Version: m.Version, Details: fmt.Sprint(m.Labels)})
		}
	}
	return list, err
}

func (r records) OtherCalls(context.Context) storesuite.Calls { return storesuite.Calls{} }

func (r records) WantWrites(*testing.T, int) {}

// marker is part of every value: no error may contain it.
const marker = "vAlUe-"

func value(s string) secrets.Value { return secrets.NewValue([]byte(marker + s)) }

type errorChecker struct {
	secrets.Store
	t *testing.T
}

func (c errorChecker) check(err error) {
	if err != nil && strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), marker) {
		c.t.Errorf("an error contains a value: %v", err)
	}
}

func (c errorChecker) Get(ctx context.Context, name string) (*secrets.Secret, error) {
	sec, err := c.Store.Get(ctx, name)
	c.check(err)
	return sec, err
}

func (c errorChecker) Create(ctx context.Context, name string, v secrets.Value, l map[string]string) (string, error) {
	version, err := c.Store.Create(ctx, name, v, l)
	c.check(err)
	return version, err
}

func (c errorChecker) Replace(ctx context.Context, name, old string, v secrets.Value) (string, error) {
	version, err := c.Store.Replace(ctx, name, old, v)
	c.check(err)
	return version, err
}

func mustCreate(t *testing.T, s secrets.Store, name string, v secrets.Value, labels map[string]string) string {
	t.Helper()
	version, err := s.Create(t.Context(), name, v, labels)
	if err != nil {
		t.Fatalf("create %s: %v", name, err)
	}
	return version
}

func mustReplace(t *testing.T, s secrets.Store, name, old string, v secrets.Value) string {
	t.Helper()
	version, err := s.Replace(t.Context(), name, old, v)
	if err != nil {
		t.Fatalf("replace %s: %v", name, err)
	}
	return version
}

func wantSecret(t *testing.T, s secrets.Store, name, version string, v secrets.Value, labels map[string]string) {
	t.Helper()
	if labels != nil {
		wantLabels(t, s, name, labels)
	}
	got, err := s.Get(t.Context(), name)
	if err != nil {
		t.Fatalf("get %s: %v", name, err)
	}
	if got.Name != name || got.Version != version || !got.Value.Equal(v) || got.Labels != nil || got.Updated.IsZero() {
		t.Errorf("got %+v (right value: %v), want name %s, version %s, no labels, a time",
			got.Meta, got.Value.Equal(v), name, version)
	}
}

func wantLabels(t *testing.T, s secrets.Store, name string, want map[string]string) {
	t.Helper()
	metas, err := s.List(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range metas {
		if m.Name == name && sameLabels(m.Labels, want) {
			return
		}
	}
	t.Errorf("list %+v, want %s with labels %v", metas, name, want)
}

func sameLabels(a, b map[string]string) bool {
	return len(a) == len(b) && secrets.Meta{Labels: a}.Has(b)
}
