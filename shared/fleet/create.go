package fleet

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// create makes an object in the cluster that it names.
func (q *ask) create(w http.ResponseWriter, targets []members.Target) error {
	body, err := q.body()
	if err != nil {
		return err
	}
	name, placement, source := body.Metadata()
	_, cluster, named := naming.Split(name, q.known)
	beside := body.Beside(q.known)
	if q.unknowable != nil {
		return q.unknowable
	}
	if err := agree(cluster, placement, q.within); err != nil {
		return err
	}
	switch {
	case named:
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
		if targets, err = q.having(targets); err != nil {
			return err
		} else if len(targets) != 1 {
			_, cluster, _ = naming.Split(name, func(c string) bool { return route.ValidClusterName(c) == nil })
			return q.unplaced(targets, cluster)
		}
		cluster = targets[0].Name
	}
	i := slices.IndexFunc(targets, func(t members.Target) bool { return t.Name == cluster })
	if i < 0 {
		return q.unplaced(targets, cluster)
	}
	if named {
		q.named = cluster
	}
	return q.send(w, targets[i], body)
}

// having leaves out the targets that say that they do not have the kind, if others may: nothing can be made there.
func (q *ask) having(targets []members.Target) ([]members.Target, error) {
	if len(targets) == 1 {
		return targets, nil
	}
	var asked []members.Entry
	for _, t := range targets {
		if t.Unavailable == nil {
			asked = append(asked, t.Entry)
		}
	}
	words, err := q.m.Kinds(q.r.Context(), asked, q.kind(), 0)
	if err != nil {
		return nil, err
	}
	out := slices.DeleteFunc(slices.Clone(targets), func(t members.Target) bool {
		said, ok := words[t.Name]
		return ok && said.Unavailable == nil && said.Kind == ""
	})
	if len(out) == 0 {
		return targets, nil
	}
	return out, nil
}

// agree fails where a call says of two clusters that the object is meant to be there; "" says nothing.
func agree(name, annotation, namespace string) error {
	said := []struct{ by, cluster string }{{"metadata.name", name}, {"the annotation " + naming.PlacementAnnotation, annotation}, {"the namespace", namespace}}
	var one string
	var words []string
	contrary := false
	for _, s := range said {
		if s.cluster == "" {
			continue
		}
		contrary = contrary || one != "" && one != s.cluster
		one, words = s.cluster, append(words, fmt.Sprintf("%s says %q", s.by, s.cluster))
	}
	if !contrary {
		return nil
	}
	return status.New(status.NoPlacement, "", "the object cannot be in several clusters: %s", strings.Join(words, ", "))
}

// unplaced is for an object that is to be made, nobody knows where; meant is a cluster that it names and that is none of the targets.
func (q *ask) unplaced(targets []members.Target, meant string) error {
	why := ""
	if meant != "" {
		why = fmt.Sprintf("%q is no cluster that you may call, or takes no part here: ", meant)
	}
	if q.res.APIGroup == "authorization.k8s.io" || q.res.APIGroup == "authentication.k8s.io" { // what is asked, not an object
		return status.New(status.NoPlacement, "", "%ssay which cluster is asked, by the namespace, as -n NAMESPACE@CLUSTER, or by the parameter %s, or ask it at /clusters/NAME; there may be: %s",
			why, clustersParam, strings.Join(members.Names(targets), ", "))
	}
	return status.New(status.NoPlacement, "", "%ssay in which cluster it is to be made, by the annotation %s or by metadata.name: NAME@CLUSTER; for %s there may be: %s",
		why, naming.PlacementAnnotation, q.res.Resource, strings.Join(members.Names(targets), ", "))
}
