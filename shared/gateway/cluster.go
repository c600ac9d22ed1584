package gateway

import (
	"cmp"
	"context"
	"net/http"
	"sync"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

func (g *Gateway) serveCluster(w *countingWriter, r *http.Request, c *call) error {
	r, err := g.prepareForward(w, r, c)
	switch {
	case err != nil:
		return err
	case c.request.IsStream:
		return g.forwardStream(w, r, c)
	}
	return g.forward(w, r, &c.forwarded)
}

// prepareForward checks whether the request may be forwarded, and sets c.forwarded. The caller must forward the
// returned request instead of r.
func (g *Gateway) prepareForward(w *countingWriter, r *http.Request, c *call) (*http.Request, error) {
	m, err := g.authorizedMember(r, c)
	if err != nil {
		return nil, err
	}
	if err := checkServiceProxy(m.Cluster, c.request.Resource); err != nil {
		return nil, err
	}
	c.canEvadeRecording = canEvadeRecording(c.request, r.Header)
	if err := g.checkRecordingEvasion(r.Context(), c); err != nil {
		return nil, err
	}
	if err := g.cfg.Function.redirectUnserved(w, r, c.request); err != nil {
		return nil, err
	}
	if r, err = g.admitUnverified(r, c); err != nil {
		return nil, err
	}
	c.forwarded = forward.Call{
		Request: c.request, User: c.user, Bearer: c.bearer, Member: m,
		Renewer: g.cfg.Members, Observer: c.responseObserver(r.Method),
	}
	return r, nil
}

func (g *Gateway) forward(w http.ResponseWriter, r *http.Request, fc *forward.Call) error {
	release, err := g.cfg.Admission.AdmitToCluster(fc.Member.Cluster.Name)
	if err != nil {
		return err
	}
	defer release()
	if f := g.cfg.Function; f != nil {
		return f.forward(w, r, fc)
	}
	// A credential plugin may wait until a person signs in, so discovery at its member has no deadline.
	if isDiscovery(fc.Route.Path) && route.IsRead(r.Method) && fc.Member.Credential.Plugin == nil {
		return g.discovery.forward(w, r, fc)
	}
	return forward.Do(w, r, fc)
}

func (g *Gateway) forwardStream(w *countingWriter, r *http.Request, c *call) error {
	if isSession(c.request.Resource) {
		var err error
		if c.rule, err = g.recordingRule(r.Context(), c); err != nil {
			return err
		}
	}
	r, stop := g.recheckStream(r, c)
	defer stop()
	w.beginStream(c)
	return g.cfg.Streams.ForwardStream(w, r, &StreamCall{Call: &c.forwarded, Rule: c.rule, Caller: c.caller, call: c})
}

func (g *Gateway) recheckStream(r *http.Request, c *call) (_ *http.Request, stop func()) {
	member, attrs := c.forwarded.Member, access.Cluster(c.request.Route.Cluster, r.Method, r.Header)
	return g.recheck(r, c, func(ctx context.Context) error {
		return cmp.Or(g.checkStream(ctx, c, member, attrs), g.checkRecordingEvasion(ctx, c), g.checkUnrecorded(ctx, c))
	})
}

// checkStream returns an error if an open stream must end. before is the member at the start of the stream.
func (g *Gateway) checkStream(ctx context.Context, c *call, before *cluster.Member, attrs access.Attributes) error {
	name, mode := c.request.Route.Cluster, before.Cluster.Mode()
	m, err := g.cfg.Members.Get(ctx, name)
	if err != nil {
		return err
	}
	if !m.IsSameCluster(before) {
		return status.New(status.UnknownCluster, name,
			"the stream was ended: cluster %q was removed, and another one was added under its name; call again", name)
	}
	if now := m.Cluster.Mode(); now != mode {
		return status.New(status.Forbidden, name,
			"the stream was ended: the identity mode of cluster %q changed from %s to %s; call again", name, mode, now)
	}
	if err := checkServiceProxy(m.Cluster, c.request.Resource); err != nil {
		return err
	}
	if c.user == nil {
		return nil // only the member can check the caller's rights
	}
	if err := checkCredential(ctx, c.user); err != nil {
		return err
	}
	if mode == v1alpha1.Direct && !m.Cluster.MayDirect(c.user.Name) {
		return status.New(status.Forbidden, name,
			"the stream was ended: you were removed from spec.directUsers of cluster %q; ask its administrator", name)
	}
	return g.authorize(ctx, c.user, attrs)
}

// authorizedMember identifies the caller, authorizes the request, and returns the member. Before the authorization, it
// reads neither the Cluster object nor the secret, with three exceptions:
//   - A bearer token that does not claim to be for the gateway may be for a passthrough cluster. Unless another
//     credential identifies the caller, the Cluster object is read first, and for a passthrough cluster also the
//     secret. Only the member authorizes the callers of such a cluster. So any client can find out whether a name is
//     that of a passthrough cluster.
//   - If the process has no policy younger than access.MaxAge, it reads policy and member concurrently.
//   - While a process verifies its first token that may be valid at the gateway, it reads policy and member. For later
//     tokens it does not, so made-up tokens cause these reads at most once in each process.
func (g *Gateway) authorizedMember(r *http.Request, c *call) (*cluster.Member, error) {
	name, token := c.request.Route.Cluster, ""
	if c.user == nil {
		token, _ = identity.BearerToken(r) // "" for a malformed token, which is never forwarded
	}
	isForGateway := token != "" && g.isGatewayToken(token)
	if token != "" && !isForGateway && g.cfg.Identity.WithoutBearer(r) == nil {
		if m, err := g.passthroughMember(r, c, token); m != nil || err != nil {
			return m, err
		}
	}
	member := sync.OnceValues(func() (*cluster.Member, error) { return g.cfg.Members.Get(r.Context(), name) })
	if isForGateway && !g.prefetched.Swap(true) {
		// Both goroutines end with the request's context.
		go func() { _, _ = g.cfg.Access.Policy(r.Context()) }()
		go func() { _, _ = member() }()
	}
	if c.user == nil {
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
		return nil, status.New(status.Forbidden, name,
			"cluster %q needs one of its own bearer tokens; your credential for the gateway (%s) is not forwarded",
			name, c.user.Method)
	}
	return m, nil
}

// passthroughMember returns the member and sets c.bearer if the identity mode is passthrough. For other modes, it
// returns nil without an error. It also returns nil instead of an error that an unidentified client must not see, such
// as an unknown cluster.
func (g *Gateway) passthroughMember(r *http.Request, c *call, token string) (*cluster.Member, error) {
	name := c.request.Route.Cluster
	var m *cluster.Member
	mode, err := g.cfg.Members.Mode(r.Context(), name) // does not read the secret, since any client can send a token
	if err == nil && mode == v1alpha1.Passthrough {
		m, err = g.cfg.Members.Get(r.Context(), name)
	}
	if err != nil && status.From(err).Reason == status.StoreUnavailable {
		return nil, err // the token may be valid; a 401 would make clients discard it
	}
	if err != nil || m == nil || m.Cluster.Mode() != v1alpha1.Passthrough {
		return nil, nil
	}
	c.bearer = token
	c.audit.Unverified(audit.Token(identity.Unverified(token)))
	c.audit.Decision(true, "the cluster identifies its callers and decides by itself")
	if err := c.audit.AdmitCaller(r.Context()); err != nil {
		return nil, err
	}
	return m, refuseImpersonation(name, r.Header)
}

// refuseImpersonation refuses impersonation headers, which are not forwarded with the caller's own token.
func refuseImpersonation(name string, h http.Header) error {
	for header := range h {
		if forward.HasPrefix(header, "Impersonate-") {
			return status.New(status.Forbidden, name,
				"impersonation is refused: cluster %q receives only your own token, and --as is not forwarded; "+
					"call without --as", name)
		}
	}
	return nil
}
