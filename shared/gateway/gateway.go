// Package gateway is the http.Handler that authenticates a caller, authorizes the request, and forwards it.
//
// The [Gateway] dispatches each request to the gateway's own [API], to the [Fleet] or to one member cluster. [Streamer]
// and [Admission] limit open streams and concurrent calls. In a serverless program, such as AWS Lambda, a [Function]
// redirects requests that it cannot serve to the bridge.
//
// Invariants:
//   - The audit log admits a request before it is served or refused. Malformed URLs and health checks skip this.
//   - The origin of a web page is checked before the caller is identified.
//   - The caller is authorized before the response can depend on whether a cluster exists. Passthrough clusters are an
//     exception: they authorize their callers themselves.
//   - A bearer token that is valid at the gateway is never forwarded to a member cluster.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Config contains the parts of a Gateway. Identity, Access and Members are required.
type Config struct {
	Identity identity.Chain
	Tokens   TokenRecognizer
	Access   *access.Authorizer
	Members  *cluster.Members
	// Passes verifies passes, and serves the documents by which others verify them. Optional.
	Passes *passes.Verifier
	// API is optional. Without it, a function redirects requests for the API to the bridge, and other programs respond
	// 404.
	API API
	// Fleet is optional, like API.
	Fleet Fleet
	// Streams is optional.
	Streams Streamer
	// Admission is optional. Without it, concurrent calls have no limit.
	Admission Admission
	// Function is nil outside of functions.
	Function *Function
	// Source selects how the sender's address is found. Limits for unidentified callers use it.
	Source limits.SourceMode
	// Origins are the web pages that may open websockets and write with the credentials of a browser.
	Origins Origins
	// Recheck is the interval at which the caller's rights are checked during a stream. 0 means 10 s.
	Recheck time.Duration
	// ClientTimeout is the time in which a client must accept each write of at most 256 KiB of a response. It is also the
	// time for each 256 KiB of a request's body. 0 means one minute. Streams have other limits.
	ClientTimeout time.Duration
	// DiscoveryTimeout is the time in which a member must begin to answer discovery, outside of functions. 0 means 10 s.
	DiscoveryTimeout time.Duration
	// Log receives one event for each request. nil means slog.Default().
	Log   *slog.Logger
	Audit *audit.Log
	// Caches return the statistics of caches by name. Optional.
	Caches []func() map[string]cache.Stats
	// Namespace of the CloudWatch metrics in a function's log. "" means no metrics.
	Namespace string
}

// Gateway is the http.Handler for every URL that package route parses. It is safe for concurrent use.
type Gateway struct {
	cfg         Config
	crossOrigin *http.CrossOriginProtection
	discovery   *discovery
	prefetched  atomic.Bool // see admit
	reported    metricCounts
}

// New returns a Gateway.
func New(cfg Config) *Gateway {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Streams == nil {
		cfg.Streams = plainStreams{}
	}
	if cfg.Admission == nil {
		cfg.Admission = unlimited{}
	}
	cfg.Recheck = cmp.Or(cfg.Recheck, defaultRecheck)
	cfg.ClientTimeout = cmp.Or(cfg.ClientTimeout, defaultClientTimeout)
	return &Gateway{
		cfg: cfg, crossOrigin: cfg.Origins.protection(),
		discovery: newDiscovery(cmp.Or(cfg.DiscoveryTimeout, defaultDiscoveryTimeout)),
	}
}

// Close writes the queued audit events, until ctx ends. No request may follow.
func (g *Gateway) Close(ctx context.Context) error {
	if g.cfg.Audit == nil {
		return nil
	}
	return g.cfg.Audit.Close(ctx)
}

// AuditLog returns the audit log, or nil if there is none.
func (g *Gateway) AuditLog() *audit.Log { return g.cfg.Audit }

