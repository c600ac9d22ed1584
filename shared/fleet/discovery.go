package fleet

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
	"github.com/clusterpass/clusterpass/shared/status"
)

// maxDiscovery bounds one member's document of discovery, in bytes: /api, or /apis.
const maxDiscovery = 4 << 20

const discoveryGroup = "apidiscovery.k8s.io"

// nonResource answers what is no resource: discovery, OpenAPI, version and health.
func (q *ask) nonResource(w http.ResponseWriter) error {
	if q.r.Method != http.MethodGet && q.r.Method != http.MethodHead {
		return status.New(status.NotAllowed, "", "the fleet does not answer %s %s", q.r.Method, q.route.Path)
	}
	allowed, err := q.allowed()
	if err != nil {
		return err
	}
	// Where clusters say different things of themselves, one that is registered later does not change what is said.
	slices.SortFunc(allowed, func(a, b members.Entry) int { return cmp.Compare(a.ID, b.ID) })
	parts := strings.Split(strings.Trim(q.route.Path, "/"), "/")
	switch {
	case parts[0] == "healthz" || parts[0] == "livez" || parts[0] == "readyz":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok")) // the gateway answers; each member has its own
		return nil
	case parts[0] == "version" && len(parts) == 1:
		return q.version(w, allowed)
	case parts[0] == "openapi" && len(parts) == 2 && parts[1] == "v2":
		return q.openAPI2(w, allowed)
	case parts[0] == "openapi" && len(parts) > 1 && parts[1] == "v3":
		return q.openAPI(w, allowed, strings.Join(parts[2:], "/"))
	case parts[0] == "api" && len(parts) <= 2, parts[0] == "apis" && len(parts) <= 3:
		return q.discovery(w, allowed, parts)
	}
	return status.New(status.UnknownPath, "", "the fleet serves nothing at %s; ask one cluster at /clusters/NAME%s", q.route.Path, q.route.Path)
}

// version answers with the version of the first cluster that tells its own.
func (q *ask) version(w http.ResponseWriter, allowed []members.Entry) error {
	bodies := make([][]byte, len(allowed))
	good, failures, err := q.documents(allowed, bodies, maxIndex, members.Call{Path: "/version"})
	if err != nil {
		return err
	}
	if len(good) == 0 {
		return members.Summary(failures)
	}
	writeJSON(w, http.StatusOK, bodies[good[0]])
	return nil
}

// documents asks members for a document each, of at most so many bytes, in JSON unless out says otherwise, and puts them into bodies. It
// returns which members sent one.
func (q *ask) documents(of []members.Entry, bodies [][]byte, most int64, out members.Call) (good []int, failures []*members.Failure, err error) {
	targets := make([]members.Target, len(of))
	for i, c := range of {
		targets[i] = members.Target{Entry: c, Scope: registry.Scope{All: true}}
	}
	answers := q.m.Each(targets, func(i int, t members.Target) *members.Answer {
		o := out
		o.Method = http.MethodGet
		accept := "application/json"
		if v := o.Header["Accept"]; v != nil {
			accept = v[0]
		}
		o.Header = http.Header{"Accept": {accept}, "Accept-Encoding": {"gzip"}, "If-None-Match": nil}
		return q.m.Do(q.r.Context(), t, o, func(a *members.Answer) (err error) {
			bodies[i], err = members.ReadLimited(a.Body, most)
			return err
		})
	})
	for i, a := range answers {
		if a.Err == nil {
			good = append(good, i)
		}
	}
	had, failures, err := members.Split(answers)
	members.CloseAll(had)
	return good, failures, err
}

// nothingGlobal is what kubectl says before it says that there is no such kind.
const nothingGlobal = "no kind is global: no ResourceRegistry of search.karmada.io/v1alpha1 takes one in for a cluster that you may call; create one, or ask one cluster at /clusters/NAME"

