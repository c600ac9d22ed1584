package forward

import (
	"net/http"

	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/route"
)

// FleetCall is one request to the fleet. Recorder is optional.
type FleetCall struct {
	route.Request
	User     *identity.User
	Recorder ClusterRecorder
}

// ClusterRecorder records the clusters that a fleet request reads from or is about to write to.
type ClusterRecorder interface {
	RecordClusters(names ...string)
}

// Remainder is the part of a fleet request that the gateway serves after the fleet selected the clusters. One field is
// set.
type Remainder struct {
	// ToCluster is the request to one cluster. It is not authorized yet.
	ToCluster *route.Request
	// Watch is the watch of several clusters.
	Watch Watcher
}

// Watcher serves one watch. It checks the caller's rights in each cluster. r is the request of the stream.
type Watcher interface {
	ServeWatch(w http.ResponseWriter, r *http.Request) error
}
