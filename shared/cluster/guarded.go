package cluster

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"slices"
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
	cluster string
	breaker *limits.Breaker
	next    http.RoundTripper
}

func (t *guardedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if isProbe(r.Context()) {
		resp, err := t.next.RoundTrip(r)
		t.breaker.Probe(outcome(r.Context(), err))
		return resp, err
	}
	done, retryAfter := t.breaker.Allow()
	if done == nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, circuitOpen(t.cluster, retryAfter)
	}
	var connecting connectTrace
	resp, err := t.next.RoundTrip(r.WithContext(connecting.trace(r.Context())))
	if err != nil && !connecting.Load() {
		done(limits.Ignored)
	} else {
		done(outcome(r.Context(), err))
	}
	return resp, err
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

func circuitOpen(name string, retryAfter time.Duration) error {
	e := status.New(status.CircuitOpen, name, "cluster %q is not called now: it did not answer recently; "+
		"try again in %s, or see its condition Ready for the reason", name, retryAfter.Round(time.Second))
	e.RetryAfter = retryAfter
	return e
}

type probeKey struct{}

// AsProbe returns a context for the gateway's own probes. They pass an open circuit breaker, and open or close it.
func AsProbe(ctx context.Context) context.Context { return context.WithValue(ctx, probeKey{}, true) }

func isProbe(ctx context.Context) bool { return ctx.Value(probeKey{}) != nil }

// isSilent reports whether the last probe of the member got no response. A process that sends few requests has no other
// source. A private cluster without agents is not silent, because its tunnel responds.
func isSilent(c *v1alpha1.Cluster) bool {
	return slices.ContainsFunc(c.Status.Conditions, func(condition metav1.Condition) bool {
		return condition.Type == v1alpha1.Ready && condition.Status == metav1.ConditionFalse &&
			(condition.Reason == string(status.Timeout) ||
				condition.Reason == string(status.Unreachable) && c.Spec.SyncMode != v1alpha1.Pull)
	})
}