// discovery answers with what all clusters together have, as far as it is global.
func (q *ask) discovery(w http.ResponseWriter, allowed []members.Entry, parts []string) error {
	union, failures, err := q.union(allowed)
	if err != nil {
		return err
	}
	for _, e := range failures {
		members.AddWarning(w.Header(), e.Text()+" (its kinds are left out)")
	}
	if len(union.Items) == 0 && len(failures) == 0 {
		members.AddWarning(w.Header(), nothingGlobal)
	}
	isCore := parts[0] == "api"
	if len(parts) == 1 {
		if v := aggregated(q.r.Header); v != "" {
			return writeAggregated(w, v, groups(union, isCore))
		}
	}
	var doc any
	switch {
	case isCore && len(parts) == 1:
		versions := &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{}, ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{}}
		for _, g := range groups(union, true) {
			for _, v := range g.Versions {
				versions.Versions = append(versions.Versions, v.Version)
			}
		}
		doc = versions
	case len(parts) == 1:
		list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
		for _, g := range groups(union, false) {
			list.Groups = append(list.Groups, apiGroup(g))
		}
		doc = list
	case !isCore && len(parts) == 2:
		for _, g := range groups(union, false) {
			if g.Name == parts[1] {
				group := apiGroup(g)
				group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
				doc = &group
			}
		}
	default:
		group := ""
		if !isCore {
			group = parts[1]
		}
		doc = resources(union, group, parts[len(parts)-1])
	}
	if doc == nil || doc == (*metav1.APIResourceList)(nil) {
		return status.New(status.NotGlobal, "", "nothing at %s is global: no ResourceRegistry of search.karmada.io/v1alpha1 takes in a kind of it for a cluster that you may call", q.route.Path)
	}
	body, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, append(body, '\n'))
	return nil
}

// aggregated returns the version of aggregated discovery that a client prefers; "" if it takes only the older documents.
func aggregated(h http.Header) string {
	for clause := range strings.SplitSeq(strings.Join(h["Accept"], ","), ",") {
		media, params, err := mime.ParseMediaType(strings.TrimSpace(clause))
		if err == nil && media == "application/json" && params["g"] == discoveryGroup && params["as"] == "APIGroupDiscoveryList" && (params["v"] == "v2" || params["v"] == "v2beta1") {
			return params["v"]
		}
	}
	return ""
}

func writeAggregated(w http.ResponseWriter, version string, items []discoveryv2.APIGroupDiscovery) error {
	body, err := json.Marshal(discoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: discoveryGroup + "/" + version}, Items: items,
	})
	if err != nil {
		return err
	}
	writeTyped(w, "application/json;g="+discoveryGroup+";v="+version+";as=APIGroupDiscoveryList", http.StatusOK, append(body, '\n'))
	return nil
}

// groups are the core group, whose name is empty, or all others.
func groups(union discoveryv2.APIGroupDiscoveryList, core bool) []discoveryv2.APIGroupDiscovery {
	out := []discoveryv2.APIGroupDiscovery{}
	for _, g := range union.Items {
		if (g.Name == "") == core {
			out = append(out, g)
		}
	}
	return out
}

func apiGroup(g discoveryv2.APIGroupDiscovery) metav1.APIGroup {
	out := metav1.APIGroup{Name: g.Name}
	for _, v := range g.Versions {
		out.Versions = append(out.Versions, metav1.GroupVersionForDiscovery{GroupVersion: g.Name + "/" + v.Version, Version: v.Version})
	}
	out.PreferredVersion = out.Versions[0] // no group is without versions
	return out
}

// resources is the older form of one version's resources; nil if there are none.
func resources(union discoveryv2.APIGroupDiscoveryList, group, version string) *metav1.APIResourceList {
	for _, g := range union.Items {
		for _, v := range g.Versions {
			if g.Name != group || v.Version != version {
				continue
			}
			list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
				GroupVersion: strings.TrimPrefix(group+"/"+version, "/"), APIResources: []metav1.APIResource{}}
			for _, r := range v.Resources {
				one := metav1.APIResource{Name: r.Resource, SingularName: r.SingularResource, Namespaced: r.Scope == discoveryv2.ScopeNamespace,
					Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories}
				list.APIResources = append(list.APIResources, ofKind(one, r.ResponseKind))
				for _, s := range r.Subresources {
					sub := metav1.APIResource{Name: r.Resource + "/" + s.Subresource, Namespaced: one.Namespaced, Verbs: s.Verbs}
					list.APIResources = append(list.APIResources, ofKind(sub, s.ResponseKind))
				}
			}
			return list
		}
	}
	return nil
}

func ofKind(r metav1.APIResource, kind *metav1.GroupVersionKind) metav1.APIResource {
	if kind != nil {
		r.Kind, r.Group, r.Version = kind.Kind, kind.Group, kind.Version
	}
	return r
}