// AuditStats returns the statistics of the audit log. They are zero without a log.
func (g *Gateway) AuditStats() audit.Stats {
	if g.cfg.Audit == nil {
		return audit.Stats{}
	}
	return g.cfg.Audit.Stats()
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec, r, c := g.begin(w, r)
	defer c.end()
	defer rec.end()
	defer g.finish(rec, r, c)
	if err := g.serve(rec, r, c); err != nil {
		fail(rec, r, c, err)
	}
}

// begin returns the request with the address of its sender and with deadlines.
func (g *Gateway) begin(w http.ResponseWriter, r *http.Request) (*recorder, *http.Request, *call) {
	c := newCall(g.cfg.Audit.Begin(r), w.Header())
	c.setAuditID(r)
	sandbox(w.Header())
	r = r.WithContext(limits.WithSource(r.Context(), g.cfg.Source.Source(r)))
	rec := &recorder{ResponseWriter: w}
	rec.deadlines, r.Body = newDeadlines(w, r.Body, g.cfg.ClientTimeout)
	if g.cfg.Function != nil {
		c.staleReads = g.staleReads()
	}
	return rec, r, c
}

// serve returns a *status.Error or, if the client has gone, the context's error. Its caller writes the error, unless a
// response has begun.
func (g *Gateway) serve(w *recorder, r *http.Request, c *call) error {
	if err := g.accept(r, c); err != nil {
		return err
	}
	switch c.request.Route.Kind {
	case route.Gateway:
		return g.serveAPI(w, r, c)
	case route.Fleet:
		return g.serveFleet(w, r, c)
	default:
		return g.serveCluster(w, r, c)
	}
}

// accept refuses requests that no caller may send.
func (g *Gateway) accept(r *http.Request, c *call) error {
	req, err := route.ParseRequest(r.Method, r.RequestURI, r.Header)
	if err != nil {
		return status.New(status.BadRequest, "", "the URL cannot be understood: %w", err)
	}
	c.setRequest(req)
	if err := c.admitToAudit(r); err != nil {
		return err
	}
	if !slices.Contains(methods, r.Method) {
		return status.New(status.BadRequest, "", "the method %q is not supported; use %s", r.Method,
			strings.Join(methods, ", "))
	}
	return g.checkOrigin(r)
}

// methods are the HTTP methods of kube-apiserver. Others are refused: a TRACE would return the gateway's credential.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodOptions,
}

// fail writes an error, unless the response has begun. If the client went away before, it panics with
// http.ErrAbortHandler.
func fail(w *recorder, r *http.Request, c *call, err error) {
	err = cmp.Or(w.deadlines.late(), err) // net/http reports a late body as a client that has gone
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) && w.code == 0 {
		panic(http.ErrAbortHandler) // a return would send a response of 200
	}
	c.err = status.From(err)
	if w.code == 0 {
		refuse(w, r, err, errorWriter(r, c))
	}
}

// errorWriter returns the function that writes an error in the form that the client shows.
func errorWriter(r *http.Request, c *call) func(http.ResponseWriter, error) *status.Error {
	if readsText(r, c.request.Route.Path) {
		return status.WriteText
	}
	return status.Write
}

// maxRefused is how many bytes of a refused request's body are read at most. refuse explains why.
const maxRefused = 4 << 20

// refuse writes an error with write. After a request with a body, it ends the connection. If the connection stayed
// open, net/http would read up to 256 KiB of the body before the response, however slowly they arrive. Before the end,
// refuse reads up to maxRefused bytes: closing a connection with unread bytes resets it, and the client would lose the
// response.
func refuse(w *recorder, r *http.Request, err error, write func(http.ResponseWriter, error) *status.Error) {
	w.deadlines.refuse()
	if r.ContentLength == 0 {
		_ = write(w, err)
		return
	}
	w.Header().Set("Connection", "close")
	_ = write(w, err)
	_ = w.deadlines.conn.Flush()
	_, _ = io.CopyN(io.Discard, r.Body, maxRefused)
}
