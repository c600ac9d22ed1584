package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// recheck is how often an open stream's right to be open is looked at.
const recheck = 10 * time.Second

// authorize returns nil if u may do a.
func (g *Gateway) authorize(ctx context.Context, u *identity.User, a access.Attributes) error {
	return g.cfg.Access.Authorize(ctx, u, a)
}

// admit identifies the caller of a call to a member cluster, decides whether they may make it, and finds the member. All of it is
// decided before a caller can learn whether there is such a cluster, and as a rule before a store is asked for it: not for bearer tokens of
// others (whoever shows one learns that a cluster takes it, since nothing is left to decide here), and not in a process that has read no
// roles yet, where what the decision and the call need is read at the same time; for the first bearer token of the gateway's own, before it
// is known whether that holds, since the keys that say so are a round trip to Secrets Manager as the cluster's credential is. Nobody waits
// for what is read so, and a process does it once: whoever makes tokens up learns nothing by it, and costs a question of each store.
func (g *Gateway) admit(r *http.Request, c *call) (*cluster.Member, error) {
	name := c.route.Cluster
	token, err := identity.BearerToken(r)
	bearer := c.user == nil && err == nil && token != ""
	own := bearer && g.own(token)
	if bearer && !own && g.cfg.Identity.Beside(r) == nil {
		var m *cluster.Member
		mode, err := g.cfg.Members.Mode(r.Context(), name) // by its object alone: who calls may be anybody
		if err == nil && mode == v1alpha1.Passthrough {
			m, err = g.cfg.Members.Get(r.Context(), name)
		}
		if err == nil && m != nil && m.Cluster.Mode() == v1alpha1.Passthrough {
			c.bearer = token
			c.audit.Unverified(audit.Token(identity.Unverified(token)))
			c.audit.Decision(true, "the cluster identifies its callers and decides by itself")
			if err := refuseAs(name, r.Header); err != nil {
				return nil, err
			}
			return m, nil // receive counts the call, when its body has arrived
		}
		if err != nil && status.From(err).Reason == status.StoreUnavailable {
			return nil, err // the token may well be good: a 401 would make clients throw it away
		}
	}
	member := sync.OnceValues(func() (*cluster.Member, error) { return g.cfg.Members.Get(r.Context(), name) })
	if own && !g.ahead.Swap(true) {
		go func() { _, _ = g.cfg.Access.Policy(r.Context()) }() // ends with the call, as the next does
		go func() { _, _ = member() }()
	}
	if c.user == nil { // else the fleet has
		if err := g.identify(r, c); err != nil {
			return nil, err
		}
	}
	if !g.cfg.Access.Ready() {
		go func() { _, _ = member() }()
	}
	reason, err := g.cfg.Access.Decide(r.Context(), c.user, access.Cluster(name, r.Method, r.Header))
	c.audit.Decision(err == nil, reason)
	if err != nil {
		return nil, err
	}
	m, err := member()
	if err != nil {
		return nil, err
	}
	if m.Cluster.Mode() == v1alpha1.Passthrough {
		return nil, status.New(status.Forbidden, name, "cluster %q takes a bearer token of its own; what identifies you to the gateway (%s) is not passed on", name, c.user.Method)
	}
	return m, nil
}

// own reports whether a token is worth something at the gateway itself. Such a token is never passed on: a member could use it here.
func (g *Gateway) own(token string) bool {
	return g.cfg.OwnToken != nil && g.cfg.OwnToken(token) || identity.IsEKSToken(token)
}

// refuseAs refuses the wish to be somebody else, which cannot be passed on beside the caller's own token.
func refuseAs(name string, h http.Header) error {
	for header := range h {
		if forward.HasPrefix(header, "Impersonate-") {
			return status.New(status.Forbidden, name, "cluster %q is called with your own token only; --as is not passed on", name)
		}
	}
	return nil
}

// identify finds the caller, and whom the caller asks to be.
func (g *Gateway) identify(r *http.Request, c *call) (err error) {
	caller, err := g.cfg.Identity.Authenticate(r)
	if err != nil {
		return err
	}
	c.user = caller // for the log, should the next step refuse
	c.audit.User(auditUser(caller), caller.Method)
	c.setAuditID(r) // a front proxy's own
	acting, err := g.impersonated(r.Context(), r.Header, caller)
	if err != nil {
		return err
	}
	if c.user = acting; acting != caller {
		c.audit.As(auditUser(acting))
	}
	return g.enter(c)
}

