package object

import (
	"net/http"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/route"
)

// Forward returns the request to the object's cluster, for a response that is no object, such as a log.
func (h *Handler) Forward(w http.ResponseWriter, targets []members.Target) (*forward.Remainder, error) {
	owner, failures, err := h.owner(w, targets, false)
	if err != nil {
		return nil, err
	}
	if owner == nil {
		return nil, h.notFound(w, failures)
	}
	return h.ForwardTo(owner.Name), nil
}

// ForwardTo returns the request to one cluster.
func (h *Handler) ForwardTo(cluster string) *forward.Remainder {
	to := h.Client.RouteTo(cluster, h.Request.Route.Path)
	one := route.NewRequest(h.Request.Method, to, h.Request.RawQuery, h.Request.Header)
	return &forward.Remainder{ToCluster: &one}
}
