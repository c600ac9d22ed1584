// Package storetest is what every secrets.Store must do, as tests that each implementation runs.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/secrets"
)

// Config says how to get the stores to test.
type Config struct {
	// New makes an empty store that ends with the test. Each call of the function it returns opens the
	// store once more, as another process would.
	New func(t *testing.T) func() secrets.Store
	// Denied returns a store that holds the secret "there", whose holder may do nothing.
	Denied func(t *testing.T) secrets.Store
	// Throttled returns a store that holds the secret "there", and refuses the next n calls of whatever it
	// is made of because there were too many. Nil for a store that knows no such thing.
	Throttled func(t *testing.T, n int) secrets.Store
}

// Run runs the suite.
func Run(t *testing.T, c Config) {
	s := suite{c}
	tests := map[string]func(*testing.T){
		"one secret":                s.oneSecret,
		"missing":                   s.missing,
		"versions":                  s.versions,
		"values":                    s.values,
		"invalid":                   s.invalid,
		"labels":                    s.labels,
		"delete and create":         s.deleteAndCreate,
		"eight creators":            s.eightCreators,
		"eight writers":             s.eightWriters,
		"four delete, four replace": s.fourDelete,
		"count up":                  s.countUp,
		"list under change":         s.listUnderChange,
		"ended context":             s.endedContext,
		"permission refused":        s.denied,
		"throttled for a while":     s.throttledForAWhile,
		"throttled all of the time": s.throttledAllOfTheTime,
	}
	for name, test := range tests {
		if c.Throttled == nil && strings.HasPrefix(name, "throttled") {
			continue
		}
		t.Run(name, test)
	}
}

type suite struct{ c Config }

// marker is part of every value: no error may hold it.
const marker = "vAlUe-"

func value(s string) secrets.Value { return secrets.NewValue([]byte(marker + s)) }

// open makes a store whose errors are checked.
func (s suite) open(t *testing.T) secrets.Store { return discreet{s.c.New(t)(), t} }

// discreet fails the test when an error holds a value.
type discreet struct {
	secrets.Store
	t *testing.T
}

func (d discreet) check(err error) {
	if err != nil && strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), marker) {
		d.t.Errorf("an error holds a value: %v", err)
	}
}

func (d discreet) Get(ctx context.Context, name string) (*secrets.Secret, error) {
	sec, err := d.Store.Get(ctx, name)
	d.check(err)
	return sec, err
}

func (d discreet) Create(ctx context.Context, name string, v secrets.Value, l map[string]string) (string, error) {
	version, err := d.Store.Create(ctx, name, v, l)
	d.check(err)
	return version, err
}

func (d discreet) Replace(ctx context.Context, name, old string, v secrets.Value) (string, error) {
	version, err := d.Store.Replace(ctx, name, old, v)
	d.check(err)
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

// wantSecret reads a secret and compares everything but the time, which must be there; and the labels, where
// labels is not nil.
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

func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

// CountUp replaces the secret name, a number, by the next number, n times, whoever else does. Others
// that do the same may live in other processes.
func CountUp(ctx context.Context, s secrets.Store, name string, n int) error {
	for range n {
		for {
			sec, err := s.Get(ctx, name)
			if err != nil {
				return err
			}
			i, err := strconv.Atoi(string(sec.Value.Reveal()))
			if err != nil {
				return errors.New("the secret is no number")
			}
			_, err = s.Replace(ctx, name, sec.Version, secrets.NewValue(strconv.AppendInt(nil, int64(i+1), 10)))
			if err == nil {
				break
			}
			if !errors.Is(err, secrets.ErrConflict) {
				return err
			}
		}
	}
	return nil
}
