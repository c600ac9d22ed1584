package watch

import (
	"errors"

	"github.com/clusterpass/clusterpass/shared/status"
)

// errHistoryLost is the error for a member that does not list the objects of an earlier version in order. Only a new
// list shows the client which objects are gone.
var errHistoryLost = errors.New("the member cannot list the objects of the earlier version")

// errPartialList is the error for a list that broke off after a part was delivered. Objects that are deleted before the
// next list would stay at the client.
var errPartialList = errors.New("the list broke off after it was begun")

// partialList returns the error that the client gets for errPartialList.
func partialList(cluster string) error {
	return status.New(status.Expired, cluster, "the list of cluster %q broke off: list again", cluster)
}

// notCovered returns the error for a version, or a watch, of a cluster that the request no longer covers.
func notCovered() error {
	return status.New(status.Expired, "",
		"a cluster has left the fleet, or you may not call it any more: list again")
}
