package gateway

import (
	"context"
	"net/http"
	"strings"

	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Fleet serves many clusters as one. It is an interface so that functions for one cluster do not link package fleet.
type Fleet interface {
	// Do serves the request, as forward.Do does. For watches, and for requests that one cluster serves, it returns a
	// Remainder instead of a response.
	Do(w http.ResponseWriter, r *http.Request, c forward.FleetCall) (*forward.Remainder, error)
}

func (g *Gateway) serveFleet(w *countingWriter, r *http.Request, c *call) error {
	if err := g.identify(r, c); err != nil {
		return err
	}
	if g.cfg.Fleet == nil {
		return g.notServed(w, r, c)
	}
	res := c.request.Resource // serveCluster checks the requests that the fleet returns, such as those to a proxy
	c.canEvadeRecording = addsDebugContainer(res) || res.Subresource != "proxy" && reachesFurther(c.request)
	if err := g.checkRecordingEvasion(r.Context(), c); err != nil {
		return err
	}
	if err := g.cfg.Function.redirectUnserved(w, r, c.request); err != nil {
		return err
	}
	call := forward.FleetCall{Request: c.request, User: c.user, Recorder: c}
	rest, err := g.cfg.Function.callFleet(w, r, call, g.cfg.Fleet)
	c.recordFleetDecision(err)
	switch {
	case rest == nil || err != nil:
		return err
	case rest.Watch != nil:
		check := func(ctx context.Context) error { return checkCredential(ctx, c.user) }
		return g.serveWatch(w, r, c, check, rest.Watch.ServeWatch)
	}
	c.setRequest(*rest.ToCluster)
	return g.serveCluster(w, r, c)
}

func (c *call) RecordClusters(names ...string) {
	c.reachedClusters = strings.Join(names, ",")
	c.audit.Reached(c.reachedClusters)
}

func (c *call) recordFleetDecision(err error) {
	if err != nil && status.From(err).Reason == status.Forbidden {
		c.audit.Decision(false, "")
		return
	}
	c.audit.Decision(true, "each cluster of the fleet by itself")
}
