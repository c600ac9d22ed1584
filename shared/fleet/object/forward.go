package object

import (
	"net/http"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/forward"
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
	return h.Request.ToCluster(h.Client.RouteTo(owner.Name, h.Request.Route.Path)), nil
}
