package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/storesuite"
)

// fourDelete checks that one of several deletions succeeds beside writes, and no caller gets ErrUnavailable.
func (s suite) fourDelete(t *testing.T) {
	stores := s.openAll(t)
	const name = "races/delete"
	for range 6 {
		version := mustCreate(t, stores[0], name, value("start"), nil)
		deletes := func(i int) bool { return i%2 == 0 }
		winners := storesuite.Race(t, stores, secrets.ErrNotFound, func(i int, st secrets.Store) error {
			if deletes(i) {
				return st.Delete(t.Context(), name)
			}
			_, err := st.Replace(t.Context(), name, version, value(fmt.Sprint(i)))
			if errors.Is(err, secrets.ErrConflict) {
				return secrets.ErrNotFound // either will do: it was replaced, or deleted, before
			}
			return err
		})
		replaced := slices.DeleteFunc(slices.Clone(winners), deletes)
		if len(replaced) > 1 || len(winners)-len(replaced) != 1 {
			t.Fatalf("winners %v, want one of those who delete, who are the even ones, and at most one of the others", winners)
		}
		_, err := stores[0].Get(t.Context(), name)
		storesuite.WantError(t, "get", err, secrets.ErrNotFound)
	}
}

func (s suite) labels(t *testing.T) {
	st := s.open(t)
	all := map[string]map[string]string{
		"clusters/a": {"env": "prod", "example.com/team": "Red_1.x"},
		"clusters/b": {"env": "prod", "empty": ""},
		"clusters/c": {"env": "test"},
		"keys/a":     nil,
	}
	for name, labels := range all {
		version := mustCreate(t, st, name, value("1"), labels)
		version = mustReplace(t, st, name, version, value("2"))
		wantSecret(t, st, name, version, value("2"), labels)
	}
	for _, tt := range []struct {
		labels map[string]string
		want   []string
	}{
		{nil, []string{"clusters/a", "clusters/b", "clusters/c", "keys/a"}},
		{map[string]string{}, []string{"clusters/a", "clusters/b", "clusters/c", "keys/a"}},
		{map[string]string{"env": "prod"}, []string{"clusters/a", "clusters/b"}},
		{map[string]string{"env": "prod", "example.com/team": "Red_1.x"}, []string{"clusters/a"}},
		{map[string]string{"empty": ""}, []string{"clusters/b"}},
		{map[string]string{"env": ""}, nil},
		{map[string]string{"env": "pro"}, nil},
		{map[string]string{"Env": "prod"}, nil},
		{map[string]string{"env": "test", "example.com/team": "Red_1.x"}, nil},
	} {
		metas, err := st.List(t.Context(), tt.labels)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range metas {
			got = append(got, m.Name)
			if !sameLabels(m.Labels, all[m.Name]) || m.Version == "" || m.Updated.IsZero() {
				t.Errorf("%+v, want labels %v, a version, a time", m, all[m.Name])
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("list %v: %v, want %v", tt.labels, got, tt.want)
		}
	}
}
