package object

import (
	"net/http"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/route"
)

// Forward returns the call to the object's cluster for a request whose response is no object, such as a log. It returns
// nil if the response is written.
func (h *Handler) Forward(w http.ResponseWriter, targets []members.Target) (*forward.Call, error) {
	owner, failures, err := h.owner(w, targets, false)
	if err != nil {
		return nil, err
	}
	if owner == nil {
		return nil, h.notFound(w, failures)
	}
	req := h.Request
	to := h.Client.RouteTo(owner.Name, req.Route.Path)
	return &forward.Call{Request: route.NewRequest(req.Method, to, req.RawQuery, req.Header)}, nil
}
