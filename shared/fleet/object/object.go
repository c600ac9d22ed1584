// Package object answers requests for one object, in the cluster that has it, and deletions of collections.
//
// Invariants:
//   - A write of one object is sent to one member, and only if the request determines which.
//   - A write of one object that a member has done is never answered by an error.
//   - Objects of members name the cluster that they are from.
package object

import (
	"io"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/fleet/respond"
	"github.com/clusterpass/clusterpass/shared/fleet/selection"
	"github.com/clusterpass/clusterpass/shared/forward"
)

// Handler answers one request. A method that passed a member's Status to the client also returns an error, for the log.
type Handler struct {
	Client     *members.Client
	Request    *request.Request
	Selector   *selection.Selector
	Body       io.Reader        // the body of the client's request
	Names      request.Clusters // decides which names in the body are name@cluster
	BareWrites BareWrites
	Recorder   forward.ClusterRecorder // called before a write and after a read; optional
}

func (h *Handler) recordClusters(names ...string) {
	if h.Recorder != nil {
		h.Recorder.RecordClusters(names...)
	}
}

func (h *Handler) newAnswer(cluster string) *naming.Answer {
	return respond.NewAnswer(h.Client, h.Request, cluster)
}

func (h *Handler) contentType() string { return h.Request.Header.Get("Content-Type") }