// enter counts a call for its caller, until it ends or goes on as a stream.
func (g *Gateway) enter(c *call) error {
	if g.cfg.Admit == nil {
		return nil
	}
	user := ""
	if c.user != nil {
		user = c.user.Name
	}
	leave, err := g.cfg.Admit(user, c.bearer)
	if err == nil {
		c.leave = leave
	}
	return err
}

func auditUser(u *identity.User) audit.User {
	return audit.User{Username: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra}
}

// serviceProxy refuses the member's own proxy subresources unless its object names what is behind them: they lead out of the
// API server, to whatever listens there.
func serviceProxy(c *v1alpha1.Cluster, res route.Resource) error {
	if !res.IsResource || res.Subresource != "proxy" && res.Verb != "proxy" {
		return nil
	}
	asked := []string{res.Resource, res.Namespace, res.Name}
	if res.Resource == "nodes" {
		asked = []string{res.Resource, res.Name}
	}
	for _, entry := range c.Spec.ServiceProxy {
		if matchProxy(strings.Split(entry, "/"), asked) {
			return nil
		}
	}
	return status.New(status.Forbidden, c.Name, "cluster %q does not allow its proxy subresources for %s; its administrator may add that to spec.serviceProxy",
		c.Name, strings.Join(asked, "/"))
}

// matchProxy compares an entry's parts with what is asked. A name may be SCHEME:NAME:PORT or NAME:PORT; the entry names NAME, or
// NAME:PORT.
func matchProxy(entry, asked []string) bool {
	if len(entry) != len(asked) {
		return false
	}
	last := len(asked) - 1
	for i := range last {
		if entry[i] != asked[i] && entry[i] != "*" {
			return false
		}
	}
	parts := strings.Split(asked[last], ":")
	if len(parts) == 3 {
		parts = parts[1:]
	}
	names := []string{"*", parts[0]}
	if len(parts) == 2 {
		names = append(names, parts[0]+":"+parts[1], "*:"+parts[1])
	}
	return len(parts) <= 2 && slices.Contains(names, entry[last])
}

// guard ends a stream whose right to be open has gone: the credential has expired, the grant or the cluster was taken away, or
// that cannot be known any more. The returned function must be called when the stream has ended.
func (g *Gateway) guard(r *http.Request, c *call, still func(context.Context) error) (*http.Request, func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	var (
		mu    sync.Mutex // held while it looks
		over  bool
		timer *time.Timer // and no goroutine: thousands of streams are open and silent
	)
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(g.cfg.Recheck, func() {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return
		}
		if err := still(ctx); err != nil {
			cancel(err)
			return
		}
		timer.Reset(g.cfg.Recheck)
	})
	return r.WithContext(ctx), func() {
		errors.As(context.Cause(ctx), &c.ended)
		cancel(nil)
		mu.Lock()
		defer mu.Unlock()
		over = true
		timer.Stop()
	}
}

// still returns an error unless a call that was admitted to a cluster of that mode would be so now.
func (g *Gateway) still(ctx context.Context, c *call, mode v1alpha1.Identity, attrs access.Attributes) error {
	m, err := g.cfg.Members.Get(ctx, c.route.Cluster)
	if err != nil {
		return err
	}
	if now := m.Cluster.Mode(); now != mode {
		return status.New(status.Forbidden, c.route.Cluster, "cluster %q is called by identity %s now, no longer %s", c.route.Cluster, now, mode)
	}
	if err := serviceProxy(m.Cluster, c.res); err != nil {
		return err
	}
	if c.user == nil {
		return nil // the member alone knows the caller
	}
	if err := holds(ctx, c.user); err != nil {
		return err
	}
	if mode == v1alpha1.Direct && !m.Cluster.MayDirect(c.user.Name) {
		return status.New(status.Forbidden, c.route.Cluster, "you were taken out of spec.directUsers")
	}
	return g.authorize(ctx, c.user, attrs)
}

// holds returns an error once the credential of a caller has ended or was revoked.
func holds(ctx context.Context, u *identity.User) error {
	if !u.Expires.IsZero() && time.Now().After(u.Expires) {
		return status.New(status.Unauthenticated, "", "your credential has expired")
	}
	if u.Recheck != nil {
		return u.Recheck(ctx)
	}
	return nil
}
