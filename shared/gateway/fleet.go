package gateway

import (
	"context"
	"net/http"
	"strings"

	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Fleet serves many clusters as one. Package fleet implements it. Functions for one cluster do not link that package.
type Fleet interface {
	// Do serves the request of c.User, as forward.Do does. If one cluster alone serves the request, Do returns the request
	// to that cluster instead, which is not authorized yet. A watch of several clusters is returned as a Call with Carry,
	// which checks the caller's rights in each cluster itself.
	Do(w http.ResponseWriter, r *http.Request, c forward.Call) (next *forward.Call, err error)
}

// serveFleet serves a request to the fleet. Some of these requests are for one cluster alone.
func (g *Gateway) serveFleet(w *recorder, r *http.Request, c *call) error {
	if err := g.identify(r, c); err != nil {
		return err
	}
	if g.cfg.Fleet == nil {
		return g.notServed(w, r, c)
	}
	if err := g.cfg.Function.redirect(w, r, c.request); err != nil {
		return err
	}
	next, err := g.cfg.Fleet.Do(w, r, forward.Call{Request: c.request, User: c.user, Reached: c.recordReached})
	c.recordFleetDecision(err)
	switch {
	case next == nil || err != nil:
		return err
	case next.Carry != nil:
		check := func(ctx context.Context) error { return checkCredential(ctx, c.user) }
		return g.serveWatch(w, r, c, check, next.Carry)
	}
	c.setRequest(next.Request)
	return g.serveCluster(w, r, c)
}

// recordReached records the clusters that a fleet request reads or changes.
func (c *call) recordReached(clusters ...string) {
	c.reached = strings.Join(clusters, ",")
	c.audit.Reached(c.reached)
}

// recordFleetDecision records whether a fleet request is allowed.
func (c *call) recordFleetDecision(err error) {
	if err != nil && status.From(err).Reason == status.Forbidden {
		c.audit.Decision(false, "")
		return
	}
	c.audit.Decision(true, "each cluster of the fleet by itself")
}
