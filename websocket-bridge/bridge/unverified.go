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
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/quota"
)

const (
	// tokenAccepted is how long a token counts as accepted after the last response that proves it.
	tokenAccepted     = 10 * time.Minute
	maxAcceptedTokens = 16_384
)

// unverified limits calls with bearer tokens that only a member can check. It is safe for concurrent use.
type unverified struct {
	refuse     func(limit, format string, args ...any) error
	bodies     *slots // for calls until their body has arrived
	calls      *slots // for calls from then until they end
	accepted   *cache.Expiring[tokenKey, struct{}]
	secret     [sha256.Size]byte // HMAC key of keyOf, random for each process
	sourceless atomic.Uint64     // number of calls without a known source address
}

// slots limits calls before their body has arrived, or calls from then on. No token and no source address gets all
// slots. A token is unknown if its cluster has not accepted it within tokenAccepted. Any client can make such tokens
// up, so they share a part of the slots, and each source address gets a part of that.
type slots struct {
	all     *quota.Quota // by token, of any cluster
	sources *quota.Quota // by source
	unknown *quota.Quota // calls of unknown tokens, by source
}

// One token may use Limits.MaxUnverified/tokenDivisor slots, and one source address MaxUnverified/sourceDivisor, but at
// least one.
const (
	tokenDivisor  = 4
	sourceDivisor = 2
)

type tokenKey [sha256.Size]byte

func newUnverified(l Limits, refuse func(limit, format string, args ...any) error) *unverified {
	unknown := cmp.Or(l.MaxUnknown, max(1, l.MaxUnverified/2))
	if half := l.MaxCallsPerMember / 2; half > 0 {
		unknown = min(unknown, half) // the other half of a cluster's calls is for accepted tokens and verified users
	}
	newSlots := func(all int) *slots {
		each := func(divisor int) int { return min(l.MaxUnverified, max(1, l.MaxUnverified/divisor)) } // 0 without a limit
		return &slots{
			all: quota.New(all, each(tokenDivisor)), sources: quota.New(0, each(sourceDivisor)),
			unknown: quota.New(unknown, l.MaxUnknownPerSource),
		}
	}
	// Unknown tokens whose bodies never arrive leave MaxUnverified slots for the bodies of accepted ones.
	u := &unverified{
		refuse: refuse, accepted: cache.NewExpiring[tokenKey, struct{}](maxAcceptedTokens, nil),
		bodies: newSlots(l.MaxUnverified + min(l.MaxUnverified, unknown)), calls: newSlots(l.MaxUnverified),
	}
	_, _ = rand.Read(u.secret[:]) // never fails
	return u
}

// BeginUnverified implements gateway.Admission.
func (b *Bridge) BeginUnverified(source limits.Source, cluster, bearer string) (gateway.UnverifiedCall, error) {
	return b.unverified.begin(source, cluster, bearer)
}

func (u *unverified) begin(source limits.Source, cluster, bearer string) (gateway.UnverifiedCall, error) {
	c := &unverifiedCall{
		u: u, key: u.keyOf(cluster, bearer), token: identity.CallerKey("", bearer), source: source.String(),
	}
	if !source.IsKnown() {
		// Many callers may share an unknown address, so each call counts as a source.
		c.source = "call " + strconv.FormatUint(u.sourceless.Add(1), 10)
	}
	_, c.accepted = u.accepted.Get(c.key)
	return c, c.acquire(u.bodies)
}

func (u *unverified) keyOf(cluster, bearer string) tokenKey {
	mac := hmac.New(sha256.New, u.secret[:])
	_, _ = mac.Write([]byte(cluster + "\x00" + bearer))
	return tokenKey(mac.Sum(nil))
}

type unverifiedCall struct {
	u              *unverified
	key            tokenKey
	token          string // identifies the token in limits
	source         string
	accepted       bool
	releases       []func() // release all slots that the call uses
	releaseUnknown func()   // releases the slot of an unknown token; nil for accepted tokens
}

func (c *unverifiedCall) acquire(s *slots) (err error) {
	defer func() {
		if err != nil {
			c.End()
		}
	}()
	acquire := func(q *quota.Quota, caller string) (reached quota.Limit) {
		release, reached := q.Acquire(caller)
		if reached == quota.None {
			c.releases = append(c.releases, release)
		}
		return reached
	}
	switch acquire(s.all, c.token) {
	case quota.All:
		return c.u.refuse("unverified", "the call was refused: the bridge reached its limit of calls in flight with "+
			"tokens that only clusters can verify; try again later")
	case quota.Each:
		return c.u.refuse("caller", "the call was refused: your token has %d calls in flight to passthrough clusters, "+
			"the limit for one token; try again when some have ended", s.all.Each())
	}
	if acquire(s.sources, c.source) != quota.None {
		return c.u.refuse("source", "the call was refused: your address has %d calls in flight with tokens that only "+
			"clusters can verify; try again when some have ended", s.sources.Each())
	}
	if c.accepted {
		return nil
	}
	switch acquire(s.unknown, c.source) {
	case quota.Each:
		return c.u.refuse("source", "the call was refused: your address has %d calls in flight with tokens that their "+
			"cluster did not accept in the last %d minutes; try again when some have ended", s.unknown.Each(),
			tokenAccepted/time.Minute)
	case quota.All:
		return c.u.refuse("unknown", "the call was refused: the bridge reached its limit of calls in flight with tokens "+
			"that their cluster did not accept in the last %d minutes; try again later", tokenAccepted/time.Minute)
	}
	c.releaseUnknown = c.releases[len(c.releases)-1]
	return nil
}

func (c *unverifiedCall) IsAccepted() bool { return c.accepted }

func (c *unverifiedCall) Enter() error {
	c.End()
	return c.acquire(c.u.calls)
}

// ObserveResponse records what the response shows about the token. A 401 makes the token unknown. After a response that
// proves it, the token is accepted for tokenAccepted, and the call releases its slot of unknown tokens.
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
	for _, release := range c.releases {
		release()
	}
	c.releases = nil
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
