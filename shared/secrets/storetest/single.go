package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/secrets"
)

func (s suite) oneSecret(t *testing.T) {
	st := s.open(t)
	const name = "clusters/member1"
	v1 := mustCreate(t, st, name, value("one"), nil)
	wantSecret(t, st, name, v1, value("one"), nil)
	_, err := st.Create(t.Context(), name, value("again"), nil)
	wantError(t, "create what exists", err, secrets.ErrExists)
	v2 := mustReplace(t, st, name, v1, value("two"))
	wantSecret(t, st, name, v2, value("two"), nil)
	if err := st.Delete(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	_, err = st.Get(t.Context(), name)
	wantError(t, "get what was deleted", err, secrets.ErrNotFound)
	metas, err := st.List(t.Context(), nil)
	if err != nil || len(metas) != 0 {
		t.Errorf("list after the delete: %v, %v; want nothing", metas, err)
	}
}

func (s suite) missing(t *testing.T) {
	st := s.open(t)
	mustCreate(t, st, "a/there", value("v"), nil)
	for _, name := range []string{"missing", "a/missing", "a", "a/the", "a/there2", "b/there"} {
		_, err := st.Get(t.Context(), name)
		wantError(t, "get "+name, err, secrets.ErrNotFound)
		_, err = st.Replace(t.Context(), name, "1", value("w"))
		wantError(t, "replace "+name, err, secrets.ErrNotFound)
		wantError(t, "delete "+name, st.Delete(t.Context(), name), secrets.ErrNotFound)
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error %q does not name %s", err, name)
		}
	}
}

func (s suite) versions(t *testing.T) {
	st := s.open(t)
	const name = "keys/signing"
	versions := []string{mustCreate(t, st, name, value("0"), nil)}
	// Equal values too make new versions, and a value that comes back does not bring its version back.
	for _, v := range []string{"1", "1", "0", "0", "1"} {
		versions = append(versions, mustReplace(t, st, name, versions[len(versions)-1], value(v)))
	}
	seen := map[string]bool{}
	for _, v := range versions {
		if v == "" || seen[v] {
			t.Fatalf("versions %q: want every one new", versions)
		}
		seen[v] = true
	}
	current := versions[len(versions)-1]
	for _, old := range append(versions[:len(versions)-1], "", "no-version", "00000000-0000-4000-8000-000000000000") {
		_, err := st.Replace(t.Context(), name, old, value("lost"))
		wantError(t, "replace version "+old, err, secrets.ErrConflict)
	}
	wantSecret(t, st, name, current, value("1"), nil)
	metas, err := st.List(t.Context(), nil)
	if err != nil || len(metas) != 1 || metas[0].Version != current {
		t.Errorf("list: %v, %v; want the version %s", metas, err, current)
	}
}

func (s suite) values(t *testing.T) {
	st := s.open(t)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for name, v := range map[string]string{
		"binary":     string(every),
		"kubeconfig": "apiVersion: v1\nkind: Config\n",
		"json":       `{"a": "\u0000"}`,
		"space":      " \n\t ",
		"crlf":       "a\r\nb\r\n",
		"comment":    "# clusterpass labels: {}\n# clusterpass labels: ",
		"unicode":    "žluťoučký 🐎",
		"one-byte":   "x",
		"big":        strings.Repeat("k", secrets.MaxValue),
		"big-binary": strings.Repeat("\xff", secrets.MaxValue),
	} {
		for _, labels := range []map[string]string{nil, {"a": "b"}} {
			name := fmt.Sprintf("%s/%d", name, len(labels))
			want := secrets.NewValue([]byte(v))
			version := mustCreate(t, st, name, want, labels)
			wantSecret(t, st, name, version, want, labels)
			version = mustReplace(t, st, name, version, value("other"))
			version = mustReplace(t, st, name, version, want)
			wantSecret(t, st, name, version, want, labels)
		}
	}
}