// union returns what the clusters have together, each kind once, as far as it is global. Every caller has a union of their own, which is
// kept for a while, and for a moment if a cluster failed: kubectl asks twice in a row, and shall not wait twice. It is made once for calls of theirs
// that come together.
func (q *ask) union(allowed []members.Entry) (union discoveryv2.APIGroupDiscoveryList, failures []*members.Failure, err error) {
	key := q.discoveryKey(allowed)
	u := q.f.discovered
	k, err := u.once(fmt.Sprintf("%x %t", key, q.strict), func() (*kept, bool) {
		k := u.get(key)
		return k, k != nil && (len(k.failures) == 0 || !q.strict)
	}, func() (*kept, error) {
		k, err := q.lasting().discover(allowed)
		if err == nil {
			u.put(key, k)
		}
		return k, err
	})
	if err != nil {
		return union, nil, err
	}
	if len(k.failures) > 0 && q.strict {
		return union, nil, members.Summary(k.failures)
	}
	return k.union, k.failures, nil
}

// lasting is the call without its client's end: that one may leave, and others wait for the same, until the members' deadlines.
func (q *ask) lasting() *ask {
	out := *q
	out.r, out.m = q.r.WithContext(context.WithoutCancel(q.r.Context())), q.m.WithoutCancel()
	return &out
}

// discover asks the clusters what they have, and unites that.
func (q *ask) discover(allowed []members.Entry) (*kept, error) {
	u := newUniter()
	const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
	type documents struct {
		bodies [][]byte
		good   []int
		failed []*members.Failure
		err    error
	}
	var answers [2]documents
	var both sync.WaitGroup
	for i, path := range []string{"/api", "/apis"} {
		both.Go(func() {
			d := documents{bodies: make([][]byte, len(allowed))}
			d.good, d.failed, d.err = q.documents(allowed, d.bodies, maxDiscovery, members.Call{Path: path, Header: http.Header{"Accept": {accept}}})
			answers[i] = d
		})
	}
	both.Wait()
	var failures []*members.Failure
	failed := func(e *members.Failure) {
		if !slices.ContainsFunc(failures, func(o *members.Failure) bool { return o.Cluster == e.Cluster }) {
			failures = append(failures, e)
		}
	}
	for _, d := range answers {
		if d.err != nil {
			return nil, d.err
		}
		if len(d.good) == 0 {
			return nil, members.Summary(d.failed)
		}
		for _, e := range d.failed {
			failed(e)
		}
		for _, i := range d.good {
			groups, e := discoveryOf(allowed[i].Name, d.bodies[i])
			if e != nil {
				failed(e)
				continue
			}
			weight := 1
			if allowed[i].Name == q.control() {
				weight = len(allowed)
			}
			for _, g := range groups {
				u.add(i, weight, g, q.global(allowed[i]))
			}
		}
	}
	for _, e := range failures {
		e.Raw = nil // a union shows messages alone, and must not evict others by its size
	}
	return &kept{union: u.union(), failures: failures, until: time.Now().Add(discoveryTTL)}, nil
}

// global says what of a cluster the fleet has: what a registry takes in, and all of the control-plane cluster. Of some namespaces that is what
// has namespaces, and these themselves.
func (q *ask) global(c members.Entry) func(apiVersion string, r *discoveryv2.APIResourceDiscovery) bool {
	return func(apiVersion string, r *discoveryv2.APIResourceDiscovery) bool {
		if q.route.AllClusters || c.Name == q.f.cfg.ControlPlane {
			return true
		}
		s := registry.ScopeOf(q.inv.Registries, c.Cluster, registry.Kind{APIVersion: apiVersion, Resource: r.Resource, Kind: r.ResponseKind.Kind})
		return s.All || s.Takes("") && (r.Scope == discoveryv2.ScopeNamespace || apiVersion == "v1" && r.Resource == "namespaces")
	}
}

// discoveryKey names all that a union depends on.
func (q *ask) discoveryKey(allowed []members.Entry) [sha256.Size]byte {
	names := make([]string, len(allowed))
	for i, c := range allowed {
		names[i] = fmt.Sprintf("%s %d", c.Name, c.ID)
	}
	return members.DigestOf(q.caller(), names, q.inv.Digest, q.route.AllClusters, q.control())
}
