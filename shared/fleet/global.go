package fleet

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/clusterpass/clusterpass/shared/fleet/registry"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/status"
)

// targets returns the clusters that take part in a call for a resource, by name; nil if it is the control-plane cluster's.
func (q *ask) targets() ([]target, error) {
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
func (q *ask) takers(allowed []entry) ([]target, error) {
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
func (q *ask) told(w http.ResponseWriter, targets []target) []target {
	if q.strict || q.named != "" || q.only != nil || q.res.Verb == "list" || q.res.Verb == "watch" {
		return targets
	}
	var out []target
	var failures []*failure
	for _, t := range targets {
		var e *failure
		if err := forward.MayTell(t.Cluster, q.user, ""); err == nil {
			out = append(out, t)
		} else if errors.As(q.failed(q.r.Context(), t.Name, err), &e) {
			failures = append(failures, e)
		}
	}
	if len(out) == 0 {
		return targets
	}
	warn(w.Header(), failures)
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
func (q *ask) words(of []entry, k registry.Kind) (words map[string]word, control word, err error) {
	if len(of) == 0 {
		return nil, word{}, nil
	}
	cp := q.control()
	if cp != "" && !slices.ContainsFunc(of, func(c entry) bool { return c.Name == cp }) {
		of = append(of, q.inv.entry(cp))
	}
	var enough uint64
	if q.res.Name != "" && q.reads() {
		if had, known := q.f.owners.get(q.key()); known {
			enough = had
		}
	}
	words, err = q.f.words(q.r.Context(), of, k, enough)
	control = words[cp]
	if e := control.unknown; e != nil && q.may(cp) != nil { // it is not named to who may not call it
		control.unknown = &failure{code: e.code, err: e.err, message: "the control-plane cluster does not say now what they are"}
	}
	return words, control, err
}

// taken returns those of the clusters that a registry takes part with. Where only a cluster can tell, each does for itself: what another calls
// the same resource is no matter. But what the control-plane cluster has is not another's because that one calls it otherwise.
func (q *ask) taken(allowed []entry, k registry.Kind) ([]target, error) {
	doubtful := map[string]bool{}
	var asked []entry
	for _, c := range allowed {
		if !q.route.AllClusters && registry.Doubtful(q.inv.registries, c.Cluster, k) {
			doubtful[c.Name], asked = true, append(asked, c)
		}
	}
	words, control, err := q.words(asked, k)
	if err != nil {
		return nil, err
	}
	kinds := map[string]bool{control.kind: true} // as which a cluster may take part that does not say
	for _, w := range words {
		if control.kind == "" {
			kinds[w.kind] = true
		}
	}
	delete(kinds, "")
	var out []target
	var unknown []*failure
	known := false
	for _, c := range allowed {
		t := target{entry: c, scope: registry.Scope{All: true}}
		switch own := words[c.Name]; {
		case q.route.AllClusters:
		case !doubtful[c.Name]:
			t.scope = registry.ScopeOf(q.inv.registries, c.Cluster, k)
		case own.kind == "":
			t.scope, t.unknown = q.perhaps(c, k, kinds), own.unknown
		case control.kind == "" || control.kind == own.kind:
			t.scope = registry.ScopeOf(q.inv.registries, c.Cluster, registry.Kind{APIVersion: k.APIVersion, Resource: k.Resource, Kind: own.kind})
		default:
			t.scope = registry.Scope{}
		}
		takes := t.scope.Takes(q.res.Namespace)
		if takes {
			out, known = append(out, t), known || t.unknown == nil
		}
		if t.unknown != nil && (takes || control.kind == "") {
			unknown = append(unknown, t.unknown)
		}
	}
	if control.unknown != nil && !slices.Contains(unknown, control.unknown) {
		unknown = append(unknown, control.unknown)
	}
	// A call must not go elsewhere because a cluster that knows better is down.
	if writes := q.r.Method != http.MethodGet && q.r.Method != http.MethodHead; len(unknown) > 0 && !known || control.unknown != nil && writes {
		return nil, &status.Error{Reason: status.MembersFailed, Err: errors.Join(causes(unknown)...),
			Message: fmt.Sprintf("whether %s of %s are global is not known now: %s; ask one cluster at /clusters/NAME", k.Resource, k.APIVersion, texts(unknown))}
	}
	return out, nil
}

// perhaps is the scope of a kind in a cluster that does not say which of these it is, since it has none, or does not answer.
func (q *ask) perhaps(c entry, k registry.Kind, kinds map[string]bool) registry.Scope {
	for _, k.Kind = range slices.Sorted(maps.Keys(kinds)) {
		if s := registry.ScopeOf(q.inv.registries, c.Cluster, k); s.Takes(q.res.Namespace) {
			return s
		}
	}
	return registry.Scope{}
}

// across leaves out, of a call that has no namespace, clusters of which only some namespaces are global: it is not of any of these, unless it
// is a list or a watch of what is in them. Whether the kind has namespaces each cluster says for itself; that it has none also the
// control-plane cluster, whose the call is then.
func (q *ask) across(targets []target, k registry.Kind) ([]target, error) {
	some := func(t target) bool { return !t.scope.All }
	if q.res.Namespace != "" || !slices.ContainsFunc(targets, some) {
		return targets, nil
	}
	if q.res.Name != "" || q.res.Verb != "list" && q.res.Verb != "watch" {
		return slices.DeleteFunc(targets, some), nil
	}
	var asked []entry
	for _, t := range targets {
		if some(t) && t.unknown == nil {
			asked = append(asked, t.entry)
		}
	}
	words, control, err := q.words(asked, k)
	if err != nil {
		return nil, err
	}
	global := func(w word) bool { return w.kind != "" && !w.namespaced }
	for i := range targets {
		if t := &targets[i]; some(*t) && t.unknown == nil {
			t.unknown = words[t.Name].unknown // the call would wait for it again
		}
	}
	return slices.DeleteFunc(targets, func(t target) bool { return some(t) && (global(control) || global(words[t.Name])) }), nil
}
