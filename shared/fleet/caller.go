package fleet

import (
	"net/http"
	"slices"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/status"
)

// incomplete is summary for a list or watch. A strict request also fails for clusters that lack the kind. The message
// then names two settings that leave them out.
func (q *ask) incomplete(failures []*members.Failure) error {
	err := members.Summary(failures)
	if e := status.From(err); q.strict && slices.ContainsFunc(failures, (*members.Failure).IsNotFound) {
		e.Message += "; a strict request needs " + q.res.Resource + " of every cluster that a ResourceRegistry chooses: choose only " +
			"clusters that have them, by spec.targetCluster of the registries, or by the parameter " + clustersParam
	}
	return err
}

// caller is a digest of all that members are told of who calls.
func (q *ask) caller() members.Digest {
	return members.DigestOf(q.user.Name, q.user.UID, q.user.Groups, q.user.Extra, q.user.Impersonator)
}

// key names the object that is asked for.
func (q *ask) key() members.Digest {
	return members.DigestOf(q.caller(), q.res.APIGroup, q.res.Resource, q.res.Namespace, q.res.Name)
}

// reads reports whether the call changes nothing, so that where the object was may shorten it.
func (q *ask) reads() bool {
	return !q.strict && (q.r.Method == http.MethodGet || q.r.Method == http.MethodHead) && len(q.header["Upgrade"]) == 0 && q.res.Verb != "proxy"
}
