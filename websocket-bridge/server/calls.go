package server

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/websocket-bridge/quota"
)

// calls limits the calls that callers have in flight. Streams have limits of their own. Callers with tokens that only a
// member can check have more limits, those of unverified: each new token makes a new caller here.
type calls struct {
	plain    *quota.Quota
	toMember *quota.Quota // by cluster
	refused  *prometheus.CounterVec
}

func newCalls(l Limits, reg prometheus.Registerer) *calls {
	c := &calls{
		plain:    quota.New(l.MaxCalls, l.MaxCallsPerCaller),
		toMember: quota.New(0, l.MaxCallsPerMember),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clusterpass_calls_refused_total",
			Help: "Calls that were refused because of a limit, by which; those of streams alone are failures of streams.",
		}, []string{"limit"}),
	}
	reg.MustRegister(c.refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "clusterpass_calls_open", Help: "Calls in flight that are no streams.",
	}, func() float64 { return float64(c.plain.Held()) }))
	return c
}

// Admit has the form of gateway.Config.Admit.
func (b *Bridge) Admit(user, bearer string) (done func(), err error) {
	c := b.calls
	done, reached := c.plain.Take(callerOf(user, bearer))
	switch reached {
	case quota.Each:
		return nil,
			c.refuse(string(reached), "you have %d calls in flight, the limit for one caller; call again when some have ended",
				b.limits.MaxCallsPerCaller)
	case quota.All:
		return nil,
			c.refuse(string(reached), "the bridge has %d calls in flight, its limit; try again later", b.limits.MaxCalls)
	}
	return done, nil
}

// AdmitTo has the form of gateway.Config.AdmitTo.
func (b *Bridge) AdmitTo(cluster string) (done func(), err error) {
	done, reached := b.calls.toMember.Take(cluster)
	if reached != quota.None {
		return nil, b.calls.refuse("cluster", "cluster %q has %d calls in flight, the limit for one cluster; try again later",
			cluster, b.limits.MaxCallsPerMember)
	}
	return done, nil
}

func (c *calls) refuse(limit, format string, args ...any) error {
	c.refused.WithLabelValues(limit).Inc()
	err := status.New(status.TooManyRequests, "", format, args...)
	err.RetryAfter = retryAfter
	return err
}

// retryAfter is what a refused caller is told to wait.
const retryAfter = 5 * time.Second

// callerOf is whom a call counts for. A token that only the member can read stands for its bearer.
func callerOf(user, bearer string) string {
	if user != "" {
		return user
	}
	sum := sha256.Sum256([]byte(bearer))
	return "token " + hex.EncodeToString(sum[:])
}
