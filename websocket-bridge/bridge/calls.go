package bridge

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/quota"
	"github.com/clusterpass/clusterpass/shared/status"
)

// calls limits each caller's concurrent requests without streams. Each token that only a member can check counts as a
// new caller, so unverified limits these, too.
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
			Help: "Calls that were refused because of a limit, by limit. Limits of streams are counted as failures of streams.",
		}, []string{"limit"}),
	}
	reg.MustRegister(c.refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "clusterpass_calls_open", Help: "Calls in flight, without streams.",
	}, func() float64 { return float64(c.plain.InUse()) }))
	return c
}

// AdmitCaller implements gateway.Admission.
func (b *Bridge) AdmitCaller(user, bearer string) (release func(), err error) {
	c := b.calls
	release, reached := c.plain.Acquire(identity.CallerKey(user, bearer))
	switch reached {
	case quota.Each:
		return nil,
			c.refuse(string(reached), "the call was refused: you have %d calls in flight, the limit for one caller; "+
				"try again when some have ended", b.limits.MaxCallsPerCaller)
	case quota.All:
		return nil,
			c.refuse(string(reached), "the call was refused: the bridge has %d calls in flight, its limit; "+
				"try again later", b.limits.MaxCalls)
	}
	return release, nil
}

// AdmitToCluster implements gateway.Admission.
func (b *Bridge) AdmitToCluster(cluster string) (release func(), err error) {
	release, reached := b.calls.toMember.Acquire(cluster)
	if reached != quota.None {
		return nil, b.calls.refuse("cluster", "the call was refused: cluster %q has %d calls in flight, "+
			"the limit for one cluster; try again later", cluster, b.limits.MaxCallsPerMember)
	}
	return release, nil
}

func (c *calls) refuse(limit, format string, args ...any) error {
	c.refused.WithLabelValues(limit).Inc()
	err := status.New(status.TooManyRequests, "", format, args...)
	err.RetryAfter = retryAfter
	return err
}

const retryAfter = 5 * time.Second
