package gateway

import (
	"net/http"

	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/limits"
)

// Admission limits concurrent requests. It is safe for concurrent use. At a limit, it returns a *status.Error.
type Admission interface {
	// AdmitCaller acquires a slot of the user or, if user is "", of a bearer token that only a member can check. The
	// gateway calls release when the request ends or its stream begins, possibly twice.
	AdmitCaller(user, bearer string) (release func(), err error)
	// AdmitToCluster acquires a slot of a member for any request but a stream. Requests that the fleet itself sends to
	// members need none. The gateway calls release once.
	AdmitToCluster(cluster string) (release func(), err error)
	// BeginUnverified acquires a slot for the time in which the request's body arrives. bearer is a token that only the
	// member can check. A nil UnverifiedCall means that there is no limit.
	BeginUnverified(source limits.Source, cluster, bearer string) (UnverifiedCall, error)
}

// UnverifiedCall has the slots of a request whose token only a member can check. It is not safe for concurrent use.
type UnverifiedCall interface {
	// IsAccepted reports whether the member had recently accepted the token when the request began.
	IsAccepted() bool
	// Enter replaces the slot for the body's arrival with the slots of a running request.
	Enter() error
	// ObserveResponse learns from the member's status code whether the member accepts the token. If the member accepts a
	// token that was unknown, ObserveResponse releases the extra slot that calls with unknown tokens use. It returns no
	// error.
	forward.ResponseObserver
	// End releases all remaining slots when the request or its stream ends.
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

// admitUnverified admits a caller whom the gateway did not identify. Use the returned request. Without a limit, it only
// calls AdmitCaller. With a limit, it first receives the whole body if Content-Length is at most 256 KiB. For an
// unknown token, it receives the first 256 KiB of any other body. Then it calls Enter and AdmitCaller. So a client with
// a made-up token must send that part before Enter acquires a slot.
func (g *Gateway) admitUnverified(r *http.Request, c *call) (*http.Request, error) {
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
