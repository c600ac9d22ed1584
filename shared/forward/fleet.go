package forward

import (
	"net/http"

	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/route"
)

// FleetCall is one request to the fleet.
type FleetCall struct {
	route.Request
	User *identity.User
	// Recorder records the clusters that the request reads from or is about to write to. Optional.
	Recorder ClusterRecorder
}

// ClusterRecorder records which clusters a request to the fleet reaches.
type ClusterRecorder interface {
	RecordClusters(names ...string)
}

// Remainder is the part of a fleet request that the gateway serves after the fleet selected the clusters. One field is
// set.
type Remainder struct {
	// ToCluster is the request to one cluster. It is not authorized yet.
	ToCluster *route.Request
	// Watch serves the watch of several clusters. It checks the caller's rights in each cluster.
	Watch func(w http.ResponseWriter, r *http.Request) error
}
