package gateway

import (
	"context"
	"errors"
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
	// largeBody is the minimum size in bytes of a body that a function redirects to the bridge. Bodies of unknown length
	// are redirected, too. The response to a write contains the written object again, with fields that the
	// member adds. That response must fit in 1 MB, the maximum that an Application Load Balancer accepts from a function.
	largeBody     = 256 << 10
	maxOverflowed = 1024
	overflowedTTL = 5 * time.Minute
	// FirstByte is the default of Function.FirstByte.
	FirstByte = 5 * time.Second
	maxSlow   = 1024
	slowTTL   = 30 * time.Second
	// slowFactor limits slow requests with the same key to about a twentieth of a process's time. After a slow request of
	// duration d, its key stays in Function.slow for slowFactor*d, and at least for slowTTL.
	slowFactor = 20
)

// Function redirects a request to the bridge if a function cannot serve it. A 307 makes the client repeat a request
// that the member has not received, or a read or dry run. A 303 to the object follows a completed write. No write is
// made twice.
//
// It is safe for concurrent use. A nil Function redirects nothing.
type Function struct {
	// FirstByte is the deadline for the beginning of a member's response to a read that forward sends. After the deadline,
	// forward redirects the read to the bridge. The fleet's reads of members have the deadline of fleet.Config instead.
	// A request that lasts FirstByte or longer is slow. After a slow request, forward and callFleet redirect similar
	// requests for some time. Otherwise waiting requests could use up the concurrency that all members share.
	FirstByte time.Duration
	// Name and Version identify a published version of the function in Lambda, and are dimensions of the metrics of that
	// version. Both are "" for the version $LATEST.
	Name, Version string

	bridge     string     // base URL, or "" for the host of the request
	overflowed recentKeys // keys from overflowKey
	slow       recentKeys // keys of slow requests, from readKey, writeKey and fleetKey
}

// NewFunction returns a Function for the bridge at a base URL. "" means the host of the request.
func NewFunction(bridge string) *Function {
	return &Function{
		FirstByte: FirstByte, bridge: strings.TrimRight(bridge, "/"),
		overflowed: newRecentKeys(maxOverflowed), slow: newRecentKeys(maxSlow),
	}
}

type recentKeys struct {
	*cache.Expiring[string, struct{}]
}

func newRecentKeys(size int) recentKeys {
	return recentKeys{cache.NewExpiring[string, struct{}](size, nil)}
}

func (k recentKeys) add(key string, ttl time.Duration) { k.Add(key, struct{}{}, time.Now().Add(ttl)) }

func (k recentKeys) has(key string) bool {
	_, ok := k.Get(key)
	return ok
}

func (f *Function) redirectUnserved(w http.ResponseWriter, r *http.Request, req route.Request) error {
	if f == nil {
		return nil
	}
	var why string
	switch {
	case req.IsStream:
		why = "the call is a stream"
	case r.ContentLength < 0 || r.ContentLength >= largeBody:
		why = "the call has a large body"
	case req.Resource.Verb == "deletecollection":
		why = "the answer may be large"
	case f.overflowed.has(overflowKey(r)):
		why = "the answer is large"
	default:
		return nil
	}
	return f.redirectTo(w, r, req.Route, why)
}

var errFirstByte = fmt.Errorf("the answer did not begin in time: %w", context.DeadlineExceeded)

// forward works like forward.Do, but redirects these requests to the bridge:
//   - all requests of a user to the cluster, after a slow read of that user. Callers with unverified tokens count as
//     one user.
//   - the writes of all users to the cluster, after a slow write.
//   - a read whose response does not begin within FirstByte. A write continues in the function.
//   - a request that the member's circuit breaker refuses. The bridge has a breaker of its own, which may allow the
//     request as a trial.
func (f *Function) forward(w http.ResponseWriter, r *http.Request, c *forward.Call) error {
	name, isRead := c.Member.Cluster.Name, isSafeMethod(r.Method)
	read, write := readKey(name, c.User), writeKey(name)
	if f.slow.has(read) || !isRead && f.slow.has(write) {
		return f.redirectTo(w, r, c.Route, fmt.Sprintf("cluster %q answers slowly", name))
	}
	key := write
	if isRead {
		key = read
	}
	defer f.measure(key)()
	err := f.forwardInTime(w, r, c)
	var refused *status.Error
	switch {
	case errors.Is(err, errFirstByte):
		why := fmt.Sprintf("cluster %q did not begin to answer within %s", name, f.FirstByte)
		return f.redirectTo(w, r, c.Route, why)
	case errors.As(err, &refused) && refused.Reason == status.CircuitOpen:
		why, _, _ := strings.Cut(refused.Message, ";")
		return f.redirectTo(w, r, c.Route, why)
	}
	return err
}

