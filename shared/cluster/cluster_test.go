package cluster

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/status"
)

type stores struct {
	mu      sync.Mutex
	object  string // object of cluster m; "" if it does not exist
	rev     uint64
	created uint64
	secrets map[string]secrets.Secret
	objErr  error
	secErr  error
	reads   int           // of objects
	hangs   chan struct{} // if not nil, reads of secrets block until it is closed
}

type objectStore struct{ *stores }

func (s objectStore) Get(_ context.Context, key string) (objects.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.objErr != nil {
		return objects.Object{}, s.objErr
	}
	if key != "clusters/m" || s.object == "" {
		return objects.Object{}, objects.ErrNotFound
	}
	return objects.Object{Key: key, Value: []byte(s.object), Revision: s.rev, Created: s.created}, nil
}

func (s objectStore) List(_ context.Context, prefix string, _ int, _ string) (objects.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.objErr != nil {
		return objects.Page{}, s.objErr
	}
	page := objects.Page{}
	if s.object != "" {
		page.Objects = []objects.Object{{Key: prefix + "m", Value: []byte(s.object), Revision: s.rev}}
	}
	return page, nil
}

type secretStore struct{ *stores }

func (s secretStore) Get(_ context.Context, name string) (*secrets.Secret, error) {
	s.mu.Lock()
	if hangs := s.hangs; hangs != nil {
		s.mu.Unlock()
		<-hangs
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	if s.secErr != nil {
		return nil, s.secErr
	}
	sec, ok := s.secrets[name]
	if !ok {
		return nil, secrets.ErrNotFound
	}
	return &sec, nil
}

func (s *stores) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func newMembers(t *testing.T) (*Members, *stores, func(time.Duration), func(token string) secrets.Secret) {
	t.Helper()
	return newMembersPatient(t, 0) // without patience, a slow machine cannot look like a slow store
}

func newMembersPatient(t *testing.T,
	patience time.Duration) (*Members, *stores, func(time.Duration), func(token string) secrets.Secret) {
	t.Helper()
	ca, err := pki.LoadCA(filepath.Join(t.TempDir(), "ca"), "ca")
	if err != nil {
		t.Fatal(err)
	}
	secret := func(token string) secrets.Secret {
		return secrets.Secret{Meta: secrets.Meta{Version: token}, Value: secrets.NewValue(fmt.Appendf(nil,
			`{contexts: [{name: x, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "https://10.0.0.1", certificate-authority-data: %s}}],
users: [{name: u, user: {token: %s}}]}`,
			base64.StdEncoding.EncodeToString(ca.PEM()), token))}
	}
	s := &stores{object: `{"spec":{"secretRef":{"name":"clusters/m.1"}}}`, rev: 1,
		secrets: map[string]secrets.Secret{"clusters/m.1": secret("one")}}
	fresh := Remote
	fresh.Patience = patience
	start, ahead := time.Now(), atomic.Int64{}
	m := NewMembers(Config{Objects: objectStore{s}, Secrets: secretStore{s}, Freshness: fresh,
		Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return start.Add(time.Duration(ahead.Load())) }})
	t.Cleanup(m.Close)
	return m, s, func(d time.Duration) { ahead.Add(int64(d)) }, secret
}

func token(t *testing.T, m *Members) string {
	t.Helper()
	member, err := m.Get(t.Context(), "m")
	if err != nil {
		t.Fatal(err)
	}
	return member.Credential.Token
}

// While a store is down, clusters must stay usable: 30 seconds for an object, an hour for a secret.
func TestStoresDown(t *testing.T) {
	wantDown := func(m *Members) {
		t.Helper()
		_, err := m.Get(t.Context(), "m")
		var e *status.Error
		if !errors.As(err, &e) || e.Code() != 503 || e.RetryAfter < 2*time.Second {
			t.Errorf("error %v, want a 503 with Retry-After", err)
		}
	}
	t.Run("objects", func(t *testing.T) {
		for _, down := range []error{objects.ErrUnavailable, context.DeadlineExceeded} {
			m, s, advance, _ := newMembers(t)
			if got := token(t, m); got != "one" {
				t.Fatal(got)
			}
			s.set(func() { s.objErr = down })
			advance(29 * time.Second)
			if got := token(t, m); got != "one" {
				t.Error(got)
			}
			advance(2 * time.Second)
			wantDown(m)
		}
	})
	t.Run("secrets", func(t *testing.T) {
		m, s, advance, _ := newMembers(t)
		_ = token(t, m)
		s.set(func() { s.secErr = secrets.ErrUnavailable })
		advance(59 * time.Minute)
		if got := token(t, m); got != "one" {
			t.Error(got)
		}
		advance(2 * time.Minute)
		wantDown(m)
	})
	t.Run("from the start", func(t *testing.T) {
		m, s, _, _ := newMembers(t)
		s.set(func() { s.objErr = objects.ErrUnavailable })
		wantDown(m)
	})
}

// A cluster must work soon after its secret is restored. Requests meanwhile must not read the stores each time.
func TestSecretAwayForAWhile(t *testing.T) {
	for name, meanwhile := range map[string]func(s *stores){
		"the same object": func(*stores) {},
		"a newer object":  func(s *stores) { s.rev++ },
		"named before it was created": func(s *stores) {
			s.object, s.rev = `{"spec":{"secretRef":{"name":"clusters/m.2"}}}`,
				s.rev+1
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, s, advance, secret := newMembers(t)
			_ = token(t, m)
			expectError := func() {
				t.Helper()
				if member, err := m.Get(t.Context(), "m"); err == nil {
					t.Errorf("without its secret: %v", member)
				}
			}
			s.set(func() { delete(s.secrets, "clusters/m.1") })
			advance(2 * time.Minute)
			expectError()
			s.set(func() { meanwhile(s) })
			advance(10 * time.Second)
			expectError()
			before := 0
			s.set(func() { before = s.reads })
			for range 10 {
				expectError()
			}
			s.set(func() {
				if s.reads != before {
					t.Errorf("ten calls at one time read the object %d times more", s.reads-before)
				}
				s.secrets["clusters/m.1"], s.secrets["clusters/m.2"] = secret("back"), secret("back")
			})
			advance(missingTTL)
			if got := token(t, m); got != "back" {
				t.Errorf("afterwards: %s", got)
			}
		})
	}
}

