package selection

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
	"github.com/clusterpass/clusterpass/shared/status"
)

// TargetsAmong returns those of allowed that the request covers; nil if it is for the control-plane cluster alone.
func (s *Selector) TargetsAmong(ctx context.Context, allowed []members.Entry) ([]members.Target, error) {
	kind := s.req.Kind()
	out, err := s.selectCovered(ctx, allowed, kind)
	if err != nil {
		return nil, err
	}
	isPartlyCovered := len(out) > 0 // used only if dropPartlyCovered removes all
	if out, err = s.dropPartlyCovered(ctx, out, kind); err != nil || len(out) > 0 {
		return out, err
	}
	if s.ControlPlane() != "" {
		return nil, nil
	}
	return nil, s.notGlobal(kind, isPartlyCovered)
}

func (s *Selector) notGlobal(k registry.Kind, isPartlyCovered bool) error {
	resource, needed := k.Resource+" of "+k.APIVersion, ""
	if namespace := s.req.Resource.Namespace; namespace != "" {
		if k.Resource != "namespaces" { // the path of a namespace contains its own name, but it is in no namespace
			resource += fmt.Sprintf(" in namespace %q", namespace)
		}
		needed = fmt.Sprintf(", without a namespace or with namespace %q,", namespace)
	} else if isPartlyCovered {
		needed = ", without a namespace,"
	}
	return status.New(status.NotGlobal, "", "%s are not global: no ResourceRegistry of search.karmada.io/v1alpha1 "+
		"has apiVersion %s and their kind%s in spec.resourceSelectors for a cluster that you may call; create one, or send "+
		"the request to one cluster at /clusters/NAME%s", resource, k.APIVersion, needed, s.req.Route.Path)
}

// kinds returns the kind of a resource in each cluster of targets, and in the control-plane cluster. Without targets,
// it reads none. A read of one object waits at most the grace period once the cluster that had it last responds.
func (s *Selector) kinds(ctx context.Context, targets []members.Entry, k registry.Kind) (
	reports map[string]members.KindReport, control members.KindReport, err error,
) {
	if len(targets) == 0 {
		return nil, members.KindReport{}, nil
	}
	cp := s.ControlPlane()
	if cp != "" && !slices.ContainsFunc(targets, func(c members.Entry) bool { return c.Name == cp }) {
		targets = append(targets, s.inventory.Entry(cp))
	}
	var preferred uint64
	if s.req.Resource.Name != "" && s.req.IsRead() {
		if id, known := s.client.LastLocation(s.req.ObjectKey()); known {
			preferred = id
		}
	}
	reports, err = s.client.Kinds(ctx, targets, k, preferred)
	control = reports[cp]
	if e := control.Unavailable; e != nil && s.policy.authorize(ctx, s.req, cp) != nil {
		// The caller may not learn the name of the cluster.
		control.Unavailable = &members.Failure{
			Code: e.Code, Err: e.Err, Message: "the control-plane cluster cannot be discovered now",
		}
	}
	return reports, control, err
}

// selectCovered returns the clusters that some ResourceRegistry covers, or all of allowed if the route is AllClusters.
// Registries name kinds and requests name resources, so undecided clusters report their kind. A cluster whose kind
// differs from the control-plane cluster's is not covered.
func (s *Selector) selectCovered(ctx context.Context, allowed []members.Entry, k registry.Kind) (
	[]members.Target, error,
) {
	if s.req.Route.AllClusters {
		out := make([]members.Target, len(allowed))
		for i, c := range allowed {
			out[i] = members.Target{Entry: c, Scope: registry.Scope{All: true}}
		}
		return out, nil
	}
	needsKind := map[string]bool{}
	var undecided []members.Entry
	for _, c := range allowed {
		if registry.NeedsKind(s.inventory.Registries, c.Cluster, k) {
			needsKind[c.Name], undecided = true, append(undecided, c)
		}
	}
	reports, control, err := s.kinds(ctx, undecided, k)
	if err != nil {
		return nil, err
	}
	possible := possibleKinds(reports, control)
	var out []members.Target
	var unknown []*members.Failure
	isKnown := false
	for _, c := range allowed {
		t := members.Target{Entry: c}
		switch own := reports[c.Name]; {
		case !needsKind[c.Name]:
			t.Scope = s.Scope(c, k)
		case own.Kind == "":
			t.Scope, t.Unavailable = s.scopeIfUnknown(c, k, possible), own.Unavailable
		case control.Kind == "" || control.Kind == own.Kind:
			t.Scope = s.Scope(c, registry.Kind{APIVersion: k.APIVersion, Resource: k.Resource, Kind: own.Kind})
		}
		covers := t.Scope.Covers(s.req.Resource.Namespace)
		if covers {
			out, isKnown = append(out, t), isKnown || t.Unavailable == nil
		}
		// Without the control-plane cluster's kind, an unavailable cluster may have a kind that is covered.
		if t.Unavailable != nil && (covers || control.Kind == "") {
			unknown = append(unknown, t.Unavailable)
		}
	}
	return out, s.checkKnown(k, control, unknown, isKnown)
}

