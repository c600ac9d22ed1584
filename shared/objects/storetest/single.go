package storetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/storesuite"
)

func (s suite) oneObject(t *testing.T) {
	st := s.open(t)
	st.wantWrites(t, 0)
	const key = "clusters/member1"
	made := mustCreate(t, st, key, "one")
	if got, want := st.show(made), `"clusters/member1"="one"(3) 1/1`; got != want {
		t.Errorf("created %s, want %s", got, want)
	}
	st.wantWrites(t, 1)
	_, err := st.Create(t.Context(), key, []byte("again"))
	storesuite.WantError(t, "create what exists", err, objects.ErrExists)
	updated := mustUpdate(t, st, key, "two", made.Revision)
	if got, want := st.show(updated), `"clusters/member1"="two"(3) 1/2`; got != want {
		t.Errorf("updated %s, want %s", got, want)
	}
	got, err := st.Get(t.Context(), key)
	if err != nil || show(got) != show(updated) {
		t.Errorf("get %s, %v; want %s", show(got), err, show(updated))
	}
	deleted := mustDelete(t, st, key, updated.Revision)
	if got, want := st.show(deleted), `"clusters/member1"="two"(3) 1/3`; got != want {
		t.Errorf("deleted %s, want %s", got, want)
	}
	_, err = st.Get(t.Context(), key)
	storesuite.WantError(t, "get what was deleted", err, objects.ErrNotFound)
	if got, want := st.show(mustCreate(t, st, key, "three")), `"clusters/member1"="three"(5) 4/4`; got != want {
		t.Errorf("created again %s, want %s", got, want)
	}
	if !slices.IsSorted(st.writes) || len(slices.Compact(slices.Clone(st.writes))) != 4 || st.writes[0] <= st.start {
		t.Errorf("writes have the revisions %v after %d, want increasing ones", st.writes, st.start)
	}
	st.wantWrites(t, 4)
}

func (s suite) conflicts(t *testing.T) {
	st := s.open(t)
	first := mustCreate(t, st, "things/a", "1")
	other := mustCreate(t, st, "things/b", "1")
	current := mustUpdate(t, st, "things/a", "2", first.Revision)
	for _, rev := range []uint64{0, first.Revision, other.Revision, current.Revision + 1, 1 << 60} {
		_, err := st.Update(t.Context(), "things/a", []byte("x"), rev)
		storesuite.WantError(t, fmt.Sprintf("update revision %d", rev), err, objects.ErrConflict)
		_, err = st.Delete(t.Context(), "things/a", rev)
		storesuite.WantError(t, fmt.Sprintf("delete revision %d", rev), err, objects.ErrConflict)
	}
	// Refused writes changed nothing.
	st.wantWrites(t, 3)
	mustDelete(t, st, "things/a", current.Revision)
	mustCreate(t, st, "things/a", "1")
	_, err := st.Update(t.Context(), "things/a", []byte("x"), current.Revision)
	storesuite.WantError(t, "update a revision from before the deletion", err, objects.ErrConflict)
	got, err := st.Get(t.Context(), "things/a")
	if want := `"things/a"="1"(1) 5/5`; err != nil || st.show(got) != want {
		t.Errorf("get %s, %v; want %s", st.show(got), err, want)
	}
}

func (s suite) values(t *testing.T) {
	st := s.c.New(t)()
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for name, v := range map[string][]byte{
		"empty":  {},
		"binary": every,
		"json":   []byte(`{"a":"\u0000"}`),
		"big":    bytes.Repeat([]byte{0xff}, objects.MaxValue),
	} {
		key := "values/" + name
		o := mustCreate(t, st, key, string(v))
		o = mustUpdate(t, st, key, "other", o.Revision)
		// The values before and after are both as big as they may be.
		o = mustUpdate(t, st, key, string(v), o.Revision)
		o = mustUpdate(t, st, key, string(v), o.Revision)
		got, err := st.Get(t.Context(), key)
		if err != nil || show(got) != show(o) || !bytes.Equal(got.Value, v) {
			t.Errorf("get %s, %v; want %s", show(got), err, show(o))
		}
		deleted := mustDelete(t, st, key, o.Revision)
		if !bytes.Equal(deleted.Value, v) {
			t.Errorf("deleted %s, want the last state", show(deleted))
		}
	}
	// A caller may change the slice after the call.
	b := []byte("mine")
	if _, err := st.Create(t.Context(), "values/mine", b); err != nil {
		t.Fatal(err)
	}
	b[0] = 'x'
	if got, err := st.Get(t.Context(), "values/mine"); err != nil || string(got.Value) != "mine" {
		t.Errorf("get %s, %v; want what was given then", show(got), err)
	}
}

func (s suite) keys(t *testing.T) {
	st := s.c.New(t)()
	keys := []string{
		"a/b", "a/b/c", "a/bc", "a/~", "a.b/c", "ab/c", "clusterroles/System:Node%2F*", "clusterroles/system:node",
		"clusterroles/with space", "clusterroles/žluťoučký 🐎", "clusters/member1", "clusters/member10", "clusters.x/y",
	}
	for _, k := range keys {
		mustCreate(t, st, k, "value of "+k)
	}
	for _, k := range keys {
		if got, err := st.Get(t.Context(), k); err != nil || string(got.Value) != "value of "+k {
			t.Errorf("get %s: %s, %v", k, show(got), err)
		}
	}
	for prefix, want := range map[string]string{
		"a/":                  "a/b a/b/c a/bc a/~",
		"a/b":                 "a/b a/b/c a/bc",
		"a/b/":                "a/b/c",
		"ab/":                 "ab/c",
		"clusters/member1":    "clusters/member1 clusters/member10",
		"clusters/member2":    "",
		"clusterroles/s":      "clusterroles/system:node",
		"clusterroles/System": "clusterroles/System:Node%2F*",
		"clusterroles/ž":      "clusterroles/žluťoučký 🐎",
	} {
		page, err := st.List(t.Context(), prefix, 0, "")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range page.Objects {
			got = append(got, o.Key)
			if string(o.Value) != "value of "+o.Key {
				t.Errorf("list %s: %s", prefix, show(o))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("list %s: %q, want %q", prefix, got, want)
		}
	}
}

func (s suite) invalid(t *testing.T) {
	st := s.open(t)
	there := mustCreate(t, st, "things/there", "v")
	for _, prefix := range []string{"", "things", "/", "Things/", "things/\x00"} {
		_, err := st.List(t.Context(), prefix, 0, "")
		storesuite.WantError(t, fmt.Sprintf("list %q", prefix), err, objects.ErrInvalid)
	}
	elsewhere := objects.Continue{Revision: 1, After: "other/x"}.String()
	for _, cont := range []string{"x", ".", "MQ.", elsewhere, elsewhere + "="} {
		_, err := st.List(t.Context(), "things/", 1, cont)
		storesuite.WantError(t, fmt.Sprintf("continue %q", cont), err, objects.ErrInvalid)
	}
	tooBig := make([]byte, objects.MaxValue+1)
	_, err := st.Create(t.Context(), "things/new", tooBig)
	storesuite.WantError(t, "create too big a value", err, objects.ErrInvalid)
	_, err = st.Update(t.Context(), "things/there", tooBig, there.Revision)
	storesuite.WantError(t, "update with too big a value", err, objects.ErrInvalid)
	st.wantWrites(t, 1)
}
