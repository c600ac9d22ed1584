package object

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Create creates an object in the cluster that it names.
func (h *Handler) Create(w http.ResponseWriter, targets []members.Target) error {
	body, err := h.readBody()
	if err != nil {
		return err
	}
	name, placement, source := body.Metadata()
	_, cluster, isQualified := naming.Split(name, h.Names.Known)
	beside := body.Beside(h.Names.Known)
	if h.Names.Err() != nil {
		return h.Names.Err()
	}
	if err := checkAgreement(cluster, placement, h.Request.NamespaceCluster); err != nil {
		return err
	}
	switch {
	case isQualified:
	case placement != "":
		cluster = placement
	case source != "":
		cluster = source
	case len(beside) > 1:
		return status.New(status.NoPlacement, "", "the object cannot be made: its fields name objects in several clusters, "+
			"%s; name objects of one cluster", strings.Join(beside, ", "))
	case len(beside) == 1:
		cluster = beside[0]
	default:
		if targets, err = h.withKind(targets); err != nil {
			return err
		} else if len(targets) != 1 {
			_, cluster, _ = naming.Split(name, func(c string) bool { return route.ValidClusterName(c) == nil })
			return unplaced(h.Request, targets, cluster)
		}
		cluster = targets[0].Name
	}
	i := slices.IndexFunc(targets, func(t members.Target) bool { return t.Name == cluster })
	if i < 0 {
		return unplaced(h.Request, targets, cluster)
	}
	if isQualified {
		named := *h
		named.Request = h.Request.WithCluster(cluster)
		h = &named
	}
	return h.send(w, targets[i], body, "")
}

// withKind returns the targets that have the kind, or may have it. If none has it, all stay.
func (h *Handler) withKind(targets []members.Target) ([]members.Target, error) {
	if len(targets) == 1 {
		return targets, nil
	}
	var entries []members.Entry
	for _, t := range targets {
		if t.Unavailable == nil {
			entries = append(entries, t.Entry)
		}
	}
	reports, err := h.Client.Kinds(h.Client.Context(), entries, h.Request.Kind(), 0)
	if err != nil {
		return nil, err
	}
	out := slices.DeleteFunc(slices.Clone(targets), func(t members.Target) bool {
		r, ok := reports[t.Name]
		return ok && r.Unavailable == nil && r.Kind == ""
	})
	if len(out) == 0 {
		return targets, nil
	}
	return out, nil
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
