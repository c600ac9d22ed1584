// Package gateway puts the rooms of the house together: who calls, what the URL means, may they, and where it goes.
//
// The same handler runs in a function, in the bridge and in a test. A Function wraps it with what a function cannot do: hold
// streams and large answers, which it sends to the bridge.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Config is what a Gateway is made of.
type Config struct {
	Identity identity.Chain
	// OwnToken says of a bearer token that it is worth something at the gateway, and so never passed on; nil for none.
	OwnToken func(token string) bool
	Access   *access.Authorizer
	Members  *cluster.Members
	Fleet    Fleet // nil answers 404 for the fleet
	// Passes serves the documents by which others can verify passes; nil for none.
	Passes *passes.Verifier
	// Public answers calls to the gateway itself that need no credential, and reports whether this was one; nil for none but those to Passes.
	Public func(w http.ResponseWriter, r *http.Request, path string) bool
	// Recheck is how often an open stream's right is looked at; 0 means 10 s.
	Recheck time.Duration
	// Patience is how long a caller may take nothing of an answer, or send nothing of a body, streams apart; 0 means a minute.
	Patience time.Duration
	// Origins are the web pages that may open websockets and write through a visitor's browser.
	Origins Origins
	Log     *slog.Logger // one event a request; nil means slog.Default()
	Audit   *audit.Log   // nil for none
	// Caches count what the caches do that calls are answered from, by their names.
	Caches []func() map[string]cache.Stats
	// Namespace of CloudWatch metrics, of which the log of a function's calls is a source; empty for none.
	Namespace string
	// Function is set where the handler runs in a function.
	Function *Function
	// Root answers what is asked of the gateway itself; nil means that it has no API. Its errors are *status.Error. What is not its own
	// it does not answer: next names the cluster that the call, which is not authorized yet, goes on to.
	Root func(w http.ResponseWriter, r *http.Request, c RootCall) (next string, err error)
	// Stream carries calls for which route.Streams is true; nil means forward.Do, and it works as that does.
	Stream func(w http.ResponseWriter, r *http.Request, c forward.Call) error
	// Admit lets in a call of a user, or returns a *status.Error. user is "" for a bearer token that only the member can
	// check, which Unverified has let in.
	// done is called when the call has ended or goes on as a stream, maybe twice. nil admits all.
	Admit func(user, bearer string) (done func(), err error)
	// AdmitTo begins a call to a member cluster that is no stream, or returns a *status.Error. The gateway calls done once,
	// when the call has ended. nil admits all.
	AdmitTo func(cluster string) (done func(), err error)
	// Source selects where the address of a request's sender is found, for limits of callers who are not identified.
	Source limits.SourceMode
	// Unverified limits calls whose caller only a member can identify; nil for no limit.
	Unverified Unverified
	// Hold carries watches of the gateway's own API and of the fleet, which do answers; nil calls do.
	Hold func(w http.ResponseWriter, r *http.Request, user string, do Handler) error
}

// Handler answers a call or returns a *status.Error.
type Handler func(w http.ResponseWriter, r *http.Request) error

// RootCall is a call to the gateway's own API by a caller who is identified, and may not yet do what they ask.
type RootCall struct {
	Path, Query string // escaped, as sent, without what precedes the API's own path
	User        *identity.User
	// Decided is told whether the caller may, and why.
	Decided func(allowed bool, reason string)
	// Created is told the name of what the call creates, which its URL does not have.
	Created func(name string)
	// Watch has do answer a call that stays open, for as long as the credential lasts and may returns nil.
	Watch func(w http.ResponseWriter, r *http.Request, may func(context.Context) error, do Handler) error
}

// Fleet answers calls to many clusters as if they were one; package fleet has the one. (Functions that answer for one cluster do not
// link it.)
type Fleet interface {
	// Do answers r, which c.User makes, as forward.Do does; or, where the call is one cluster's alone, it returns the call to go on
	// with, its Route and its Query, which is not authorized yet. A stream of several clusters is returned as a call with Carry, which looks
	// itself whether each of them may still be followed.
	Do(w http.ResponseWriter, r *http.Request, c forward.Call) (next *forward.Call, err error)
}

// Gateway is the http.Handler for every URL of the grammar. It is safe for concurrent use.
type Gateway struct {
	cfg         Config
	crossOrigin *http.CrossOriginProtection
	ahead       atomic.Bool // a call was read ahead for; see admit
	reported    reported    // by a function, in the log of its calls
}