func (s suite) invalid(t *testing.T) {
	st := s.open(t)
	version := mustCreate(t, st, "there", value("v"), nil)
	for _, name := range []string{"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a/.b", "A", "a b", "a_b", "a\x00", "a\n", "-a", "a-", "a/-b", "ž",
		strings.Repeat("a", 254)} {
		_, err := st.Get(t.Context(), name)
		wantError(t, fmt.Sprintf("get %q", name), err, secrets.ErrInvalid)
		_, err = st.Create(t.Context(), name, value("v"), nil)
		wantError(t, fmt.Sprintf("create %q", name), err, secrets.ErrInvalid)
		_, err = st.Replace(t.Context(), name, version, value("v"))
		wantError(t, fmt.Sprintf("replace %q", name), err, secrets.ErrInvalid)
		wantError(t, fmt.Sprintf("delete %q", name), st.Delete(t.Context(), name), secrets.ErrInvalid)
	}
	for what, v := range map[string]secrets.Value{
		"no value":        {},
		"an empty value":  secrets.NewValue([]byte{}),
		"a value too big": secrets.NewValue(make([]byte, secrets.MaxValue+1)),
	} {
		_, err := st.Create(t.Context(), "new", v, nil)
		wantError(t, "create with "+what, err, secrets.ErrInvalid)
		_, err = st.Replace(t.Context(), "there", version, v)
		wantError(t, "replace with "+what, err, secrets.ErrInvalid)
	}
	many := map[string]string{}
	for i := range secrets.MaxLabels + 1 {
		many[fmt.Sprintf("k%d", i)] = "v"
	}
	for _, labels := range []map[string]string{many, {"": "v"}, {"-a": "v"}, {"a": "v\n"}, {"a": "ž"}, {"a": "b c"}, {"a/b/c": "d"}, {strings.Repeat("a", 200): "v"}} {
		_, err := st.Create(t.Context(), "new", value("v"), labels)
		wantError(t, fmt.Sprintf("create with %d labels", len(labels)), err, secrets.ErrInvalid)
	}
	_, err := st.Get(t.Context(), "new")
	wantError(t, "get what was refused", err, secrets.ErrNotFound)
	wantSecret(t, st, "there", version, value("v"), nil)
}

func (s suite) deleteAndCreate(t *testing.T) {
	st := s.open(t)
	const name = "clusters/again"
	var old []string
	for i := range 3 {
		v, labels := value(fmt.Sprint(i)), map[string]string{"round": fmt.Sprint(i), fmt.Sprintf("only-%d", i): ""}
		version := mustCreate(t, st, name, v, labels)
		wantSecret(t, st, name, version, v, labels)
		for _, o := range old {
			_, err := st.Replace(t.Context(), name, o, value("lost"))
			wantError(t, "replace a version from before the deletion", err, secrets.ErrConflict)
		}
		old = append(old, version)
		if err := st.Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		_, err := st.Get(t.Context(), name)
		wantError(t, "get", err, secrets.ErrNotFound)
		_, err = st.Replace(t.Context(), name, version, value("ghost"))
		wantError(t, "replace", err, secrets.ErrNotFound)
		wantError(t, "delete again", st.Delete(t.Context(), name), secrets.ErrNotFound)
	}
}

func (s suite) endedContext(t *testing.T) {
	st := s.open(t)
	version := mustCreate(t, st, "there", value("v"), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := st.Get(ctx, "there")
	wantError(t, "get", err, context.Canceled)
	_, err = st.List(ctx, nil)
	wantError(t, "list", err, context.Canceled)
	_, err = st.Create(ctx, "new", value("v"), nil)
	wantError(t, "create", err, context.Canceled)
	_, err = st.Replace(ctx, "there", version, value("w"))
	wantError(t, "replace", err, context.Canceled)
	wantError(t, "delete", st.Delete(ctx, "there"), context.Canceled)
	wantSecret(t, st, "there", version, value("v"), nil)
}
