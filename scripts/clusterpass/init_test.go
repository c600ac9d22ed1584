package main

import (
	"path/filepath"
	"testing"

	searchv1alpha1 "github.com/clusterpass/clusterpass/shared/api/search/v1alpha1"
	objectsdir "github.com/clusterpass/clusterpass/shared/objects/dir"
)

// TestInitCreatesRegistry fails if the fleet of a new installation is empty, or if the control-plane cluster loses its
// kinds to a registry.
func TestInitCreatesRegistry(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want int
	}{
		"new": {[]string{"init"}, 1}, "with a control-plane cluster": {[]string{"init", "--control-plane", "cp"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for range 2 {
				if out, err := (clusterpass{"dir:" + dir}).run(t, tt.args...); err != nil {
					t.Fatalf("%s%v", out, err)
				}
			}
			store, err := objectsdir.Open(filepath.Join(dir, "objects"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = store.Close() }()
			page, err := store.List(t.Context(), searchv1alpha1.Prefix, 0, "")
			if err != nil || len(page.Objects) != tt.want {
				t.Errorf("%d registries, %v; want %d", len(page.Objects), err, tt.want)
			}
		})
	}
}
