package keys

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/clusterpass/clusterpass/shared/objects"
	objectsdir "github.com/clusterpass/clusterpass/shared/objects/dir"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/storetest"
	"github.com/clusterpass/clusterpass/shared/secrets"
	secretsdir "github.com/clusterpass/clusterpass/shared/secrets/dir"
)

func openStores(t *testing.T) (secrets.Store, objects.Store) {
	t.Helper()
	dir := t.TempDir()
	sec, err := secretsdir.Open(filepath.Join(dir, "secrets"))
	if err != nil {
		t.Fatal(err)
	}
	obj, err := objectsdir.Open(filepath.Join(dir, "objects"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = obj.Close() })
	return sec, obj
}

func ensure(t *testing.T, sec secrets.Store, obj objects.Store) *recording.Signer {
	t.Helper()
	s, err := Ensure(t.Context(), sec, obj)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantVerified records a session with a signer and verifies it with the published keys.
func wantVerified(t *testing.T, signer *recording.Signer, obj objects.Store) {
	t.Helper()
	store := &storetest.Memory{}
	s, err := recording.New(recording.Config{Store: store, Signer: signer}).Begin(t.Context(), recording.Info{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	public, err := Published(t.Context(), obj)
	if err != nil {
		t.Fatal(err)
	}
	r, err := recording.Verify(t.Context(), store, s.ID(), recording.NewKeys(public...))
	if err != nil || !r.Complete() {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestProgramsShareKey fails if two bridges that start at once sign with keys of which one is not published.
func TestProgramsShareKey(t *testing.T) {
	sec, obj := openStores(t)
	signers := make([]*recording.Signer, 8)
	var all sync.WaitGroup
	for i := range signers {
		all.Go(func() {
			var err error
			if signers[i], err = Ensure(t.Context(), sec, obj); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, s := range signers {
		wantVerified(t, s, obj)
	}
	if public, err := Published(t.Context(), obj); err != nil || len(public) != 1 {
		t.Errorf("published %v, %v; want one key", public, err)
	}
	value, err := obj.Get(t.Context(), Name)
	if err != nil || bytes.Contains(value.Value, []byte(`"d"`)) {
		t.Errorf("the object has a private key: %v", err)
	}
}

// TestReplacedKeyStillVerifies fails if recordings can no longer be proved after the key was replaced.
func TestReplacedKeyStillVerifies(t *testing.T) {
	sec, obj := openStores(t)
	old := ensure(t, sec, obj)
	if err := sec.Delete(t.Context(), Name); err != nil {
		t.Fatal(err)
	}
	next := ensure(t, sec, obj)
	wantVerified(t, old, obj)
	wantVerified(t, next, obj)
	if public, err := Published(t.Context(), obj); err != nil || len(public) != 2 {
		t.Errorf("published %v, %v; want two keys", public, err)
	}
}

// TestRotate fails if the old key still signs after it was replaced, or no longer verifies.
func TestRotate(t *testing.T) {
	sec, obj := openStores(t)
	old := ensure(t, sec, obj)
	o, err := obj.Get(t.Context(), Name)
	if err == nil { // the old key must be published even if that failed before
		_, err = obj.Delete(t.Context(), Name, o.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	id, err := Rotate(t.Context(), sec, obj)
	if err != nil {
		t.Fatal(err)
	}
	public, err := Published(t.Context(), obj)
	if err != nil || len(public) != 2 || recording.KeyID(public[1]) != id {
		t.Fatalf("published %v, %v; want two keys, the last of which is %s", public, err, id)
	}
	wantVerified(t, old, obj)
	wantVerified(t, ensure(t, sec, obj), obj)
	set, _, err := ensureSecret(t.Context(), sec)
	if err != nil || len(set.Keys) != 1 || set.Keys[0].Key.KeyID != id {
		t.Errorf("the secret has %d keys, %v; want only the new one", len(set.Keys), err)
	}
}

// TestRotateInANewStore fails if the command has no key to replace.
func TestRotateInANewStore(t *testing.T) {
	sec, obj := openStores(t)
	if _, err := Rotate(t.Context(), sec, obj); err != nil {
		t.Fatal(err)
	}
	wantVerified(t, ensure(t, sec, obj), obj)
}

// TestRotatesAtOnce fails if two rotations at once lose a public key.
func TestRotatesAtOnce(t *testing.T) {
	sec, obj := openStores(t)
	signers := []*recording.Signer{ensure(t, sec, obj)}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := Rotate(t.Context(), sec, obj); err != nil && !errors.Is(err, secrets.ErrConflict) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, s := range append(signers, ensure(t, sec, obj)) {
		wantVerified(t, s, obj)
	}
}

// TestRepublishes fails if a program that was interrupted before it published its key never does.
func TestRepublishes(t *testing.T) {
	sec, obj := openStores(t)
	signer := ensure(t, sec, obj)
	o, err := obj.Get(t.Context(), Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := obj.Delete(t.Context(), Name, o.Revision); err != nil {
		t.Fatal(err)
	}
	if public, err := Published(t.Context(), obj); err != nil || len(public) != 0 {
		t.Errorf("published %v, %v; want none", public, err)
	}
	ensure(t, sec, obj)
	wantVerified(t, signer, obj)
}

// TestKeyMakesNoPass fails if the key of recordings can sign a pass. The issuer must refuse it as a key of passes.
func TestKeyMakesNoPass(t *testing.T) {
	sec, obj := openStores(t)
	ensure(t, sec, obj)
	stored, err := sec.Get(t.Context(), Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sec.Create(t.Context(), passes.PassKeys, stored.Value, nil); err != nil {
		t.Fatal(err)
	}
	issuer := &passes.Issuer{Secrets: sec, Objects: obj, URL: "https://gateway.example"}
	if err := issuer.Publish(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot sign") {
		t.Errorf("publish the key as a key of passes: %v", err)
	}
}

// TestDamagedKeysAreNotQuoted fails if an error contains a part of a private key, or a wrong key is used.
func TestDamagedKeysAreNotQuoted(t *testing.T) {
	for name, value := range map[string]string{
		"no JSON": "hunter2", "no key": `{"keys":[]}`,
		"a key of another kind": `{"keys":[{"key":{"kty":"oct","k":"aHVudGVyMg"}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			sec, obj := openStores(t)
			if _, err := sec.Create(t.Context(), Name, secrets.NewValue([]byte(value)), nil); err != nil {
				t.Fatal(err)
			}
			_, err := Ensure(t.Context(), sec, obj)
			if err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "aHVudGVyMg") {
				t.Errorf("%v", err)
			}
			if _, err := obj.Create(t.Context(), Name, []byte(value)); err != nil {
				t.Fatal(err)
			}
			if public, err := Published(t.Context(), obj); name != "no key" && err == nil {
				t.Errorf("published %v", public)
			}
		})
	}
}

// TestEndedContext fails if a gateway that cannot publish its key records with it.
func TestEndedContext(t *testing.T) {
	sec, obj := openStores(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Ensure(ctx, sec, obj); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
}
