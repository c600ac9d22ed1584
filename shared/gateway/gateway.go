// Package gateway has the http.Handler that authenticates a caller, authorizes the request, and forwards it.
//
// The [Gateway] dispatches each request to the gateway's own [API], to the [Fleet] or to one member cluster. [Streamer]
// and [Admission] limit open streams and concurrent requests. On AWS Lambda, a [Function] redirects to the bridge what
// Lambda cannot serve.
//
// Invariants:
//   - With audit.Config.FailClosed, a request is refused while the audit queue is full, or while its caller's events
//     occupy a quarter of it. Only the URL is parsed before the check of the queue: a malformed URL gets 400. Exempt
//     are health checks, and all requests while audit.Config.Override returns true.
//   - The origin of a web page is checked before the caller is identified.
//   - The caller is authorized before the response can depend on whether a cluster exists. Passthrough clusters are an
//     exception: they authorize their callers themselves. During an outage of the store, a made-up token gets 401 for
//     a cached cluster, and may get 503 for another name.
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
	"sync"
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

// Config contains the parts of a Gateway. Identity, Access and Members are required, and all others are optional.
type Config struct {
	Identity identity.Chain
	Access   *access.Authorizer
	Members  *cluster.Members
	// Passes and Tokens recognize bearer tokens for the gateway, which are never forwarded. Passes also serves the OIDC
	// discovery document and the keys with which others verify passes.
	Passes *passes.Verifier
	Tokens TokenRecognizer
	// Without API or Fleet, authenticated requests for the missing one get a 404, or in functions a redirect to the
	// bridge. The discovery documents of OIDC and of Karpor need no API.
	API   API
	Fleet Fleet
	// Without Recordings, no session is recorded.
	Recordings RecordingPolicies
	// Without Streams and Admission, open streams and concurrent requests have no limit.
	Streams   Streamer
	Admission Admission
	// Function is set only in programs on AWS Lambda.
	Function *Function
	// Source selects where the client's address is read. Limits for unidentified callers use that address.
	Source limits.SourceMode
	// Origins are the origins of web pages that may open websockets and write through a visitor's browser. Pages of the
	// gateway's own origin are always allowed.
	Origins Origins
	// Recheck is the pause between checks whether an open stream is still allowed. 0 means 2 s.
	Recheck time.Duration
	// ClientTimeout limits the wait for each 256 KiB of a request's body. It also limits each write of up to 256 KiB of a
	// response. 0 means one minute. It does not apply to streams.
	ClientTimeout time.Duration
	// DiscoveryTimeout is how long a read of /api, /apis or /version waits for a member's response headers. 0 means 10 s.
	// It does not apply in functions, or to members with a credential plugin.
	DiscoveryTimeout time.Duration
	// Log receives one event for each request, and another for a panic. Beyond UnidentifiedRate, one event represents
	// several requests of unidentified callers. nil means slog.Default().
	Log *slog.Logger
	// UnidentifiedRate is the number of events per second in Log for unidentified callers, with a burst of 60 times that.
	// A summary counts the other requests. 0 means limits.DefaultUnidentifiedRate.
	UnidentifiedRate int
	Audit            *audit.Log
	// Caches return the statistics of caches by name.
	Caches []func() map[string]cache.Stats
	// Observe is called once after each request, concurrently. Optional.
	Observe func(Completed)
	// MetricsNamespace is the namespace of the CloudWatch metrics in a function's log. "" means no metrics.
	MetricsNamespace string
}

// Gateway implements http.Handler. It is safe for concurrent use.
type Gateway struct {
	cfg         Config
	crossOrigin *http.CrossOriginProtection
	discovery   *discovery
	prefetched  atomic.Bool // see authorizedMember
	reportedMu  sync.Mutex
	reported    metricCounts // guarded by reportedMu
	// failed counts the requests with an error of the gateway whose code is 5xx. Responses with 5xx that come from members
	// do not count. Errors about unreachable members count for identified callers only. Otherwise any client could raise
	// the alarm that rolls back a new version of a function.
	failed atomic.Uint64

	unidentified *limits.Combiner[logEvent]
}

