package stores

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	searchv1alpha1 "github.com/clusterpass/clusterpass/shared/api/search/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/objects/dir"
	"github.com/clusterpass/clusterpass/shared/passes"
	secretsdir "github.com/clusterpass/clusterpass/shared/secrets/dir"
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
	// publish does what a gateway does when it starts.
	publish := func(t *testing.T, s objects.Store, signer passes.Signer) {
		t.Helper()
		secrets, err := secretsdir.Open(filepath.Join(t.TempDir(), "secrets"))
		if err == nil {
			i := passes.Issuer{Objects: s, Secrets: secrets, Signer: signer, Now: time.Now}
			err = i.PublishAll(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		before func(t *testing.T, s objects.Store)
		want   bool
	}{
		"new": {create(), true},
		"a gateway started": {func(t *testing.T, s objects.Store) {
			publish(t, s, nil)
			publish(t, s, nil)
		}, true},
		"a bridge and a gateway with a key in KMS started": {func(t *testing.T, s objects.Store) {
			publish(t, s, kmsKey{})
			publish(t, s, newKMSKey(t))
		}, true},
		"it got an ID":         {create("installation/id", "keys/passes"), true},
		"a cluster was added":  {create("clusters/a"), false},
		"a cluster was joined": {create("keys/passes", "installation/id", "clusters/a"), false},
		"a role was created":   {create("keys/passes", "clusterroles/r"), false},
		"a cluster was removed later": {func(t *testing.T, s objects.Store) {
			create("clusters/a", "keys/passes")(t, s)
			if err := CreateDefaultRegistry(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			remove(t, s, "clusters/a")
		}, false},
		"a registry was created":         {create("resourceregistries/pods"), false},
		"a recording policy was created": {create("recordingpolicies/all"), false},
		"the registry was deleted": {func(t *testing.T, s objects.Store) {
			publish(t, s, nil)
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

// kmsKey is a key in KMS. Without public, the program may not use it.
type kmsKey struct{ public *ecdsa.PublicKey }

func newKMSKey(t *testing.T) kmsKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return kmsKey{&key.PublicKey}
}

func (k kmsKey) Public(context.Context) (string, *ecdsa.PublicKey, error) {
	if k.public == nil {
		return "", nil, passes.ErrNotSigner
	}
	return "arn:aws:kms:eu-central-1:123456789012:key/k", k.public, nil
}

func (kmsKey) Sign(context.Context, []byte) ([]byte, error) { return nil, passes.ErrNotSigner }

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
