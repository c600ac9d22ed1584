package watch

import (
	"errors"

	"github.com/clusterpass/clusterpass/shared/status"
)

// errHistoryLost is for a member that does not return the objects of an earlier version in order. Only a new list of
// the client shows which objects are gone.
var errHistoryLost = errors.New("the member does not have the history of that version")

// errPartialList is for a list of which a part was delivered. Objects that are gone by the next list would stay at the
// client.
var errPartialList = errors.New("the list broke off after it was begun")

// partialList returns the error that the client gets for errPartialList.
func partialList(cluster string) error {
	return status.New(status.Expired, cluster, "the list of cluster %q broke off: list again", cluster)
}

// notCovered returns the error for a version, or a watch, of a cluster that the request covers no more.
func notCovered() error {
	return status.New(status.Expired, "",
		"a cluster has left the fleet, or you may not call it any more: list again")
}
