package fleet

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/status"
)

// targets returns the clusters that take part in a call for a resource, by name; nil if it is the control-plane cluster's.
func (q *ask) targets() ([]members.Target, error) {
	allowed, err := q.allowed()
	if err != nil {
		return nil, err
	}
	return q.takers(allowed)
}

// kind is what the call is for, as far as its path says.
func (q *ask) kind() registry.Kind {
	kind := registry.Kind{APIVersion: q.res.APIVersion, Resource: q.res.Resource}
	if q.res.APIGroup != "" {
		kind.APIVersion = q.res.APIGroup + "/" + kind.APIVersion
	}
	return kind
}

// takers returns those of the clusters that take part, as targets does.
func (q *ask) takers(allowed []members.Entry) ([]members.Target, error) {
	kind := q.kind()
	out, err := q.taken(allowed, kind)
	if err != nil {
		return nil, err
	}
	if out, err = q.across(out, kind); err != nil || len(out) > 0 {
		return out, err
	}
	if q.control() != "" {
		return nil, nil
	}
	what := kind.Resource + " of " + kind.APIVersion
	if q.res.Namespace != "" {
		what += fmt.Sprintf(" in namespace %q", q.res.Namespace)
	}
	return nil, status.New(status.NotGlobal, "", "%s are not global: no ResourceRegistry of search.karmada.io/v1alpha1 has apiVersion %s and their kind in spec.resourceSelectors "+
		"for a cluster that you may call; create one, or ask one cluster at /clusters/NAME%s", what, kind.APIVersion, q.route.Path)
}

// told leaves out, with a warning, clusters that cannot be told who calls, such as those of identity passthrough: an object may be in one, and a
// new one be meant for it, only where the call names it. Lists and watches leave out what fails by themselves. Where no cluster is left the call
// fails by them.
func (q *ask) told(w http.ResponseWriter, targets []members.Target) []members.Target {
	if q.strict || q.named != "" || q.only != nil || q.res.Verb == "list" || q.res.Verb == "watch" {
		return targets
	}
	var out []members.Target
	var failures []*members.Failure
	for _, t := range targets {
		var e *members.Failure
		if err := forward.MayTell(t.Cluster, q.user, ""); err == nil {
			out = append(out, t)
		} else if errors.As(q.m.Fail(q.r.Context(), t.Name, err), &e) {
			failures = append(failures, e)
		}
	}
	if len(out) == 0 {
		return targets
	}
	members.Warn(w.Header(), failures)
	return out
}

// control is the control-plane cluster, if the call is its where no registry takes it in; else "". A call that asks for some clusters may mean
// others.
func (q *ask) control() string {
	if q.only != nil || q.named != "" || !q.labels.Empty() {
		return ""
	}
	return q.f.cfg.ControlPlane
}

// words asks clusters, and with them the control-plane cluster, what they say of a kind; nobody where there are none. A read of an object does
// not wait for those that hang where it was found before, see owners.
func (q *ask) words(of []members.Entry, k registry.Kind) (words map[string]members.KindReport, control members.KindReport, err error) {
	if len(of) == 0 {
		return nil, members.KindReport{}, nil
	}
	cp := q.control()
	if cp != "" && !slices.ContainsFunc(of, func(c members.Entry) bool { return c.Name == cp }) {
		of = append(of, q.inv.Entry(cp))
	}
	var enough uint64
	if q.res.Name != "" && q.reads() {
		if had, known := q.m.LastLocation(q.key()); known {
			enough = had
		}
	}
	words, err = q.m.Kinds(q.r.Context(), of, k, enough)
	control = words[cp]
	if e := control.Unavailable; e != nil && q.may(cp) != nil { // it is not named to who may not call it
		control.Unavailable = &members.Failure{Code: e.Code, Err: e.Err, Message: "the control-plane cluster does not say now what they are"}
	}
	return words, control, err
}

