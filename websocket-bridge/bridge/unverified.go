package bridge

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

// unverified limits calls with bearer tokens that only a member can check. Any client can make tokens up, so unknown
// tokens share a part of the slots, and each source address gets a part of that. It is safe for concurrent use.
type unverified struct {
	refuse         func(limit, format string, args ...any) error
	all            *quota.Quota // calls in flight, of accepted and unknown tokens
	unknown        *quota.Quota // calls in flight of unknown tokens, by source
	acceptedBodies *quota.Quota // calls of accepted tokens whose body has not arrived
	unknownBodies  *quota.Quota // calls of unknown tokens whose body has not arrived, by source
	accepted       *cache.Expiring[tokenKey, struct{}]
	secret         [sha256.Size]byte // HMAC key of keyOf, random for each process
	sourceless     atomic.Uint64     // number of calls without a known source address
}

type tokenKey [sha256.Size]byte

func newUnverified(l Limits, refuse func(limit, format string, args ...any) error) *unverified {
	unknown := cmp.Or(l.MaxUnknown, max(1, l.MaxUnverified/2))
	if half := l.MaxCallsPerMember / 2; half > 0 {
		unknown = min(unknown, half) // the other half of a cluster's calls is for accepted tokens and verified users
	}
	u := &unverified{
		refuse: refuse, accepted: cache.NewExpiring[tokenKey, struct{}](maxAcceptedTokens, nil),
		all: quota.New(l.MaxUnverified, 0), unknown: quota.New(unknown, l.MaxUnknownPerSource),
		acceptedBodies: quota.New(l.MaxUnverified, 0), unknownBodies: quota.New(unknown, l.MaxUnknownPerSource),
	}
	_, _ = rand.Read(u.secret[:]) // never fails
	return u
}

// BeginUnverified implements gateway.Admission.
func (b *Bridge) BeginUnverified(source limits.Source, cluster, bearer string) (gateway.UnverifiedCall, error) {
	return b.unverified.begin(source, cluster, bearer)
}

func (u *unverified) begin(source limits.Source, cluster, bearer string) (gateway.UnverifiedCall, error) {
	c := &unverifiedCall{u: u, key: u.keyOf(cluster, bearer), source: source.String()}
	if !source.IsKnown() {
		// Many callers may share an unknown address, so each call counts as a source.
		c.source = "call " + strconv.FormatUint(u.sourceless.Add(1), 10)
	}
	_, c.accepted = u.accepted.Get(c.key)
	return c, c.acquireBodySlot()
}

func (u *unverified) keyOf(cluster, bearer string) tokenKey {
	mac := hmac.New(sha256.New, u.secret[:])
	_, _ = mac.Write([]byte(cluster + "\x00" + bearer))
	return tokenKey(mac.Sum(nil))
}

type unverifiedCall struct {
	u              *unverified
	key            tokenKey
	source         string
	accepted       bool
	releaseBody    func()   // releases the slot that is used until Enter
	releaseUnknown func()   // releases the slot of an unknown token; nil for accepted tokens
	releases       []func() // release all slots that are used until End
}

// acquireBodySlot acquires the slot that the call uses until Enter.
func (c *unverifiedCall) acquireBodySlot() error {
	bodies, source := c.u.unknownBodies, c.source
	if c.accepted {
		bodies, source = c.u.acceptedBodies, ""
	}
	release, reached := bodies.Acquire(source)
	switch {
	case reached == quota.None:
		c.releaseBody = release
		return nil
	case c.accepted:
		return c.refuse()
	}
	return c.refuseUnknown(reached)
}

func (c *unverifiedCall) IsAccepted() bool { return c.accepted }

func (c *unverifiedCall) Enter() error {
	c.releaseBody()
	release, reached := c.u.all.Acquire("")
	if reached != quota.None {
		return c.refuse()
	}
	c.releases = append(c.releases, release)
	if c.accepted {
		return nil
	}
	if c.releaseUnknown, reached = c.u.unknown.Acquire(c.source); reached != quota.None {
		return c.refuseUnknown(reached)
	}
	c.releases = append(c.releases, c.releaseUnknown)
	return nil
}

func (c *unverifiedCall) refuse() error {
	return c.u.refuse("unverified", "the call was refused: the bridge reached its limit of calls in flight with "+
		"tokens that only clusters can verify; try again later")
}

func (c *unverifiedCall) refuseUnknown(reached quota.Limit) error {
	if reached == quota.Each {
		return c.u.refuse("source", "the call was refused: your address has %d calls in flight with tokens that their "+
			"cluster did not accept in the last %d minutes; try again when some have ended", c.u.unknown.Each(),
			tokenAccepted/time.Minute)
	}
	return c.u.refuse("unknown", "the call was refused: the bridge reached its limit of calls in flight with tokens that "+
		"their cluster did not accept in the last %d minutes; try again later", tokenAccepted/time.Minute)
}

// ObserveResponse releases the slot of an unknown token that the response proves.
func (c *unverifiedCall) ObserveResponse(code int) error {
	switch {
	case code == http.StatusUnauthorized:
		c.u.accepted.Remove(c.key)
	case provesToken(code):
		c.u.accepted.Add(c.key, struct{}{}, time.Now().Add(tokenAccepted))
		if c.releaseUnknown != nil {
			c.releaseUnknown()
		}
	}
	return nil
}

func (c *unverifiedCall) End() {
	c.releaseBody()
	for _, release := range c.releases {
		release()
	}
}

// afterLogin are status codes, other than those of success, that an API server sends only after it accepted the token.
var afterLogin = []int{
	http.StatusSwitchingProtocols, http.StatusForbidden, http.StatusConflict, http.StatusUnprocessableEntity,
}

// provesToken reports whether the member has accepted the caller's token. A server may send 400, 429 and 5xx before it
// checks the token. A proxy may send 404 for an unknown path.
func provesToken(code int) bool {
	return code >= 200 && code < 300 || slices.Contains(afterLogin, code)
}
