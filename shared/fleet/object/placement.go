package object

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/status"
)

// place returns the target and the cluster that the annotations in a body name, "" if they name none. If the request
// itself names no cluster, the placement selects the target, even if another cluster has an object of that name.
func (h *Handler) place(targets []members.Target, body *naming.Body) (
	placed []members.Target, placement string, err error,
) {
	name := h.Request.Resource.Name
	_, placement, source := body.Metadata()
	switch {
	case placement == "":
		placement = source
	case h.Request.Cluster == "" && source != "" && source != placement:
		return nil, "", status.New(status.NoPlacement, "", "the object is of cluster %q by its annotation %s, and was "+
			"read from %q: call it %s@%s, or the other, to say which is meant",
			placement, naming.PlacementAnnotation, source, name, source)
	}
	if placement != "" && h.Request.Cluster == "" {
		i := slices.IndexFunc(targets, func(t members.Target) bool { return t.Name == placement })
		if i < 0 {
			return nil, "", status.New(status.NoPlacement, "", "the object is of cluster %q, as its annotations say, and "+
				"that takes no part here: without them, or by NAME@CLUSTER, another's can be meant", placement)
		}
		targets = targets[i : i+1]
	}
	return targets, placement, nil
}

// onlyPlacement returns a placement if nothing else names a cluster and the write could create the object.
func onlyPlacement(req *request.Request, placement string) string {
	if req.Cluster == "" && req.Resource.Subresource == "" {
		return placement
	}
	return ""
}

// refersElsewhere returns the error for an object that refers to another cluster. The member would not find the other
// object, and would delete an object whose owner it does not find.
func refersElsewhere(cluster, path, name, other string) error {
	return status.New(status.NoPlacement, cluster, "the object cannot be written to cluster %q: "+
		"%s has %q, which is in cluster %q; name an object of its own cluster there, or one whose own name is that as %s@%s",
		cluster, path, name, other, name, cluster)
}

// checkAgreement returns an error if the parts of a request name different clusters; "" names none.
func checkAgreement(name, annotation, namespace string) error {
	sources := []struct{ field, cluster string }{
		{"metadata.name", name}, {"the annotation " + naming.PlacementAnnotation, annotation}, {"the namespace", namespace},
	}
	var previous string
	var statements []string
	differ := false
	for _, s := range sources {
		if s.cluster == "" {
			continue
		}
		differ = differ || previous != "" && previous != s.cluster
		previous, statements = s.cluster, append(statements, fmt.Sprintf("%s says %q", s.field, s.cluster))
	}
	if !differ {
		return nil
	}
	return status.New(status.NoPlacement, "", "the object cannot be in several clusters: %s",
		strings.Join(statements, ", "))
}

// unplaced returns the error for an object whose cluster is not known. named is a cluster that it names and that is no
// target, or "".
func unplaced(req *request.Request, targets []members.Target, named string) error {
	why := ""
	if named != "" {
		why = fmt.Sprintf("%q is no cluster that you may call, or takes no part here: ", named)
	}
	res, clusters := req.Resource, strings.Join(members.Names(targets), ", ")
	if res.APIGroup == "authorization.k8s.io" || res.APIGroup == "authentication.k8s.io" { // a question, not an object
		return status.New(status.NoPlacement, "", "%ssay which cluster is asked, by the namespace, as "+
			"-n NAMESPACE@CLUSTER, or by the parameter %s, or ask it at /clusters/NAME; there may be: %s",
			why, request.ClustersParam, clusters)
	}
	return status.New(status.NoPlacement, "", "%ssay in which cluster it is to be made, by the annotation %s or by "+
		"metadata.name: NAME@CLUSTER; for %s there may be: %s",
		why, naming.PlacementAnnotation, res.Resource, clusters)
}
