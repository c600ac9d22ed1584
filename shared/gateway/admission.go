package gateway

import (
	"net/http"

	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/limits"
)

// Admission limits concurrent calls. It is safe for concurrent use. Its errors are *status.Error.
type Admission interface {
	// AdmitCaller counts a call of a user. user is "" for a bearer token that only a member cluster can check. The gateway
	// calls release when the call ends or becomes a stream, possibly twice.
	AdmitCaller(user, bearer string) (release func(), err error)
	// AdmitToCluster counts a call to a member cluster that is no stream. The gateway calls release once.
	AdmitToCluster(cluster string) (release func(), err error)
	// BeginUnverified counts a call before its body has arrived. A nil UnverifiedCall means that there is no limit.
	BeginUnverified(source limits.Source, cluster, bearer string) (UnverifiedCall, error)
}

// UnverifiedCall is a call with a bearer token that only a member cluster can check. It is not safe for concurrent use.
type UnverifiedCall interface {
	// IsAccepted reports whether the cluster accepted the token lately.
	IsAccepted() bool
	// Enter counts the call as one in flight, once its body has arrived.
	Enter() error
	// The observer records the status code of the member's response. It returns no error.
	forward.ResponseObserver
	// End stops counting the call, also if it has become a stream.
	End()
}

type unlimited struct{}

func (unlimited) AdmitCaller(_, _ string) (release func(), err error) { return func() {}, nil }

func (unlimited) AdmitToCluster(string) (release func(), err error) { return func() {}, nil }

func (unlimited) BeginUnverified(limits.Source, string, string) (UnverifiedCall, error) {
	return nil, nil
}

func (g *Gateway) admitCaller(c *call) error {
	user := ""
	if c.user != nil {
		user = c.user.Name
	}
	release, err := g.cfg.Admission.AdmitCaller(user, c.bearer)
	if err == nil {
		c.release = release
	}
	return err
}

// receive reads the body of a call that only the member can authenticate, before the call counts as one in flight.
// Otherwise a client with a made-up token could occupy a slot by a body that it never sends.
func (g *Gateway) receive(r *http.Request, c *call) (*http.Request, error) {
	if c.user != nil {
		return r, nil // counted by identify
	}
	u, err := g.cfg.Admission.BeginUnverified(limits.SourceFrom(r.Context()), c.request.Route.Cluster, c.bearer)
	if err != nil {
		return nil, err
	}
	if u == nil {
		return r, g.admitCaller(c)
	}
	c.unverified = u
	received, err := forward.ReceiveBody(r, !u.IsAccepted())
	if err != nil {
		return nil, err
	}
	if err := u.Enter(); err != nil {
		return nil, err
	}
	return received, g.admitCaller(c)
}
