package fleet

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// The fleet's own parameters, which no member sees, and a header that says the same as strict.
const (
	clustersParam        = "clusters"        // names, with commas between
	clusterSelectorParam = "clusterSelector" // a label selector
	strictParam          = "strict"
	strictHeader         = "X-Clusterpass-Strict"
)

// ask is one call on its way.
type ask struct {
	f *Fleet
	r *http.Request
	// header is the client's: with an upgrade, which asks for another right, also where the stream goes without.
	header http.Header
	user   *identity.User
	route  route.Route
	res    route.Resource
	inv    *inventory
	// query is the members': without the fleet's own parameters and without @cluster in names.
	query  url.Values
	raw    string // the same, as sent where nothing was taken out
	strict bool
	only   []string // clusters that the caller names; nil for all
	labels labels.Selector
	named  string // the cluster of name@cluster; "" if none is addressed so
	within string // the cluster of namespace@cluster; "" where the namespace is that of all
	placed string // the cluster that a body's annotations name, where nothing else does
	// unknowable is why known could not say.
	unknowable error
	knows      map[string]bool // the results of known, by cluster
	// reached is told which clusters an object is read of or written to; never nil.
	reached func(clusters ...string)
}

// target is a cluster that takes part in a call.
type target struct {
	entry
	scope registry.Scope
	// unknown, if not nil, is why it is not known now whether it takes part: it is not asked, and fails.
	unknown *failure
}

// begin reads what is asked.
func (f *Fleet) begin(r *http.Request, c forward.Call) (*ask, error) {
	bad := func(format string, args ...any) error {
		return status.New(status.BadRequest, "", format, args...)
	}
	values, err := url.ParseQuery(c.Query)
	if err != nil {
		return nil, bad("the query cannot be understood: %w", err)
	}
	q := &ask{f: f, r: r, header: r.Header, user: c.User, route: c.Route, res: c.Resource, query: values, labels: labels.Everything(),
		reached: c.Reached}
	if q.reached == nil {
		q.reached = func(...string) {}
	}
	if err := valid(q.route.Path, q.res); err != nil {
		return nil, bad("%w", err)
	}
	q.strict = route.Truthy(c.Query, strictParam) || isTrue(r.Header.Get(strictHeader))
	for _, list := range values[clustersParam] {
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.TrimSpace(name); name == "" {
				return nil, bad("the parameter %s has no name where one should be: a call for all clusters goes without it", clustersParam)
			}
			q.only = append(q.only, name)
		}
	}
	if s := values.Get(clusterSelectorParam); s != "" {
		if q.labels, err = labels.Parse(s); err != nil {
			return nil, bad("the parameter %s is no label selector: %w", clusterSelectorParam, err)
		}
	}
	q.raw = c.Query
	for _, own := range []string{clustersParam, clusterSelectorParam, strictParam} {
		if values.Has(own) {
			values.Del(own)
			q.raw = values.Encode()
		}
	}
	if err := q.narrow(); err != nil {
		return nil, bad("the label selector cannot be understood: %w", err)
	}
	if q.inv, err = f.inventory(r.Context()); err != nil {
		return nil, err
	}
	if err := q.inOne(); err != nil {
		return nil, err
	}
	if base, cluster, ok := q.split(); ok {
		if other := cmp.Or(q.named, q.within, cluster); other != cluster {
			return nil, bad("the path names cluster %q, and cluster %q is named by its namespace or the label selector", cluster, other)
		}
		if err := q.rename(q.res.Name, base); err != nil {
			return nil, err
		}
		q.named = cluster
		if q.res.Name = base; q.res.Resource == "namespaces" {
			q.res.Namespace = base
		}
	}
	selector, cluster, err := naming.Selector(q.references(), values.Get("fieldSelector"), q.known)
	switch {
	case q.unknowable != nil:
		return nil, q.unknowable
	case err != nil:
		return nil, bad("the field selector cannot be understood: %w", err)
	case cluster != "" && cluster != cmp.Or(q.named, q.within, cluster):
		return nil, bad("the call names cluster %q, its field selector %q", cmp.Or(q.named, q.within), cluster)
	case cluster != "":
		q.named = cluster
		values.Set("fieldSelector", selector)
		q.raw = values.Encode()
	}
	return q, nil
}