// New returns the handler.
func New(cfg Config) *Gateway {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Recheck == 0 {
		cfg.Recheck = recheck
	}
	if cfg.Patience == 0 {
		cfg.Patience = patience
	}
	return &Gateway{cfg: cfg, crossOrigin: cfg.Origins.protection()}
}

// Close writes the audit events that wait, until ctx ends. No call may come any more.
func (g *Gateway) Close(ctx context.Context) error {
	if g.cfg.Audit == nil {
		return nil
	}
	return g.cfg.Audit.Close(ctx)
}

// AuditLog returns the audit log, nil for none.
func (g *Gateway) AuditLog() *audit.Log { return g.cfg.Audit }

// AuditStats counts what the audit log did. It is zero without one.
func (g *Gateway) AuditStats() audit.Stats {
	if g.cfg.Audit == nil {
		return audit.Stats{}
	}
	return g.cfg.Audit.Stats()
}

// call is one request on its way, and what the log says of it.
type call struct {
	route  route.Route
	query  string
	res    route.Resource
	user   *identity.User
	bearer string // for a cluster of identity passthrough
	err    *status.Error
	ended  *status.Error // why a stream was ended that had begun
	gone   bool          // the client left before there was an answer
	audit  *audit.Request
	answer http.Header // the response header
	stale  uint64      // number of stale reads of caches before a function's call
	leave  func()      // gives back the place that the caller was admitted to

	unverified UnverifiedCall // limits a bearer token that only the member can check; nil for none

	reached string // clusters, with commas between: whose object a call to the fleet read, or those that it changed
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{audit: g.cfg.Audit.Begin(r), answer: w.Header(), leave: func() {}}
	c.setAuditID(r)
	defer c.end()
	sandbox(w.Header())
	r = r.WithContext(limits.WithSource(r.Context(), g.cfg.Source.Source(r)))
	rec := &recorder{ResponseWriter: w}
	rec.pace, r.Body = newPace(w, r.Body, g.cfg.Patience)
	defer rec.end()
	start := time.Now()
	if g.cfg.Function != nil {
		c.stale = g.staleReads()
	}
	defer g.finish(rec, r, c, start)
	if err := g.serve(rec, r, c); err != nil {
		err = cmp.Or(rec.pace.late(), err) // net/http takes a client that is late for one that is gone
		if r.Context().Err() != nil && errors.Is(err, context.Canceled) && rec.code == 0 {
			// The client is gone, or the server ends. To return would be to say 200.
			c.gone = true
			panic(http.ErrAbortHandler)
		}
		c.err = status.From(err)
		if rec.code == 0 {
			refuse(rec, r, err)
		}
	}
}

// maxRefused is how much of a refused call's body is read, in bytes, so that a client that sends it gets to read why it was refused.
const maxRefused = 4 << 20

// refuse answers with an error, and keeps a refused call from holding its connection: net/http would read the rest of the body for as long
// as it comes; and a connection that is closed unread is reset, which takes the answer from its client.
func refuse(w *recorder, r *http.Request, err error) {
	w.pace.refused()
	if r.ContentLength == 0 {
		status.Write(w, err)
		return
	}
	w.Header().Set("Connection", "close")
	status.Write(w, err)
	_ = w.pace.conn.Flush()
	_, _ = io.CopyN(io.Discard, r.Body, maxRefused)
}

