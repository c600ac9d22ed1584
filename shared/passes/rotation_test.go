package passes

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/identity"
)

// A key rotation must not end passes, unless it discards the earlier keys.
func TestKeys(t *testing.T) {
	o := newTestGateway(t)
	week := func(s *v1alpha1.PassSpec) { s.TTL.Duration = MaxTTL }
	first := o.issue("first", week)
	kid := func(issued *Issued) string {
		parsed, err := jwt.ParseSigned(string(issued.Token.Reveal()), []jose.SignatureAlgorithm{jose.ES256})
		if err != nil {
			t.Fatal(err)
		}
		return parsed.Headers[0].KeyID
	}
	if err := o.RotateKey(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if issued := o.issue("too-early", nil); kid(issued) != kid(first) {
		t.Error("a key signs that other gateways may not have yet")
	}
	o.clock.Step(activationDelay)
	second := o.issue("second", week)
	if kid(second) == kid(first) {
		t.Error("the new key does not sign")
	}
	for name, issued := range map[string]*Issued{"first": first, "second": second} {
		if _, err := o.authenticate(issued); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := o.RotateKey(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	third := o.issue("third", week)
	o.clock.Step(keysFresh)
	if _, err := o.authenticate(third); err != nil {
		t.Error(err)
	}
	for _, issued := range []*Issued{first, second} {
		u, err := o.authenticate(issued)
		o.wantRefused(u, err, "a key that the gateway does not have")
	}
	// Keys are renewed automatically, and removed once all their tokens have expired.
	o.clock.Step(keyLife)
	o.issue("fourth", week)
	keys := func() int {
		set, err := o.public(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(set.Keys)
	}
	if n := keys(); n != 2 {
		t.Errorf("%d keys, want the old and the new one", n)
	}
	o.clock.Step(keyLife)
	o.issue("fifth", week)
	o.clock.Step(keysFresh)
	if n := keys(); n != 2 {
		t.Errorf("%d keys, want the last two", n)
	}
}

// After the theft of a key, a stream that its thief has opened must end.
func TestDiscardedKeyFailsRecheck(t *testing.T) {
	o := newTestGateway(t)
	users := map[string]*identity.User{}
	for form, change := range forms {
		u, err := o.authenticate(o.issue(form, change))
		if err != nil {
			t.Fatal(err)
		}
		users[form] = u
	}
	if err := o.RotateKey(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	o.clock.Step(keysFresh)
	for form, u := range users {
		if err := u.Recheck(t.Context()); err != nil {
			t.Errorf("%s, after a rotation that keeps the key: %v", form, err)
		}
	}
	if err := o.RotateKey(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	o.clock.Step(keysFresh)
	o.wantRefused(nil, users["token"].Recheck(t.Context()), "a key that the gateway does not have")
	if err := users["certificate"].Recheck(t.Context()); err != nil {
		t.Errorf("a certificate, which this key has not signed: %v", err)
	}
}

// Invented key ids must not cause reads of the store.
func TestUnknownKeys(t *testing.T) {
	o := newTestGateway(t)
	issued := o.issue("ci", nil)
	if _, err := o.authenticate(issued); err != nil {
		t.Fatal(err)
	}
	before := o.store.keys.Load()
	parts := strings.Split(string(issued.Token.Reveal()), ".")
	for i := range 20 {
		head := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"alg":"ES256","kid":"made-up-%d"}`, i))
		u, err := o.AuthenticateToken(t.Context(), strings.Join([]string{head, parts[1], parts[2]}, "."))
		o.wantRefused(u, err, "a key that the gateway does not have")
	}
	if n := o.store.keys.Load() - before; n > 1 {
		t.Errorf("the store was asked %d times", n)
	}
}
