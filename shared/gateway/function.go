package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// largeWrite is the size in bytes of a write's body from which a function does not begin it: its answer holds the
	// object again with what the member adds, and must fit into the front door's 1 MB.
	largeWrite = 256 << 10
	// overflowMemory and overflowTTL bound what a function remembers of answers that did not fit.
	overflowMemory = 1024
	overflowTTL    = 5 * time.Minute
	// FirstByte is the default of Function.FirstByte.
	FirstByte = 5 * time.Second
	// slowMemory and slowTTL bound what a function remembers of slow answers.
	slowMemory = 1024
	slowTTL    = 30 * time.Second
)

// Function knows what a function cannot hold and sends it to the bridge: by 307 before a call is made, so that clients repeat
// it there as it is; for a write that is done, by a 303 to the object. A write is never made twice.
type Function struct {
	// FirstByte is the deadline for the beginning of a member's answer. After it a read goes to the bridge. A waiting
	// function would use up the concurrency that all members share.
	FirstByte time.Duration

	bridge     string
	overflowed recentKeys // request URIs
	slow       recentKeys // see slowKey
}

// NewFunction returns the rules of a function whose bridge has the base URL bridge; "" is the host that the client
// called.
func NewFunction(bridge string) *Function {
	return &Function{
		FirstByte: FirstByte, bridge: strings.TrimRight(bridge, "/"),
		overflowed: newRecentKeys(overflowMemory, overflowTTL), slow: newRecentKeys(slowMemory, slowTTL),
	}
}

// recentKeys remembers a bounded number of keys, each for ttl.
type recentKeys struct {
	ttl  time.Duration
	keys *cache.Expiring[string, struct{}]
}

func newRecentKeys(size int, ttl time.Duration) recentKeys {
	return recentKeys{ttl, cache.NewExpiring[string, struct{}](size, nil)}
}

func (k recentKeys) add(key string) { k.keys.Add(key, struct{}{}, time.Now().Add(k.ttl)) }

func (k recentKeys) has(key string) bool {
	_, ok := k.keys.Get(key)
	return ok
}

// redirect returns a *status.Error of reason Redirected for a call that must go to the bridge.
func (f *Function) redirect(w http.ResponseWriter, r *http.Request, rt route.Route, query string) error {
	res := route.ParseResource(r.Method, rt.Path, query)
	var why string
	switch {
	case route.Streams(r.Method, rt.Path, query, r.Header):
		why = "the call is a stream"
	case r.ContentLength < 0 || r.ContentLength >= largeWrite:
		why = "the call has a large body"
	case res.Verb == "deletecollection":
		why = "the answer may be large"
	case f.overflowed.has(r.RequestURI):
		why = "the answer is large"
	default:
		return nil
	}
	return f.send(w, r, rt, why)
}

// errFirstByte ends a read whose answer does not begin. The member had its deadline: this is no caller's cancellation.
var errFirstByte = fmt.Errorf("the answer did not begin in time: %w", context.DeadlineExceeded)

// forward is forward.Do, except that a read goes to the bridge if its answer does not begin within FirstByte. For a
// while, so do all requests of that caller to that member. A write that the member has begun goes on.
func (f *Function) forward(w http.ResponseWriter, r *http.Request, c forward.Call) error {
	name, key := c.Member.Cluster.Name, slowKey(c)
	if f.slow.has(key) {
		return f.send(w, r, c.Route, fmt.Sprintf("cluster %q answers slowly", name))
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	const waiting, begun, late = 0, 1, 2
	var state atomic.Int32
	deadline := time.AfterFunc(f.FirstByte, func() {
		if state.CompareAndSwap(waiting, late) {
			f.slow.add(key)
			if isRead(r.Method) {
				cancel(errFirstByte)
			}
		}
	})
	defer deadline.Stop()
	c.Begins = func() error {
		if !state.CompareAndSwap(waiting, begun) && isRead(r.Method) {
			return errFirstByte
		}
		return nil
	}
	err := forward.Do(w, r.WithContext(ctx), c)
	if err != nil && isRead(r.Method) && state.Load() == late {
		return f.send(w, r, c.Route, fmt.Sprintf("cluster %q did not begin to answer within %s", name, f.FirstByte))
	}
	return err
}

// slowKey identifies a caller and a member cluster. One caller's slow paths must not move the requests of others to the
// bridge.
func slowKey(c forward.Call) string {
	user := ""
	if c.User != nil {
		user = c.User.Name
	}
	return c.Member.Cluster.Name + " " + identity.CallerKey(user, c.Bearer)
}

// send returns a *status.Error of reason Redirected: the bridge answers what a function cannot, for instance because it is another's.
func (f *Function) send(w http.ResponseWriter, r *http.Request, rt route.Route, why string) error {
	if rt.Bridge && f.bridge == "" {
		return status.New(status.Internal, "", "the front door sends /bridge to a function, where it cannot be answered")
	}
	w.Header().Set("Location", f.location(r.RequestURI))
	return f.moved(why, r.RequestURI)
}

func (f *Function) moved(why, uri string) *status.Error {
	return status.New(status.Redirected, "", "%s; it is answered at %s (clients that follow redirects need do nothing; with curl add -L)",
		why, f.location(uri))
}

// location is uri as the bridge serves it.
func (f *Function) location(uri string) string {
	if strings.HasPrefix(uri, "/bridge/") {
		return f.bridge + uri
	}
	return f.bridge + "/bridge" + uri
}

// Overflow answers in place of an answer that did not fit. It has the form that lambdahttp.Options.Overflow wants; code is the
// status of that answer.
func (f *Function) Overflow(r *http.Request, code int, _ http.Header) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		path, query, _ := strings.Cut(r.RequestURI, "?")
		switch {
		case r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method != http.MethodDelete && dryRun(query):
			// Nothing was changed: the bridge may make the call again.
			f.overflowed.add(r.RequestURI)
			w.Header().Set("Location", f.location(r.RequestURI))
			status.Write(w, f.moved("the answer is larger than a function can send", r.RequestURI))
		case code < 200 || code > 299:
			status.Write(w, status.New(status.Aborted, "", "the member refused with HTTP %d and an explanation larger than a function can send", code))
		case r.Method == http.MethodPut || r.Method == http.MethodPatch:
			f.overflowed.add(r.RequestURI)
			w.Header().Set("Location", f.location(path))
			status.WriteCode(w, f.moved("the write is done; the object is larger than a function can send", path), http.StatusSeeOther)
		default: // a deletion or a creation that is done, of an object that may be gone or has a name of its own
			status.WriteSuccess(w, code, metav1.Status{Message: "done; the answer is larger than a function can send"})
		}
	})
}

// dryRun reports whether the query says that a write changes nothing. (A deletion's body decides for itself.)
func dryRun(query string) bool {
	q, err := url.ParseQuery(query)
	values := q["dryRun"]
	return err == nil && len(values) > 0 && !slices.ContainsFunc(values, func(v string) bool { return v != metav1.DryRunAll })
}