// New returns a Gateway. It panics if Origins are malformed.
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
	g := &Gateway{
		cfg: cfg, crossOrigin: cfg.Origins.protection(),
		discovery: newDiscovery(cmp.Or(cfg.DiscoveryTimeout, defaultDiscoveryTimeout)),
	}
	flush := func() { g.logSummary(0) }
	if cfg.Function != nil {
		flush = nil // the process may be frozen after a response
	}
	g.unidentified = limits.NewCombiner[logEvent](cfg.UnidentifiedRate, flush)
	return g
}

// Close logs the summary of requests that had no log event of their own. Then it delivers the queued audit events,
// until ctx ends, and closes the audit log. No request may follow.
func (g *Gateway) Close(ctx context.Context) error {
	g.logSummary(0)
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
	counting, r, c := g.begin(w, r)
	defer c.end()
	defer counting.end()
	defer g.finish(counting, r, c)
	if err := g.serve(counting, r, c); err != nil {
		fail(counting, r, c, err)
	}
}

// begin sets Audit-Id and the sandbox headers. The returned request has the client's address in its context, and a
// body with deadlines.
func (g *Gateway) begin(w http.ResponseWriter, r *http.Request) (*countingWriter, *http.Request, *call) {
	c := newCall(g.cfg.Audit.Begin(r), w.Header())
	c.setAuditID(r)
	sandbox(w.Header())
	r = r.WithContext(limits.WithSource(r.Context(), g.cfg.Source.Source(r)))
	counting := &countingWriter{ResponseWriter: w}
	counting.deadlines, r.Body = newDeadlines(w, r, g.cfg.ClientTimeout)
	return counting, r, c
}

// serve returns a *status.Error or, if the client has gone, the context's error. The caller of serve must write
// the error, unless a response has begun.
func (g *Gateway) serve(w *countingWriter, r *http.Request, c *call) error {
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

// accept parses the URL and makes the checks that do not depend on the caller.
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

// methods are the methods that kube-apiserver supports. Others are refused: the response to a TRACE could contain the
// credential that the gateway sends to the member.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodOptions,
}

// fail writes an error, or panics with http.ErrAbortHandler if the client is gone. It does neither once a response has
// begun.
func fail(w *countingWriter, r *http.Request, c *call, err error) {
	// If the body exceeded its deadline, net/http has cancelled the request's context. Check that first: the client is
	// still connected, and gets the error.
	err = cmp.Or(w.deadlines.late(), err)
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) && w.code == 0 {
		panic(http.ErrAbortHandler) // a return would send a response of 200
	}
	c.err = status.From(err)
	if w.code == 0 {
		writeRefusal(w, r, err, errorWriter(r, c))
	}
}

// errorWriter returns status.WriteText for clients that do not show a metav1.Status to their user.
func errorWriter(r *http.Request, c *call) func(http.ResponseWriter, error) *status.Error {
	if readsText(r, c.request.Route.Path) {
		return status.WriteText
	}
	return status.Write
}

// maxRefusedBody is the maximum number of bytes of a refused request's body that the gateway reads.
const maxRefusedBody = 4 << 20

// writeRefusal writes err with writeError. For a request with a body, it also sends "Connection: close". Without that
// header, net/http would read up to 256 KiB of the body before it sends the response. After the response, writeRefusal
// reads up to maxRefusedBody bytes of the body. A connection that is closed with unread bytes is reset, and the client
// could lose the response.
func writeRefusal(
	w *countingWriter, r *http.Request, err error, writeError func(http.ResponseWriter, error) *status.Error,
) {
	w.deadlines.refuse()
	if r.ContentLength == 0 {
		_ = writeError(w, err)
		return
	}
	w.Header().Set("Connection", "close")
	_ = writeError(w, err)
	_ = w.deadlines.conn.Flush()
	_, _ = io.CopyN(io.Discard, r.Body, maxRefusedBody)
}