// narrow takes the clusters that the label selector names out of it. One alone is as one that is named by name@cluster: kubectl, which
// asks for pods so, shall go on with their names.
func (q *ask) narrow() error {
	selector, clusters, err := naming.Labels(q.query.Get("labelSelector"))
	if err != nil || clusters == nil {
		return err
	}
	if q.only != nil {
		clusters = slices.DeleteFunc(clusters, func(c string) bool { return !slices.Contains(q.only, c) })
	}
	if len(clusters) == 0 {
		return fmt.Errorf("%s and the parameter %s have no cluster in common", naming.ClusterLabel, clustersParam)
	}
	if q.only = clusters; len(clusters) == 1 {
		q.named = clusters[0]
	}
	if q.query.Set("labelSelector", selector); selector == "" {
		q.query.Del("labelSelector")
	}
	q.raw = q.query.Encode()
	return nil
}

// valid holds the path of a resource to what kube-apiserver may serve, so that what is mistyped is not taken for what is not global.
func valid(path string, res route.Resource) error {
	if !res.IsResource {
		return nil
	}
	var wrong string
	switch core := strings.HasPrefix(path, "/api/"); {
	case !core && len(validation.IsDNS1123Subdomain(res.APIGroup)) > 0:
		wrong = fmt.Sprintf("%q is no API group", res.APIGroup)
	case len(validation.IsDNS1123Label(res.APIVersion)) > 0:
		wrong = fmt.Sprintf("%q is no API version", res.APIVersion)
	case len(validation.IsDNS1123Label(res.Resource)) > 0:
		wrong = fmt.Sprintf("%q is no name of a resource; those are in small letters and mostly plural, as pods", res.Resource)
	default:
		return nil
	}
	return fmt.Errorf("the path %s cannot be understood: %s", path, wrong)
}

func isTrue(v string) bool { return v != "" && v != "0" && !strings.EqualFold(v, "false") }

// qualified reports whether names in the answer are name@cluster. The URL or a name in the request asks for them, or
// kubectl goes on with the names.
func (q *ask) qualified() bool {
	if q.comparesName() {
		return false
	}
	return q.route.Qualified || q.named != "" || q.within != "" && q.command() == describes || q.listsToDelete()
}

// references returns the fields of the resource that name other objects.
func (q *ask) references() *naming.References {
	return naming.ReferencesOf(q.res.APIGroup, q.res.Resource, q.res.Subresource)
}

// called is how a cluster's objects are called in the answer.
func (q *ask) called(cluster string) *naming.Answer {
	how := naming.NewAnswer(q.references(), cluster, q.qualified())
	how.Turn = q.turn
	if q.within != "" {
		how.NamespaceHere()
	}
	q.lead(how)
	return how
}

// inOne reads a namespace that is namespace@cluster: that of one cluster. No namespace has an @ of its own.
func (q *ask) inOne() error {
	base, cluster, ok := strings.Cut(q.res.Namespace, "@")
	if !ok || q.res.Resource == "namespaces" {
		return nil
	}
	if q.named != "" && q.named != cluster || q.only != nil && !slices.Contains(q.only, cluster) {
		return status.New(status.BadRequest, "", "the namespace names cluster %q, the label selector or the parameter %s another", cluster, clustersParam)
	}
	if err := q.rename(q.res.Namespace, base); err != nil {
		return err
	}
	q.res.Namespace, q.within, q.only = base, cluster, []string{cluster}
	return nil
}

// rename changes the first segment of the path that is a name: what precedes an object's name or namespace holds no @.
func (q *ask) rename(name, base string) error {
	if base == "" || base == "." || base == ".." { // the path of a member would lead elsewhere
		return status.New(status.BadRequest, "", "%q is no object's name", base)
	}
	segments := strings.Split(q.route.Path, "/")
	for i, segment := range segments {
		if s, err := url.PathUnescape(segment); err == nil && s == name {
			segments[i] = url.PathEscape(base)
			q.route.Path = strings.Join(segments, "/")
			return nil
		}
	}
	return status.New(status.BadRequest, "", "the path does not hold the name %q as it should", name)
}

