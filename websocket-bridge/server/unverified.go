package server

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/websocket-bridge/quota"
)

const (
	// tokenAccepted is how long a token counts as accepted after the last response that proves it.
	tokenAccepted     = 10 * time.Minute
	maxAcceptedTokens = 16_384
)

// unverified limits calls and streams with bearer tokens that only a member can check. Any client can make tokens up.
// Tokens that their cluster did not accept lately share a part of the slots, and each source address gets a part of
// that. It is safe for concurrent use.
type unverified struct {
	refuse        func(limit, format string, args ...any) error
	all           *quota.Quota // of accepted and unknown tokens
	unknown       *quota.Quota // by source
	bodies        *quota.Quota // of accepted tokens, until the request's body has arrived
	unknownBodies *quota.Quota // the same for unknown tokens, by source
	accepted      *cache.Expiring[tokenKey, struct{}]
	secret        [sha256.Size]byte // key of tokenKey; without it, hashes in a memory dump reveal nothing about tokens
	calls         atomic.Uint64     // number of calls from unknown sources
}

// tokenKey identifies a token at a cluster.
type tokenKey [sha256.Size]byte

func newUnverified(l Limits, refuse func(limit, format string, args ...any) error) *unverified {
	unknown := cmp.Or(l.MaxUnknown, max(1, l.MaxUnverified/2))
	if half := l.MaxCallsPerMember / 2; half > 0 {
		unknown = min(unknown, half) // the other half of a cluster's calls is for tokens that it accepts
	}
	u := &unverified{
		refuse: refuse, accepted: cache.NewExpiring[tokenKey, struct{}](maxAcceptedTokens, nil),
		all: quota.New(l.MaxUnverified, 0), unknown: quota.New(unknown, l.MaxUnknownPerSource),
		bodies: quota.New(l.MaxUnverified, 0), unknownBodies: quota.New(unknown, l.MaxUnknownPerSource),
	}
	_, _ = rand.Read(u.secret[:]) // never fails
	return u
}

// BeginUnverified implements gateway.Admission.
func (b *Bridge) BeginUnverified(source limits.Source, cluster, bearer string) (gateway.UnverifiedCall, error) {
	return b.unverified.begin(source, cluster, bearer)
}

// begin counts a call whose body has not arrived yet.
func (u *unverified) begin(source limits.Source, cluster, bearer string) (gateway.UnverifiedCall, error) {
	c := &unverifiedCall{u: u, key: u.keyOf(cluster, bearer), source: source.String()}
	if !source.IsKnown() {
		c.source = "call " + strconv.FormatUint(u.calls.Add(1), 10) // many callers may share it: each call has its own
	}
	_, c.accepted = u.accepted.Get(c.key)
	pending, by := u.unknownBodies, c.source
	if c.accepted {
		pending, by = u.bodies, ""
	}
	return c, c.count(pending, by)
}

func (u *unverified) keyOf(cluster, bearer string) tokenKey {
	mac := hmac.New(sha256.New, u.secret[:])
	_, _ = mac.Write([]byte(cluster + "\x00" + bearer))
	return tokenKey(mac.Sum(nil))
}

// unverifiedCall implements gateway.UnverifiedCall.
type unverifiedCall struct {
	u        *unverified
	key      tokenKey
	source   string
	accepted bool
	pending  func()   // releases the slot that is used until the call enters
	releases []func() // release the slots that are used until the call ends
	unknown  func()   // releases the slot of an unknown token; nil for accepted tokens
}

// count counts the call until it enters.
func (c *unverifiedCall) count(pending *quota.Quota, by string) error {
	release, reached := pending.Acquire(by)
	if reached != quota.None {
		return c.refused(reached)
	}
	c.pending = release
	return nil
}

// IsAccepted implements gateway.UnverifiedCall.
func (c *unverifiedCall) IsAccepted() bool { return c.accepted }

// Enter implements gateway.UnverifiedCall.
func (c *unverifiedCall) Enter() error {
	c.pending()
	release, reached := c.u.all.Acquire("")
	if reached != quota.None {
		return c.u.refuse("unverified", "the call was refused: the bridge reached its limit of calls in flight with "+
			"tokens that only clusters can verify; try again later")
	}
	c.releases = append(c.releases, release)
	if c.accepted {
		return nil
	}
	if c.unknown, reached = c.u.unknown.Acquire(c.source); reached != quota.None {
		return c.refused(reached)
	}
	c.releases = append(c.releases, c.unknown)
	return nil
}

// refused returns the error for an unknown token.
func (c *unverifiedCall) refused(reached quota.Limit) error {
	if reached == quota.Each {
		return c.u.refuse("source", "the call was refused: your address has %d calls in flight with tokens that no "+
			"cluster has accepted yet; try again when some have ended", c.u.unknown.Each())
	}
	return c.u.refuse("unknown", "the call was refused: the bridge reached its limit of calls in flight with "+
		"tokens that no cluster has accepted yet; try again later")
}

// ObserveResponse implements gateway.UnverifiedCall. A token that was accepted uses no slot of the unknown tokens any
// more.
func (c *unverifiedCall) ObserveResponse(code int) error {
	switch {
	case code == http.StatusUnauthorized:
		c.u.accepted.Remove(c.key)
	case provesToken(code):
		c.u.accepted.Add(c.key, struct{}{}, time.Now().Add(tokenAccepted))
		if c.unknown != nil {
			c.unknown()
		}
	}
	return nil
}

// End implements gateway.UnverifiedCall.
func (c *unverifiedCall) End() {
	c.pending()
	for _, release := range c.releases {
		release()
	}
}

// afterLogin are status codes, other than those of success, that an API server sends only after it accepted the token.
var afterLogin = []int{
	http.StatusSwitchingProtocols, http.StatusForbidden, http.StatusConflict, http.StatusUnprocessableEntity,
}

// provesToken reports whether a member that sends a status code has accepted the caller's token. Errors of a server, of
// a proxy on the path to it, and of malformed or too many requests come before the token is checked. So may 404, from
// a proxy that does not know the path.
func provesToken(code int) bool {
	return code >= 200 && code < 300 || slices.Contains(afterLogin, code)
}
