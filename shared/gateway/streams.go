package gateway

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/recording/policy"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Handler serves a request, or returns a *status.Error or, if the client has gone, the error of the context.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Streamer serves requests that stay open. It is safe for concurrent use.
type Streamer interface {
	// ForwardStream forwards a request to a member. It must record a session as c.Rule demands, or refuse it.
	ForwardStream(w http.ResponseWriter, r *http.Request, c *StreamCall) error
	// ServeWatch serves a watch of the gateway's own API or of the fleet. It calls serve, which writes the events.
	ServeWatch(w http.ResponseWriter, r *http.Request, user string, serve Handler) error
}

type plainStreams struct{}

func (plainStreams) ForwardStream(w http.ResponseWriter, r *http.Request, c *StreamCall) error {
	if c.Rule.Level == policy.Required {
		return status.New(status.Unrecorded, c.Route.Cluster,
			"the session was refused: RecordingPolicy %q requires its recording, and this program records none; "+
				"call the URL under /bridge", c.Rule.Policy)
	}
	if c.Rule.Level == policy.BestEffort {
		c.RecordUnrecorded("this program records no sessions; those of the URL under /bridge are recorded")
	}
	return forward.Do(w, r, c.Call)
}

func (plainStreams) ServeWatch(w http.ResponseWriter, r *http.Request, _ string, serve Handler) error {
	return serve(w, r)
}

func (g *Gateway) serveWatch(
	w *countingWriter, r *http.Request, c *call, check func(context.Context) error, serve Handler,
) error {
	r, stop := g.recheck(r, c, check)
	defer stop()
	w.beginStream(c)
	return g.cfg.Streams.ServeWatch(w, r, c.user.Name, serve)
}

const defaultRecheck = 2 * time.Second

// recheck calls check at intervals, and ends the request's context when check fails. stop sets c.endReason to that
// error. Each stream has a timer instead of a goroutine, because thousands of streams may be idle. The first interval
// is random: streams that began at once, such as after a restart, are not checked at once.
func (g *Gateway) recheck(r *http.Request, c *call, check func(context.Context) error) (_ *http.Request, stop func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	var (
		mu      sync.Mutex // locked during a check
		stopped bool
		timer   *time.Timer
	)
	mu.Lock()
	defer mu.Unlock()
	first := rand.N(g.cfg.Recheck) //nolint:gosec // spreads load
	timer = time.AfterFunc(first, func() {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			return
		}
		if err := check(ctx); err != nil {
			cancel(err)
			return
		}
		timer.Reset(g.cfg.Recheck)
	})
	return r.WithContext(ctx), func() {
		errors.As(context.Cause(ctx), &c.endReason)
		cancel(nil)
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

// checkCredential returns a *status.Error if a caller's credential has expired or was revoked.
func checkCredential(ctx context.Context, u *identity.User) error {
	if !u.Expires.IsZero() && time.Now().After(u.Expires) {
		return status.New(status.Unauthenticated, "", "your credential has expired")
	}
	if u.Recheck != nil {
		return u.Recheck(ctx)
	}
	return nil
}