// taken returns those of the clusters that a registry takes part with. Where only a cluster can tell, each does for itself: what another calls
// the same resource is no matter. But what the control-plane cluster has is not another's because that one calls it otherwise.
func (q *ask) taken(allowed []members.Entry, k registry.Kind) ([]members.Target, error) {
	doubtful := map[string]bool{}
	var asked []members.Entry
	for _, c := range allowed {
		if !q.route.AllClusters && registry.Doubtful(q.inv.Registries, c.Cluster, k) {
			doubtful[c.Name], asked = true, append(asked, c)
		}
	}
	words, control, err := q.words(asked, k)
	if err != nil {
		return nil, err
	}
	kinds := map[string]bool{control.Kind: true} // as which a cluster may take part that does not say
	for _, w := range words {
		if control.Kind == "" {
			kinds[w.Kind] = true
		}
	}
	delete(kinds, "")
	var out []members.Target
	var unknown []*members.Failure
	known := false
	for _, c := range allowed {
		t := members.Target{Entry: c, Scope: registry.Scope{All: true}}
		switch own := words[c.Name]; {
		case q.route.AllClusters:
		case !doubtful[c.Name]:
			t.Scope = registry.ScopeOf(q.inv.Registries, c.Cluster, k)
		case own.Kind == "":
			t.Scope, t.Unavailable = q.perhaps(c, k, kinds), own.Unavailable
		case control.Kind == "" || control.Kind == own.Kind:
			t.Scope = registry.ScopeOf(q.inv.Registries, c.Cluster, registry.Kind{APIVersion: k.APIVersion, Resource: k.Resource, Kind: own.Kind})
		default:
			t.Scope = registry.Scope{}
		}
		takes := t.Scope.Takes(q.res.Namespace)
		if takes {
			out, known = append(out, t), known || t.Unavailable == nil
		}
		if t.Unavailable != nil && (takes || control.Kind == "") {
			unknown = append(unknown, t.Unavailable)
		}
	}
	if control.Unavailable != nil && !slices.Contains(unknown, control.Unavailable) {
		unknown = append(unknown, control.Unavailable)
	}
	// A call must not go elsewhere because a cluster that knows better is down.
	if writes := q.r.Method != http.MethodGet && q.r.Method != http.MethodHead; len(unknown) > 0 && !known || control.Unavailable != nil && writes {
		return nil, &status.Error{Reason: status.MembersFailed, Err: errors.Join(members.Errors(unknown)...),
			Message: fmt.Sprintf("whether %s of %s are global is not known now: %s; ask one cluster at /clusters/NAME", k.Resource, k.APIVersion, members.Texts(unknown))}
	}
	return out, nil
}

// perhaps is the scope of a kind in a cluster that does not say which of these it is, since it has none, or does not answer.
func (q *ask) perhaps(c members.Entry, k registry.Kind, kinds map[string]bool) registry.Scope {
	for _, k.Kind = range slices.Sorted(maps.Keys(kinds)) {
		if s := registry.ScopeOf(q.inv.Registries, c.Cluster, k); s.Takes(q.res.Namespace) {
			return s
		}
	}
	return registry.Scope{}
}

// across leaves out, of a call that has no namespace, clusters of which only some namespaces are global: it is not of any of these, unless it
// is a list or a watch of what is in them. Whether the kind has namespaces each cluster says for itself; that it has none also the
// control-plane cluster, whose the call is then.
func (q *ask) across(targets []members.Target, k registry.Kind) ([]members.Target, error) {
	some := func(t members.Target) bool { return !t.Scope.All }
	if q.res.Namespace != "" || !slices.ContainsFunc(targets, some) {
		return targets, nil
	}
	if q.res.Name != "" || q.res.Verb != "list" && q.res.Verb != "watch" {
		return slices.DeleteFunc(targets, some), nil
	}
	var asked []members.Entry
	for _, t := range targets {
		if some(t) && t.Unavailable == nil {
			asked = append(asked, t.Entry)
		}
	}
	words, control, err := q.words(asked, k)
	if err != nil {
		return nil, err
	}
	global := func(w members.KindReport) bool { return w.Kind != "" && !w.Namespaced }
	for i := range targets {
		if t := &targets[i]; some(*t) && t.Unavailable == nil {
			t.Unavailable = words[t.Name].Unavailable // the call would wait for it again
		}
	}
	return slices.DeleteFunc(targets, func(t members.Target) bool { return some(t) && (global(control) || global(words[t.Name])) }), nil
}
