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

// place selects the target by the annotations in a body, unless the request itself names a cluster.
func (h *Handler) place(targets []members.Target, body *naming.Body) (
	placed []members.Target, placement string, err error,
) {
	name := h.Request.Resource.Name
	_, placement, source := body.Metadata()
	switch {
	case placement == "":
		placement = source
	case h.Request.Cluster == "" && source != "" && source != placement:
		return nil, "", status.New(status.NoPlacement, "", "the object belongs to cluster %q by its annotation %s, but "+
			"was read from %q: select one of them by its name, such as %s@%s",
			placement, naming.PlacementAnnotation, source, name, source)
	}
	if placement != "" && h.Request.Cluster == "" {
		i := slices.IndexFunc(targets, func(t members.Target) bool { return t.Name == placement })
		if i < 0 {
			return nil, "", status.New(status.NoPlacement, "", "the object belongs to cluster %q by its annotations, but "+
				"the request does not cover that cluster: remove the annotations, or name another cluster as "+
				"NAME@CLUSTER", placement)
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

// refersElsewhere refuses a reference to another cluster. A member deletes an object whose owner it does not find.
func refersElsewhere(cluster, path, name, other string) error {
	return status.New(status.NoPlacement, cluster, "the object cannot be written to cluster %q: "+
		"%s has %q, which names cluster %q; name an object of its own cluster there, or if its own name ends so, write "+
		"it as %s@%s",
		cluster, path, name, other, name, cluster)
}

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
		previous, statements = s.cluster, append(statements, fmt.Sprintf("%s names %q", s.field, s.cluster))
	}
	if !differ {
		return nil
	}
	return status.New(status.NoPlacement, "", "the object cannot be in several clusters: %s",
		strings.Join(statements, ", "))
}

// unplaced explains that an object's cluster is unknown. named is a cluster that it names but that is no target, or "".
func unplaced(req *request.Request, targets []members.Target, named string) error {
	why := "the request names no cluster: "
	if named != "" {
		why = fmt.Sprintf("%q is not a cluster that you may call, or the request does not cover it: ", named)
	}
	res, clusters := req.Resource, strings.Join(members.Names(targets), ", ")
	if res.APIGroup == "authorization.k8s.io" || res.APIGroup == "authentication.k8s.io" { // a question, not an object
		return status.New(status.NoPlacement, "", "%sname the cluster in the namespace, as -n NAMESPACE@CLUSTER, or in "+
			"the parameter %s, or send the request to /clusters/NAME; possible clusters: %s",
			why, request.ClustersParam, clusters)
	}
	return status.New(status.NoPlacement, "", "%sname the cluster of the new object in the annotation %s or in "+
		"metadata.name: NAME@CLUSTER; possible clusters for %s: %s",
		why, naming.PlacementAnnotation, res.Resource, clusters)
}
