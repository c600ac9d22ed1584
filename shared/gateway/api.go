package gateway

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// API is the gateway's own API. It is safe for concurrent use.
type API interface {
	// ServePublic serves a request that needs no credential. It returns false for any other request.
	ServePublic(w http.ResponseWriter, r *http.Request, path string) bool
	// Serve authorizes and serves a request. If the API does not have the path, next is the cluster that serves it. The
	// request is not authorized for that cluster yet. Errors are *status.Error.
	Serve(w http.ResponseWriter, r *http.Request, c *APICall) (next string, err error)
}

// APICall is a request to the gateway's own API. Its caller is identified, and not yet authorized.
type APICall struct {
	route.Request
	User *identity.User

	gateway *Gateway
	call    *call
	w       *countingWriter
}

// RecordDecision records in the audit event whether the request is allowed, and why.
func (c *APICall) RecordDecision(allowed bool, reason string) { c.call.audit.Decision(allowed, reason) }

// RecordCreated records the name of the created object, which the URL does not contain, in the audit event.
func (c *APICall) RecordCreated(name string) { c.call.audit.Created(name) }

// ServeWatch serves a watch with serve. It ends the watch when the caller's credential expires or check fails.
func (c *APICall) ServeWatch(r *http.Request, check func(context.Context) error, serve Handler) error {
	return c.gateway.serveWatch(c.w, r, c.call, func(ctx context.Context) error {
		return cmp.Or(checkCredential(ctx, c.User), check(ctx))
	}, serve)
}

func (g *Gateway) serveAPI(w *countingWriter, r *http.Request, c *call) error {
	path := c.request.Route.Path
	if g.cfg.Passes != nil {
		if done, err := g.cfg.Passes.Serve(w, r, path); done {
			return err
		}
	}
	if g.cfg.API != nil && g.cfg.API.ServePublic(w, r, path) {
		return nil
	}
	if err := g.identify(r, c); err != nil {
		return err
	}
	if discover(w, r, path) {
		return nil
	}
	if g.cfg.API == nil {
		return g.notServed(w, r, c)
	}
	if err := g.cfg.Function.redirectUnserved(w, r, c.request); err != nil {
		return err
	}
	next, err := g.cfg.API.Serve(w, r, &APICall{Request: c.request, User: c.user, gateway: g, call: c, w: w})
	if err != nil || next == "" {
		return err
	}
	c.setRequest(c.request.ToCluster(next))
	return g.serveCluster(w, r, c)
}

func (g *Gateway) notServed(w http.ResponseWriter, r *http.Request, c *call) error {
	if f := g.cfg.Function; f != nil {
		return f.redirectTo(w, r, c.request.Route, "another function answers the call")
	}
	path, _, _ := strings.Cut(r.RequestURI, "?")
	return status.New(status.UnknownPath, "",
		"the gateway serves nothing at %s; member clusters are under /clusters/NAME", path)
}
