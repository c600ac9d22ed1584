package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/status"
)

// guardedTransport refuses requests while the member's circuit breaker is open. The breaker ignores requests that got a
// connection and no answer, because their callers chose the path.
type guardedTransport struct {
	cluster, host string
	breaker       *limits.Breaker
	failure       *atomic.Pointer[status.Error] // the last Failure that the breaker counted; nil before the first
	stores        *storeGuard                   // nil if the gateway's stores are in no cluster
	next          http.RoundTripper
}

func (t *guardedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if isProbe(r.Context()) {
		resp, err := t.next.RoundTrip(r)
		t.breaker.Probe(t.outcome(r.Context(), err))
		return resp, err
	}
	resp, err := t.stores.check(r, t.send)
	if resp == nil && err == nil {
		return t.send(r)
	}
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return resp, err
}

func (t *guardedTransport) send(r *http.Request) (*http.Response, error) {
	done, retryAfter := t.breaker.Allow()
	if done == nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, t.circuitOpen(retryAfter)
	}
	var connecting connectTrace
	resp, err := t.next.RoundTrip(r.WithContext(connecting.trace(r.Context())))
	if err != nil && !connecting.Load() {
		done(limits.Ignored)
	} else {
		done(t.outcome(r.Context(), err))
	}
	return resp, err
}

// outcome also keeps the explanation of a failure.
func (t *guardedTransport) outcome(ctx context.Context, err error) limits.Outcome {
	o := outcome(ctx, err)
	if o == limits.Failure {
		t.failure.Store(CallFailure(t.cluster, t.host, err))
	}
	return o
}

type connectTrace struct {
	atomic.Bool
	hooks httptrace.ClientTrace
}

func (t *connectTrace) trace(ctx context.Context) context.Context {
	t.hooks.GetConn = func(string) { t.Store(true) }
	t.hooks.GotConn = func(httptrace.GotConnInfo) { t.Store(false) }
	return httptrace.WithClientTrace(ctx, &t.hooks)
}

// outcome ignores errors after a cancellation, because the client may have cancelled. It ignores errors of a private
// cluster's tunnel except timeouts, because they come without delay.
func outcome(ctx context.Context, err error) limits.Outcome {
	var ofTunnel *status.Error
	switch {
	case err == nil:
		return limits.Success
	case errors.As(err, &ofTunnel) && ofTunnel.Reason != status.Timeout:
		return limits.Ignored
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return limits.Ignored
	}
	return limits.Failure
}

// maxCircuitRetry is the longest pause that is sent as Retry-After. client-go waits that long up to ten times, and
// prints nothing meanwhile: with a pause of 28 s, kubectl would wait for minutes. Without the header, it fails at once.
const maxCircuitRetry = time.Second

// circuitOpen returns the error of a request that the breaker refuses. It contains the reason of the last failure. A
// pause of 0 means that there are no trials.
func (t *guardedTransport) circuitOpen(pause time.Duration) error {
	why := fmt.Sprintf("cluster %q did not answer the gateway's last probe", t.cluster)
	if e := t.failure.Load(); e != nil {
		why, _, _ = strings.Cut(e.Message, ";") // without the advice
	}
	when := "when a probe gets an answer"
	if pause > 0 {
		when = "in " + pause.Round(time.Second).String()
	}
	e := status.New(status.CircuitOpen, t.cluster, "%s; the gateway calls it again %s", why, when)
	if pause <= maxCircuitRetry {
		e.RetryAfter = pause
	}
	return e
}

type probeKey struct{}

// AsProbe returns a context for the gateway's own probes. They pass an open circuit breaker, and open or close it.
func AsProbe(ctx context.Context) context.Context { return context.WithValue(ctx, probeKey{}, true) }

func isProbe(ctx context.Context) bool { return ctx.Value(probeKey{}) != nil }

type bufferKey struct{}

// WithBuffer returns a context in which Call uses a buffer. With many members, probes then open no connections beside
// those of lists, whose memory counts hundreds of times.
func WithBuffer(ctx context.Context, b Buffer) context.Context {
	return context.WithValue(ctx, bufferKey{}, b)
}

func (m *Member) transportOf(ctx context.Context) http.RoundTripper {
	b, _ := ctx.Value(bufferKey{}).(Buffer)
	return m.ForFleet(b)
}

// isSilent reports whether the last probe of the member timed out, or got no version. A process with few requests
// learns it only from the condition Ready. A private cluster without agents is not silent, because its tunnel responds.
func isSilent(c *v1alpha1.Cluster) bool {
	return hasTimedOut(c) || hasFailed(c, status.Unreachable) && c.Spec.SyncMode != v1alpha1.Pull
}

// hasTimedOut reports whether the last probe of the member got no response in time.
func hasTimedOut(c *v1alpha1.Cluster) bool { return hasFailed(c, status.Timeout) }

// hasFailed reports whether the condition Ready is false for a reason.
func hasFailed(c *v1alpha1.Cluster, reason status.Reason) bool {
	return slices.ContainsFunc(c.Status.Conditions, func(condition metav1.Condition) bool {
		return condition.Type == v1alpha1.Ready && condition.Status == metav1.ConditionFalse &&
			condition.Reason == string(reason)
	})
}
