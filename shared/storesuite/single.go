package storesuite

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// A slow writer must not overwrite a cluster that was registered anew.
func (s suite[S]) deleteAndCreate(t *testing.T) {
	st := s.open(t)
	const name = "clusters/again"
	var old []Record
	for round := range 3 {
		r := mustCreate(t, st, name, strconv.Itoa(round))
		wantCurrent(t, st, r)
		wantListed(t, st, r)
		_, err := st.Create(t.Context(), name, "exists")
		WantError(t, "create an existing record", err, s.ErrExists)
		for _, o := range old {
			_, err := st.Replace(t.Context(), o, "lost")
			WantError(t, "replace a version from before the deletion", err, s.ErrConflict)
		}
		replaced := mustReplace(t, st, r, "new")
		wantCurrent(t, st, replaced)
		wantListed(t, st, replaced)
		_, err = st.Replace(t.Context(), r, "lost")
		WantError(t, "replace a version that was replaced", err, s.ErrConflict)
		mustDelete(t, st, replaced)
		_, err = st.Get(t.Context(), name)
		WantError(t, "get a deleted record", err, s.ErrNotFound)
		_, err = st.Replace(t.Context(), replaced, "ghost")
		WantError(t, "replace a deleted record", err, s.ErrNotFound)
		WantError(t, "delete a deleted record", st.Delete(t.Context(), replaced), s.ErrNotFound)
		if records, err := st.List(t.Context(), "clusters/", 0); err != nil || len(records) != 0 {
			t.Errorf("list after the deletion: %v, %v; want nothing", records, err)
		}
		old = append(old, r, replaced)
		st.WantWrites(t, 3*(round+1))
	}
}

func (s suite[S]) missing(t *testing.T) {
	st := s.open(t)
	there := mustCreate(t, st, SampleName, "v")
	for _, name := range s.MissingNames {
		missing := Record{Name: name, Version: there.Version}
		_, getErr := st.Get(t.Context(), name)
		_, replaceErr := st.Replace(t.Context(), missing, "w")
		for method, err := range map[string]error{
			"get": getErr, "replace": replaceErr, "delete": st.Delete(t.Context(), missing),
		} {
			WantError(t, method+" "+name, err, s.ErrNotFound)
			if err != nil && !strings.Contains(err.Error(), name) {
				t.Errorf("%s: the error %q does not name %s", method, err, name)
			}
		}
	}
	if records, err := st.List(t.Context(), "nothing/", 0); err != nil || len(records) != 0 {
		t.Errorf("list a folder without records: %v, %v; want nothing", records, err)
	}
	wantCurrent(t, st, there)
	st.WantWrites(t, 1)
}

func (s suite[S]) invalidNames(t *testing.T) {
	st := s.open(t)
	there := mustCreate(t, st, SampleName, "v")
	for _, name := range s.InvalidNames {
		invalid := Record{Name: name, Version: there.Version}
		_, err := st.Get(t.Context(), name)
		WantError(t, fmt.Sprintf("get %q", name), err, s.ErrInvalid)
		_, err = st.Create(t.Context(), name, "v")
		WantError(t, fmt.Sprintf("create %q", name), err, s.ErrInvalid)
		_, err = st.Replace(t.Context(), invalid, "v")
		WantError(t, fmt.Sprintf("replace %q", name), err, s.ErrInvalid)
		WantError(t, fmt.Sprintf("delete %q", name), st.Delete(t.Context(), invalid), s.ErrInvalid)
	}
	wantCurrent(t, st, there)
	st.WantWrites(t, 1)
}