// TestSecretStoreHangs: after a change of the spec, requests must use the cached secret while the store is slow.
func TestSecretStoreHangs(t *testing.T) {
	m, s, advance, secret := newMembersPatient(t, time.Millisecond)
	_ = token(t, m) // a first read has no cached value to fall back to
	answer := make(chan struct{})
	s.set(func() {
		s.object, s.rev, s.hangs = `{"spec":{"secretRef":{"name":"clusters/m.1"},"region":"x"}}`, 2, answer
		s.secrets["clusters/m.1"] = secret("two")
	})
	for known := uint64(0); known != 2; {
		advance(10 * time.Second) // advance each time: a read beyond the patience returns the old object for a while
		o, err := m.objects.Get(t.Context(), "clusters/m")
		if err != nil {
			t.Fatal(err)
		}
		known = o.Revision
	}
	for range 2 {
		if got := token(t, m); got != "one" { // or it blocks
			t.Errorf("while the store hangs: %s", got)
		}
	}
	close(answer)
	for got := ""; got != "two"; {
		got = token(t, m) // until the read has finished
	}
}

// After a member refuses a credential, the next request must use a newer one.
func TestRenew(t *testing.T) {
	m, s, advance, secret := newMembers(t)
	old, err := m.Get(t.Context(), "m")
	if err != nil {
		t.Fatal(err)
	}
	if newer, err := m.Renew(t.Context(), old, nil); newer != nil || err != nil {
		t.Errorf("nothing newer: %v, %v", newer, err)
	}
	s.set(func() { s.secrets["clusters/m.1"] = secret("two") })
	advance(3 * time.Second)
	if got := token(t, m); got != "one" {
		t.Errorf("before anybody refused it: %s", got)
	}
	newer, err := m.Renew(t.Context(), old, nil)
	if err != nil || newer == nil || newer.Credential.Token != "two" {
		t.Fatalf("rotated: %v, %v", newer, err)
	}
	if got := token(t, m); got != "two" {
		t.Errorf("afterwards: %s", got)
	}
	s.set(func() {
		delete(s.secrets, "clusters/m.1")
		s.secrets["clusters/m.2"] = secret("three")
		s.object, s.rev = `{"spec":{"secretRef":{"name":"clusters/m.2"}}}`, 2
	})
	advance(3 * time.Second)
	if again, err := m.Renew(t.Context(), newer, nil); err != nil || again == nil || again.Credential.Token != "three" {
		t.Errorf("registered anew: %v, %v", again, err)
	}
}

// TestRenewOnEKS: a refused token must be dropped, and the request repeated with another if AWS issues one.
func TestRenewOnEKS(t *testing.T) {
	m, s, advance, secret := newMembers(t)
	tokens := &fakeTokens{}
	m.cfg.Tokens = tokens
	onEKS := func(name string) secrets.Secret {
		sec := secret(name)
		sec.Value = secrets.NewValue(bytes.Replace(sec.Value.Reveal(), []byte("{token: "+name+"}"),
			[]byte("{exec: {command: aws, args: [eks, get-token, --cluster-name, "+name+"]}}"), 1))
		return sec
	}
	s.set(func() { s.secrets["clusters/m.1"] = onEKS("demo") })
	old, err := m.Get(t.Context(), "m")
	if err != nil {
		t.Fatal(err)
	}
	sent := http.Header{"Authorization": {"Bearer k8s-aws-v1.demo"}}
	if again, err := m.Renew(t.Context(), old, sent); again != nil || err != nil {
		t.Errorf("the same token: %v, %v, want no member", again, err)
	}
	tokens.another = true
	if again, err := m.Renew(t.Context(), old, sent); again != old || err != nil {
		t.Errorf("another token: %v, %v, want the same member", again, err)
	}
	if want := []string{"demo k8s-aws-v1.demo", "demo k8s-aws-v1.demo"}; !slices.Equal(tokens.refused, want) {
		t.Errorf("refused were %v, want %v", tokens.refused, want)
	}
	s.set(func() { s.secrets["clusters/m.1"] = onEKS("newer") })
	advance(3 * time.Second)
	if again, err := m.Renew(t.Context(), old, sent); err != nil || again == nil ||
		again.Credential.EKS.Cluster != "newer" || len(tokens.refused) != 2 {
		t.Errorf("a newer secret: %v, %v", again, err)
	}
}

func TestNoClusterNamesAnothersSecret(t *testing.T) {
	m, s, advance, secret := newMembers(t)
	for _, name := range []string{"clusters/other", "clusters/other.1", "clusters/mm", "signing/key", "clusters/m/x"} {
		s.set(func() {
			s.secrets[name] = secret("theirs")
			s.object, s.rev = `{"spec":{"secretRef":{"name":"`+name+`"}}}`, s.rev+1
		})
		m.live.Purge()
		advance(time.Minute)
		if member, err := m.Get(t.Context(), "m"); err == nil {
			t.Errorf("%s: %v", name, member.Credential)
		}
	}
}
