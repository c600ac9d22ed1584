// Package review answers reviews of oneself: what the caller may do in the clusters of the fleet, and who the caller
// is.
//
// Handler.Serve answers one request. Cache keeps answers, each for one caller.
//
// Invariants:
//   - An answer names only clusters that the caller may call. It is never reused for another caller.
//   - A cluster allows an action only if the caller also has the verb on clusters/proxy that the action needs.
//   - A cluster that does not answer causes a Warning or an evaluationError.
//   - Answers of members are bounded before they are decoded, and at most one is decoded at a time for each review.
package review

import (
	"io"
	"net/http"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/fleet/selection"
	"github.com/clusterpass/clusterpass/shared/forward"
)

// Handler answers one request.
type Handler struct {
	Cache    *Cache
	Client   *members.Client
	Request  *request.Request
	Selector *selection.Selector
	Body     io.Reader               // the body of the client's request
	Names    request.Clusters        // decides which names in the body are name@cluster
	Recorder forward.ClusterRecorder // called if a review asks one cluster; optional
}

// Serve answers the review of a request. It returns an error only if nothing was written.
func (h *Handler) Serve(w http.ResponseWriter, of request.SelfReview) error {
	if _, err := h.Request.AcceptJSON(); err != nil {
		return err
	}
	switch of {
	case request.AccessReview:
		return h.serveAccess(w)
	case request.RulesReview:
		return h.serveRules(w)
	}
	return h.serveSubject(w)
}
