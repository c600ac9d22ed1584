package identity

import (
	"crypto"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// A key that the provider has revoked must end within keyAge, also if the clock is set back.
func TestRevokedKeyAfterTheClockIsSetBack(t *testing.T) {
	p, c := newProvider(t), newClock()
	o := p.oidc(c, nil)
	c.pass(2 * time.Hour) // the clock is two hours ahead
	claims := p.claims(c, map[string]any{"exp": c.in(10 * time.Hour), "iat": c.in(-9 * time.Hour)})
	token := sign(t, jose.RS256, rsaKey(), "one", claims)
	if _, err := o.AuthenticateToken(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	c.pass(-2 * time.Hour) // NTP sets it back
	p.set(func() { p.keys = map[string]crypto.Signer{"two": rsaTwo()} })
	for range 8 {
		c.pass(15 * time.Minute)
		if _, err := o.AuthenticateToken(t.Context(), token); err != nil {
			return
		}
	}
	t.Errorf("the revoked key still verifies after %s", 8*15*time.Minute)
}