func (g *Gateway) serve(w *recorder, r *http.Request, c *call) error {
	path, query, _ := strings.Cut(r.RequestURI, "?")
	var err error
	if c.route, err = route.Parse(path); err != nil {
		return status.New(status.BadRequest, "", "the URL cannot be understood: %w", err)
	}
	c.query = query
	c.res = route.ParseResource(r.Method, c.route.Path, query)
	c.audit.Target(c.route.Cluster, c.res)
	if err := c.admitToAudit(r); err != nil {
		return err
	}
	if !slices.Contains(methods, r.Method) {
		return status.New(status.BadRequest, "", "the method %q is none of Kubernetes'", r.Method)
	}
	if err := g.checkOrigin(r); err != nil {
		return err
	}
	if c.route.Kind == route.Gateway && g.cfg.Passes != nil {
		if done, err := g.cfg.Passes.Serve(w, r, c.route.Path); done {
			return err
		}
	}
	if c.route.Kind == route.Gateway && g.cfg.Public != nil && g.cfg.Public(w, r, c.route.Path) {
		return nil
	}
	if c.route.Kind == route.Fleet && g.cfg.Fleet != nil {
		if done, err := g.fleet(w, r, c); done || err != nil {
			return err
		}
	}
	if c.route.Kind != route.Cluster {
		if err := g.identify(r, c); err != nil {
			return err
		}
		if c.route.Kind == route.Gateway && discover(w, r, c.route.Path) {
			return nil
		}
		if c.route.Kind == route.Gateway && g.cfg.Root != nil {
			next, err := g.root(w, r, c)
			if err != nil || next == "" {
				return err
			}
			c.route.Kind, c.route.Cluster = route.Cluster, next
			c.audit.Target(next, c.res)
		} else if f := g.cfg.Function; f != nil {
			return f.send(w, r, c.route, "another function answers the call")
		} else {
			return status.New(status.UnknownPath, "", "the gateway serves nothing at %s; member clusters are under /clusters/NAME", path)
		}
	}
	m, err := g.admit(r, c)
	if err == nil {
		err = serviceProxy(m.Cluster, c.res) // whoever calls, and by whatever identity
	}
	if err != nil {
		return err
	}
	if f := g.cfg.Function; f != nil {
		if err := f.redirect(w, r, c.route, c.query); err != nil {
			return err
		}
	}
	if r, err = g.receive(r, c); err != nil {
		return err
	}
	fc := forward.Call{
		Route: c.route, Query: c.query, User: c.user, Bearer: c.bearer, Member: m,
		Renew: g.cfg.Members.Renew, Answered: c.answered(r.Method),
	}
	if !route.Streams(r.Method, c.route.Path, c.query, r.Header) {
		return g.forward(w, r, fc)
	}
	attrs, mode := access.Cluster(c.route.Cluster, r.Method, r.Header), m.Cluster.Mode()
	r, done := g.guard(r, c, func(ctx context.Context) error { return g.still(ctx, c, mode, attrs) })
	defer done()
	w.carried(c)
	if g.cfg.Stream != nil {
		return g.cfg.Stream(w, r, fc)
	}
	return forward.Do(w, r, fc)
}

// forward answers a call that is no stream.
func (g *Gateway) forward(w http.ResponseWriter, r *http.Request, c forward.Call) error {
	if g.cfg.AdmitTo != nil {
		done, err := g.cfg.AdmitTo(c.Member.Cluster.Name)
		if err != nil {
			return err
		}
		defer done()
	}
	if f := g.cfg.Function; f != nil {
		return f.forward(w, r, c)
	}
	return forward.Do(w, r, c)
}

// fleet answers a call to the fleet. A call that is one cluster's alone is not done: c is a call to that cluster then.
func (g *Gateway) fleet(w *recorder, r *http.Request, c *call) (done bool, err error) {
	if err := g.identify(r, c); err != nil {
		return false, err
	}
	if f := g.cfg.Function; f != nil {
		if err := f.redirect(w, r, c.route, c.query); err != nil {
			return false, err
		}
	}
	next, err := g.cfg.Fleet.Do(w, r, forward.Call{Route: c.route, Query: c.query, User: c.user, Reached: func(clusters ...string) {
		c.reached = strings.Join(clusters, ",")
		c.audit.Reached(c.reached)
	}})
	if err == nil || status.From(err).Reason != status.Forbidden {
		c.audit.Decision(true, "each cluster of the fleet by itself")
	} else {
		c.audit.Decision(false, "")
	}
	switch {
	case next == nil || err != nil:
		return true, err
	case next.Carry != nil:
		r, done := g.guard(r, c, func(ctx context.Context) error { return holds(ctx, c.user) })
		defer done()
		w.carried(c)
		if g.cfg.Hold != nil {
			return true, g.cfg.Hold(w, r, c.user.Name, next.Carry)
		}
		return true, next.Carry(w, r)
	}
	c.route, c.query = next.Route, next.Query
	c.res = route.ParseResource(r.Method, c.route.Path, c.query)
	c.audit.Target(c.route.Cluster, c.res)
	return false, nil
}