// routeTo is the way of the call to one cluster.
func (q *ask) routeTo(cluster, path string) route.Route {
	r := q.route
	r.Kind, r.Cluster, r.AllClusters, r.Qualified, r.Path = route.Cluster, cluster, false, false, path
	return r
}

// next is the call as one cluster's alone.
func (q *ask) next(cluster string) *forward.Call {
	return &forward.Call{Request: route.NewRequest(q.r.Method, q.routeTo(cluster, q.route.Path), q.raw, q.header)}
}

// narrowed reports whether the caller asks for c, among others.
func (q *ask) narrowed(c entry) bool {
	return (q.only == nil || slices.Contains(q.only, c.Name)) && (q.named == "" || q.named == c.Name) && q.labels.Matches(labels.Set(c.Labels))
}

// may returns nil if the caller may make the call to a cluster, existing or not.
func (q *ask) may(cluster string) error {
	return q.f.cfg.Access.Authorize(q.r.Context(), q.user, access.Cluster(cluster, q.r.Method, q.header))
}

// known reports whether name@cluster is more than a name. A cluster that the caller may not call is none to them. It
// decides once for each cluster, since a body may have 100,000 names.
func (q *ask) known(cluster string) bool {
	if !q.inv.has(cluster) {
		return false
	}
	known, decided := q.knows[cluster]
	if !decided {
		known = q.mayName(cluster)
		if q.knows == nil {
			q.knows = map[string]bool{}
		}
		q.knows[cluster] = known
	}
	return known
}

// mayName reports whether the caller may call a cluster that is registered.
func (q *ask) mayName(cluster string) bool {
	err := q.may(cluster)
	if err != nil && status.From(err).Reason != status.Forbidden {
		q.unknowable = err
	}
	return err == nil
}

// allowed returns the clusters that the caller asks for and may call.
func (q *ask) allowed() ([]entry, error) {
	for _, name := range q.only {
		if err := q.may(name); err != nil {
			return nil, err
		}
		if !q.inv.has(name) {
			return nil, status.New(status.UnknownCluster, name, "there is no cluster %q", name)
		}
	}
	var out []entry
	var refused error
	for _, c := range q.inv.clusters {
		if !q.narrowed(c) {
			continue
		}
		if err := q.may(c.Name); err == nil {
			out = append(out, c)
		} else if e := status.From(err); e.Reason != status.Forbidden {
			return nil, err // the answer would be short of what cannot be known now
		} else {
			refused = q.refused(err)
		}
	}
	switch {
	case len(out) > 0:
		return out, nil
	case refused != nil:
		return nil, refused
	case len(q.inv.clusters) == 0:
		return nil, q.noCluster("the gateway has no clusters yet; register one with: clusterpass cluster add")
	default:
		return nil, q.noCluster("no cluster is as the call asks for (%s, %s)", clustersParam, clusterSelectorParam)
	}
}

// refused is for who may call none of the clusters that are asked for, whether there are any or not.
func (q *ask) refused(err error) error {
	return &status.Error{Reason: status.Forbidden, Err: err,
		Message: fmt.Sprintf("User %q cannot %s any cluster of the fleet that is asked for: that needs the verb on clusters/proxy in cluster.karmada.io",
			q.user.Name, access.Verb(q.r.Method, len(q.header["Upgrade"]) > 0))}
}

// noCluster is for a call that no cluster can be meant by. Who may call nothing learns nothing.
func (q *ask) noCluster(format string, args ...any) error {
	if err := q.may("*"); err != nil && status.From(err).Reason == status.Forbidden {
		return q.refused(err) // as if there were one
	} else if err != nil {
		return err
	}
	return status.New(status.UnknownCluster, "", format, args...)
}
