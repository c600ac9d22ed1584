package object

import (
	"net/http"
	"slices"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
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
		return status.New(status.NoPlacement, "", "the object cannot be created: its fields name objects in several "+
			"clusters, "+
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