// root answers a call to the gateway's own API.
func (g *Gateway) root(w *recorder, r *http.Request, c *call) (next string, err error) {
	if f := g.cfg.Function; f != nil {
		if err := f.redirect(w, r, c.route, c.query); err != nil {
			return "", err
		}
	}
	return g.cfg.Root(w, r, RootCall{
		Path: c.route.Path, Query: c.query, User: c.user, Decided: c.audit.Decision, Created: c.audit.Created,
		Watch: func(_ http.ResponseWriter, r *http.Request, may func(context.Context) error, do Handler) error {
			r, done := g.guard(r, c, func(ctx context.Context) error { return cmp.Or(holds(ctx, c.user), may(ctx)) })
			defer done()
			w.carried(c)
			if g.cfg.Hold != nil {
				return g.cfg.Hold(w, r, c.user.Name, do)
			}
			return do(w, r)
		},
	})
}

// healthPaths are the gateway's own paths that answer even if audit events cannot be recorded.
var healthPaths = []string{"/healthz", "/livez", "/readyz"}

// admitToAudit returns a *status.Error if the call must not go on, since its audit event cannot be recorded.
func (c *call) admitToAudit(r *http.Request) error {
	if c.route.Kind == route.Gateway && slices.Contains(healthPaths, c.route.Path) {
		return nil
	}
	return c.audit.Admit(r.Context())
}

// setAuditID gives members and the client the id of the audit event, in place of any that the client sent.
func (c *call) setAuditID(r *http.Request) {
	if c.audit.ID() == "" {
		r.Header.Del(audit.IDHeader)
		return
	}
	r.Header.Set(audit.IDHeader, c.audit.ID())
	c.answer.Set(audit.IDHeader, c.audit.ID())
}

// methods are those that kube-apiserver has a use for. TRACE, for one, would send the gateway's credential back.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

// finish logs the call, and turns a panic into a Status where nothing was written yet.
func (g *Gateway) finish(w *recorder, r *http.Request, c *call, start time.Time) {
	p := recover()
	broke := p != nil && p != http.ErrAbortHandler //nolint:errorlint // net/http compares it so
	if broke {
		c.err = &status.Error{Reason: status.Internal, Message: "the gateway failed to handle the call; its log has the cause"}
		g.cfg.Log.Error("panic", "path", c.route.Path, "panic", p, "stack", string(debug.Stack()))
		if w.code == 0 {
			status.Write(w, c.err)
			p = nil
		} else {
			p = http.ErrAbortHandler
		}
	}
	c.err = cmp.Or(c.err, c.ended)
	res, sent := c.res, w.sent.Load()
	c.audit.Bytes(sent, w.bytesReceived())
	if broke {
		c.audit.Panicked()
	} else {
		c.audit.Completed(w.code, c.err)
	}
	attrs := []slog.Attr{
		slog.String("method", r.Method), slog.String("cluster", cmp.Or(c.route.Cluster, c.reached)), slog.String("verb", res.Verb),
		slog.String("resource", resourceName(res)), slog.String("namespace", res.Namespace), slog.String("name", res.Name),
		slog.Int("code", w.code), slog.Int64("bytes", sent), slog.Duration("duration", time.Since(start)),
	}
	if c.user != nil {
		attrs = append(attrs, slog.String("user", c.user.Name))
		if c.user.Impersonator != "" {
			attrs = append(attrs, slog.String("impersonator", c.user.Impersonator))
		}
	}
	level := slog.LevelInfo
	if g.cfg.Function != nil {
		metrics, least := g.metricAttrs(g.staleReads() - c.stale)
		attrs, level = append(attrs, metrics...), max(level, least)
	}
	if c.err != nil {
		attrs = append(attrs, slog.String("reason", string(c.err.Reason)), slog.String("error", c.err.Message))
		if c.err.Err != nil && c.err.Code() >= 500 {
			attrs = append(attrs, slog.String("cause", c.err.Err.Error()))
			level = max(level, slog.LevelWarn)
		}
	}
	switch {
	case p != nil:
		attrs = append(attrs, slog.String("reason", string(status.Aborted)))
	case c.gone:
		attrs = append(attrs, slog.String("reason", "client_gone"))
	}
	g.cfg.Log.LogAttrs(r.Context(), level, "request", attrs...)
	if p != nil {
		panic(p)
	}
}

func resourceName(r route.Resource) string {
	name := r.Resource
	if r.Subresource != "" {
		name += "/" + r.Subresource
	}
	if r.APIGroup != "" {
		name += "." + r.APIGroup
	}
	return name
}