// checkKnown returns an error if no cluster is certain to be a target and some did not respond. A write also fails if
// the control-plane cluster did not respond, since the write may be for that cluster.
func (s *Selector) checkKnown(
	k registry.Kind, control members.KindReport, unknown []*members.Failure, isKnown bool,
) error {
	if control.Unavailable != nil && !slices.Contains(unknown, control.Unavailable) {
		unknown = append(unknown, control.Unavailable)
	}
	noneKnown := len(unknown) > 0 && !isKnown
	if !noneKnown && (control.Unavailable == nil || !s.req.IsWrite()) {
		return nil
	}
	return &status.Error{Reason: status.MembersFailed, Err: errors.Join(members.Errors(unknown)...),
		Message: fmt.Sprintf("the gateway cannot determine whether a ResourceRegistry covers %s of %s: %s; try again, or "+
			"send the request to one cluster at /clusters/NAME",
			k.Resource, k.APIVersion, members.Texts(unknown))}
}

// possibleKinds returns the kinds that a cluster may have if it does not report its own.
func possibleKinds(reports map[string]members.KindReport, control members.KindReport) map[string]bool {
	kinds := map[string]bool{control.Kind: true}
	if control.Kind == "" {
		for _, r := range reports {
			kinds[r.Kind] = true
		}
	}
	delete(kinds, "")
	return kinds
}

// scopeIfUnknown returns the scope of a cluster that does not report its kind, by the first possible kind that covers
// the request.
func (s *Selector) scopeIfUnknown(c members.Entry, k registry.Kind, possible map[string]bool) registry.Scope {
	for _, k.Kind = range slices.Sorted(maps.Keys(possible)) {
		if scope := s.Scope(c, k); scope.Covers(s.req.Resource.Namespace) {
			return scope
		}
	}
	return registry.Scope{}
}

// dropPartlyCovered removes, if the request has no namespace, clusters that are covered only in some namespaces. Lists
// and watches keep such a cluster, unless the kind is cluster-scoped in it or in the control-plane cluster.
func (s *Selector) dropPartlyCovered(ctx context.Context, targets []members.Target, k registry.Kind) (
	[]members.Target, error,
) {
	isPartial := func(t members.Target) bool { return !t.Scope.All }
	res := s.req.Resource
	if res.Namespace != "" || !slices.ContainsFunc(targets, isPartial) {
		return targets, nil
	}
	if res.Name != "" || res.Verb != "list" && res.Verb != "watch" {
		return slices.DeleteFunc(targets, isPartial), nil
	}
	var partial []members.Entry
	for _, t := range targets {
		if isPartial(t) && t.Unavailable == nil {
			partial = append(partial, t.Entry)
		}
	}
	reports, control, err := s.kinds(ctx, partial, k)
	if err != nil {
		return nil, err
	}
	for i := range targets {
		if t := &targets[i]; isPartial(*t) && t.Unavailable == nil {
			t.Unavailable = reports[t.Name].Unavailable // a call would wait for the cluster again
		}
	}
	hasNoNamespaces := func(r members.KindReport) bool { return r.Kind != "" && !r.Namespaced }
	return slices.DeleteFunc(targets, func(t members.Target) bool {
		return isPartial(t) && (hasNoNamespaces(control) || hasNoNamespaces(reports[t.Name]))
	}), nil
}
