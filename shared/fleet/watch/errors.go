package watch

import (
	"errors"

	"github.com/clusterpass/clusterpass/shared/status"
)

// errHistoryLost ends a watch, since only a new list shows the client which objects are gone.
var errHistoryLost = errors.New("the member cannot list the objects of the earlier version")

// errPartialList ends a watch, since objects that are deleted before the next list would stay at the client.
var errPartialList = errors.New("the list broke off after it was begun")

func partialList(cluster string) error {
	return status.New(status.Expired, cluster, "the list of cluster %q broke off: list again", cluster)
}

func notCovered() error {
	return status.New(status.Expired, "",
		"a cluster has left the fleet, or you may not call it any more: list again")
}
