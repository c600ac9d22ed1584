package stores

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	searchv1alpha1 "github.com/clusterpass/clusterpass/shared/api/search/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/objects/dir"
)

const defaultKey = searchv1alpha1.Prefix + DefaultRegistry

// TestDefaultRegistry fails if a new fleet is empty, or if an existing fleet changes or a deleted registry returns.
func TestDefaultRegistry(t *testing.T) {
	create := func(keys ...string) func(t *testing.T, s objects.Store) {
		return func(t *testing.T, s objects.Store) {
			t.Helper()
			for _, key := range keys {
				if _, err := s.Create(t.Context(), key, []byte(`{}`)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	remove := func(t *testing.T, s objects.Store, key string) {
		t.Helper()
		o, err := s.Get(t.Context(), key)
		if err == nil {
			_, err = s.Delete(t.Context(), key, o.Revision)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		before func(t *testing.T, s objects.Store)
		want   bool
	}{
		"new":                    {create(), true},
		"clusters were added":    {create("clusters/a", "clusters/b"), true},
		"a cluster was joined":   {create("installation/id", "clusters/a"), true},
		"a role was created":     {create("clusters/a", "clusterroles/r"), false},
		"a registry was created": {create("resourceregistries/pods"), false},
		"a cluster was removed": {func(t *testing.T, s objects.Store) {
			create("clusters/a")(t, s)
			remove(t, s, "clusters/a")
		}, false},
		"the registry was deleted": {func(t *testing.T, s objects.Store) {
			create("clusters/a")(t, s)
			if err := CreateDefaultRegistry(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			remove(t, s, defaultKey)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := openDir(t)
			tt.before(t, s)
			if err := CreateDefaultRegistry(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			page, err := s.List(t.Context(), defaultKey, 0, "")
			if err != nil || len(page.Objects) == 1 != tt.want {
				t.Errorf("%d registries, %v; want one: %t", len(page.Objects), err, tt.want)
			}
		})
	}
}

func openDir(t *testing.T) *dir.Store {
	t.Helper()
	s, err := dir.Open(filepath.Join(t.TempDir(), "objects"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestDefaultRegistryCoversEverything fails if the fleet omits a kind or a cluster, or if programs that start at once
// fail.
func TestDefaultRegistryCoversEverything(t *testing.T) {
	s := openDir(t)
	var starts sync.WaitGroup
	for range 8 {
		starts.Go(func() {
			if err := CreateDefaultRegistry(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
	o, err := s.Get(t.Context(), defaultKey)
	if err != nil {
		t.Fatal(err)
	}
	var r searchv1alpha1.ResourceRegistry
	if err := json.Unmarshal(o.Value, &r); err != nil || r.Name != DefaultRegistry || r.UID == "" ||
		r.CreationTimestamp.IsZero() || r.Kind != searchv1alpha1.Kind {
		t.Errorf("%s, %v", o.Value, err)
	}
	c := &clusterv1alpha1.Cluster{}
	c.Name = "any"
	for _, kind := range []registry.Kind{
		{APIVersion: "v1", Resource: "nodes"}, {APIVersion: "example.org/v1", Resource: "toys", Kind: "Toy"},
	} {
		if scope := registry.ScopeOf([]searchv1alpha1.ResourceRegistry{r}, c, kind); !scope.All {
			t.Errorf("%v has the scope %s", kind, fmt.Sprint(scope))
		}
	}
}
