// Package object answers requests for one object, in the cluster that has it, and deletions of collections.
//
// A Handler answers one request. Get and Write find the object in all targets (find.go). Create selects the cluster of
// a new object by its name, its annotations or its references. BareWrites (bare.go) decides which writes may name no
// cluster.
//
// Invariants:
//   - A write is sent to one member, and only if the request determines which. Otherwise the error names the clusters.
//   - A write that a member has done is never answered by an error.
//   - Objects and Statuses of members name the cluster that they are from.
package object

import (
	"io"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/forward"
)

// Handler answers one request. Its methods return an error if they wrote nothing. They also return one for a Status of
// a member that they wrote, for the log.
type Handler struct {
	Client  *members.Client
	Request *request.Request
	Body    io.Reader // the body of the client's request
	// Names decides which names in the body are name@cluster.
	Names request.Clusters
	// IsBare reports whether the request names no cluster although there are several.
	IsBare     func() bool
	BareWrites BareWrites
	// Recorder records the clusters that the request reads from or is about to write to. Optional.
	Recorder forward.ClusterRecorder
}

// recordClusters calls the Recorder.
func (h *Handler) recordClusters(names ...string) {
	if h.Recorder != nil {
		h.Recorder.RecordClusters(names...)
	}
}

// newAnswer returns the rewriter for objects of a cluster.
func (h *Handler) newAnswer(cluster string) *naming.Answer {
	return h.Request.NewAnswer(cluster, h.Client.AcquireDecodeSlot)
}

// contentType returns the type of the request's body.
func (h *Handler) contentType() string { return h.Request.Header.Get("Content-Type") }
