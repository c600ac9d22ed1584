package server

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/websocket-bridge/quota"
)

// calls limits what callers have in flight beside streams, which have limits of their own; and all that those have whom only a member
// can identify. Of these a new token makes a new caller, so that what each may have says nothing.
type calls struct {
	plain, unverified *quota.Quota
	toMember          *quota.Quota // by cluster
	refused           *prometheus.CounterVec
}

func newCalls(l Limits, reg prometheus.Registerer) *calls {
	c := &calls{
		plain: quota.New(l.MaxCalls, l.MaxCallsPerCaller), unverified: quota.New(l.MaxUnverified, 0),
		toMember: quota.New(0, l.MaxCallsPerMember),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clusterpass_calls_refused_total", Help: "Calls that were refused because of a limit, by which; those of streams alone are failures of streams.",
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
	leave := func() {}
	if user == "" {
		if leave, err = c.stranger(); err != nil {
			return nil, err
		}
	}
	back, reached := c.plain.Take(callerOf(user, bearer))
	switch reached {
	case quota.Each:
		err = c.refuse(string(reached), "you have %d calls in flight, the limit for one caller; call again when some have ended", b.limits.MaxCallsPerCaller)
	case quota.All:
		err = c.refuse(string(reached), "the bridge has %d calls in flight, its limit; try again later", b.limits.MaxCalls)
	}
	if err != nil {
		leave()
		return nil, err
	}
	return func() { back(); leave() }, nil
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

// stranger counts a call or a stream of a caller whom only the member can identify.
func (c *calls) stranger() (done func(), err error) {
	done, reached := c.unverified.Take("")
	if reached != quota.None {
		return nil, c.refuse("unverified", "the bridge has all the calls in flight that it takes from callers whom it does not know itself; try again later")
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
