package storetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/storesuite"
)

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
		storesuite.WantError(t, "replace version "+old, err, secrets.ErrConflict)
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
	for name, v := range map[string]secrets.Value{
		"no value":        {},
		"an empty value":  secrets.NewValue([]byte{}),
		"a value too big": secrets.NewValue(make([]byte, secrets.MaxValue+1)),
	} {
		_, err := st.Create(t.Context(), "new", v, nil)
		storesuite.WantError(t, "create with "+name, err, secrets.ErrInvalid)
		_, err = st.Replace(t.Context(), "there", version, v)
		storesuite.WantError(t, "replace with "+name, err, secrets.ErrInvalid)
	}
	many := map[string]string{}
	for i := range secrets.MaxLabels + 1 {
		many[fmt.Sprintf("k%d", i)] = "v"
	}
	for _, labels := range []map[string]string{
		many, {"": "v"}, {"-a": "v"}, {"a": "v\n"}, {"a": "ž"}, {"a": "b c"}, {"a/b/c": "d"}, {strings.Repeat("a", 200): "v"},
	} {
		_, err := st.Create(t.Context(), "new", value("v"), labels)
		storesuite.WantError(t, fmt.Sprintf("create with %d labels", len(labels)), err, secrets.ErrInvalid)
	}
	_, err := st.Get(t.Context(), "new")
	storesuite.WantError(t, "get what was refused", err, secrets.ErrNotFound)
	wantSecret(t, st, "there", version, value("v"), nil)
}