// forwardInTime returns errFirstByte if the response to a read does not begin within FirstByte.
func (f *Function) forwardInTime(w http.ResponseWriter, r *http.Request, c *forward.Call) error {
	if !isSafeMethod(r.Method) {
		return forward.Do(w, r, c)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	const waiting, begun, late = 0, 1, 2
	var state atomic.Int32
	deadline := time.AfterFunc(f.FirstByte, func() {
		if state.CompareAndSwap(waiting, late) {
			cancel(errFirstByte)
		}
	})
	defer deadline.Stop()
	observed := *c
	observed.Observer = &firstByteObserver{next: c.Observer, begin: func() error {
		if !state.CompareAndSwap(waiting, begun) {
			return errFirstByte
		}
		return nil
	}}
	err := forward.Do(w, r.WithContext(ctx), &observed)
	if err != nil && state.Load() == late {
		return errFirstByte
	}
	return err
}

// measure returns a function to call at the end of a request. If the request lasted FirstByte or longer, that function
// adds the key to f.slow for slowFactor times the duration, and at least for slowTTL.
func (f *Function) measure(key string) (end func()) {
	began, slow := time.Now(), f.FirstByte
	return func() {
		if d := time.Since(began); d >= slow {
			f.slow.add(key, max(slowFactor*d, slowTTL))
		}
	}
}

// callFleet calls the fleet. For some time after a slow call of the same user, it redirects to the bridge instead.
func (f *Function) callFleet(
	w http.ResponseWriter, r *http.Request, c forward.FleetCall, fleet Fleet,
) (*forward.Remainder, error) {
	if f == nil {
		return fleet.Do(w, r, c)
	}
	key := fleetKey(c.User)
	if f.slow.has(key) {
		return nil, f.redirectTo(w, r, c.Route, "some clusters answer slowly")
	}
	defer f.measure(key)()
	return fleet.Do(w, r, c)
}

type firstByteObserver struct {
	next  forward.ResponseObserver
	begin func() error
}

func (o *firstByteObserver) ObserveResponse(code int) error {
	if err := o.begin(); err != nil || o.next == nil {
		return err
	}
	return o.next.ObserveResponse(code)
}

// readKey contains the user, so that one user's slow reads do not redirect the reads of others. For u == nil, only the
// member can verify the caller's token. The key does not contain that token, because any client can make up many
// tokens.
func readKey(cluster string, u *identity.User) string {
	if u == nil {
		return cluster + " "
	}
	return cluster + " " + u.Name
}

// writeKey contains no user, so one slow write redirects the writes of all users. A function cannot abort a write. With
// a key for each user, the slow writes of many users could occupy all processes.
func writeKey(cluster string) string { return cluster }

func fleetKey(u *identity.User) string { return " " + u.Name }

// redirectTo returns a *status.Error that redirects to the request's URL under /bridge. If the request already has that
// URL, a redirect would loop, so the error explains the wrong configuration instead.
func (f *Function) redirectTo(w http.ResponseWriter, r *http.Request, rt route.Route, why string) error {
	if rt.Bridge && f.bridge == "" {
		return status.New(status.Internal, "",
			"the call cannot be redirected: the load balancer sends /bridge to a function instead of the bridge; "+
				"an administrator must route /bridge to the bridge")
	}
	w.Header().Set("Location", f.location(r.RequestURI))
	return f.redirected(why, r.RequestURI)
}

func (f *Function) redirected(why, uri string) *status.Error {
	return status.New(status.Redirected, "",
		"%s; follow the redirect to the bridge at %s, as most clients do; curl needs -L",
		why, f.location(uri))
}

func (f *Function) location(uri string) string {
	if strings.HasPrefix(uri, "/bridge/") {
		return f.bridge + uri
	}
	return f.bridge + "/bridge" + uri
}

// overflowKey contains the method: a list of a collection may be too large, while the response to a creation there is
// small.
func overflowKey(r *http.Request) string { return r.Method + " " + r.RequestURI }

// Overflow returns the handler that replaces a response too large for a function. code is the status code of that
// response. Overflow implements lambdahttp.Options.Overflow.
func (f *Function) Overflow(r *http.Request, code int, _ http.Header) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		path, query, _ := strings.Cut(r.RequestURI, "?")
		switch {
		case changedNothing(r.Method, query):
			f.overflowed.add(overflowKey(r), overflowedTTL)
			w.Header().Set("Location", f.location(r.RequestURI))
			status.Write(w, f.redirected("the answer is larger than a function can send", r.RequestURI))
		case code < http.StatusOK || code >= http.StatusMultipleChoices:
			status.Write(w, status.New(status.Aborted, "",
				"the member refused with HTTP %d and an explanation larger than a function can send", code))
		case r.Method == http.MethodPut || r.Method == http.MethodPatch:
			f.overflowed.add(overflowKey(r), overflowedTTL)
			w.Header().Set("Location", f.location(path))
			err := f.redirected("the write is done; the object is larger than a function can send", path)
			status.WriteCode(w, err, http.StatusSeeOther)
		default: // a deletion, whose object may be gone, or a creation, whose object has another URL
			status.WriteSuccess(w, code, metav1.Status{Message: "done; the answer is larger than a function can send"})
		}
	})
}

// changedNothing reports whether a request was a read or a dry run, so that the bridge may repeat it. It returns false
// for every DELETE, because the body of a DELETE may contradict dryRun in the query.
func changedNothing(method, query string) bool {
	return route.IsRead(method) || method != http.MethodDelete && isDryRun(query)
}

func isDryRun(query string) bool {
	q, err := url.ParseQuery(query)
	values := q["dryRun"]
	return err == nil && len(values) > 0 &&
		!slices.ContainsFunc(values, func(v string) bool { return v != metav1.DryRunAll })
}
