package request

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/route"
)

// Clusters decides whether the text after an @ names a cluster. Names of some kinds have an @ of their own.
type Clusters interface {
	Known(cluster string) bool // whether the caller may call a cluster of that name
	Err() error                // why a result of Known may be wrong, or nil
}

// SplitNames moves each @cluster in path, names and field selector into Cluster and NamespaceCluster of a copy.
func (r *Request) SplitNames(clusters Clusters) (*Request, error) {
	out := *r
	if err := out.splitNamespace(); err != nil {
		return nil, err
	}
	if base, cluster, ok := splitName(out.Resource, clusters.Known); ok {
		if other := cmp.Or(out.Cluster, out.NamespaceCluster, cluster); other != cluster {
			return nil, badRequest("the path names cluster %q, but cluster %q is named by its namespace or the label "+
				"selector", cluster, other)
		}
		var err error
		if out.Route.Path, err = replaceInPath(out.Route.Path, out.Resource.Name, base); err != nil {
			return nil, err
		}
		out.Cluster = cluster
		if out.Resource.Name = base; out.Resource.Resource == "namespaces" {
			out.Resource.Namespace = base
		}
	}
	selector, cluster, err := naming.RewriteFieldSelector(out.References(), out.Param("fieldSelector"), clusters.Known)
	named := cmp.Or(out.Cluster, out.NamespaceCluster)
	switch {
	case clusters.Err() != nil:
		return nil, clusters.Err()
	case err != nil:
		return nil, badRequest("the field selector cannot be understood: %w", err)
	case cluster != "" && cluster != cmp.Or(named, cluster):
		return nil, badRequest("the request names cluster %q, its field selector %q", named, cluster)
	case cluster != "":
		out.Cluster, out.query = cluster, r.Query()
		out.query.Set("fieldSelector", selector)
		out.RawQuery = out.query.Encode()
	}
	return &out, nil
}

// splitNamespace splits namespace@cluster in place. No namespace has an @ of its own.
func (r *Request) splitNamespace() error {
	base, cluster, ok := strings.Cut(r.Resource.Namespace, "@")
	if !ok || r.Resource.Resource == "namespaces" {
		return nil
	}
	if err := r.checkSelects(cluster); err != nil {
		return err
	}
	path, err := replaceInPath(r.Route.Path, r.Resource.Namespace, base)
	if err != nil {
		return err
	}
	r.Route.Path = path
	r.Resource.Namespace, r.NamespaceCluster, r.Clusters = base, cluster, []string{cluster}
	return nil
}

func (r *Request) checkSelects(cluster string) error {
	if r.Cluster != "" && r.Cluster != cluster || r.Clusters != nil && !slices.Contains(r.Clusters, cluster) {
		return badRequest("the request names cluster %q, but its label selector or the parameter %s another one", cluster,
			ClustersParam)
	}
	return nil
}

// InCluster returns a copy that selects only one cluster, which NAMESPACE@CLUSTER or NAME@CLUSTER in the body names.
func (r *Request) InCluster(cluster string) (*Request, error) {
	if err := r.checkSelects(cluster); err != nil {
		return nil, err
	}
	out := *r
	out.Cluster, out.Clusters = cluster, []string{cluster}
	return &out, nil
}

// replaceInPath replaces the first segment that is name. The segments before it have no @.
func replaceInPath(path, name, base string) (string, error) {
	if base == "" || base == "." || base == ".." { // the path at the member would mean something else
		return "", badRequest("%q is no object's name", base)
	}
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if s, err := url.PathUnescape(segment); err == nil && s == name {
			segments[i] = url.PathEscape(base)
			return strings.Join(segments, "/"), nil
		}
	}
	return "", badRequest("the path does not contain the name %q as expected", name)
}

func splitName(res route.Resource, known func(cluster string) bool) (base, cluster string, ok bool) {
	base, cluster, ok = naming.Split(res.Name, known)
	if ok || res.Subresource != "proxy" {
		return base, cluster, ok
	}
	scheme, name, port := splitProxied(res.Name)
	name, cluster, ok = naming.Split(name, known)
	return scheme + name + port, cluster, ok
}

// splitProxied splits SCHEME:NAME:PORT or NAME:PORT before a proxy subresource. scheme and port keep their colons.
func splitProxied(text string) (scheme, name, port string) {
	switch parts := strings.SplitN(text, ":", 3); len(parts) {
	case 3:
		return parts[0] + ":", parts[1], ":" + parts[2]
	case 2:
		return "", parts[0], ":" + parts[1]
	}
	return "", text, ""
}

// ObjectPath returns the path of the object, without a subresource.
func (r *Request) ObjectPath() string {
	name := r.Resource.Name
	if r.Resource.Subresource == "proxy" {
		_, name, _ = splitProxied(name)
	}
	return r.ListPath() + "/" + url.PathEscape(name)
}

// ListPath returns the path of the list that has the object.
func (r *Request) ListPath() string {
	var b strings.Builder
	res := r.Resource
	if res.APIGroup == "" {
		b.WriteString("/api/")
	} else {
		b.WriteString("/apis/" + url.PathEscape(res.APIGroup) + "/")
	}
	b.WriteString(url.PathEscape(res.APIVersion))
	if res.Namespace != "" && res.Resource != "namespaces" {
		b.WriteString("/namespaces/" + url.PathEscape(res.Namespace))
	}
	b.WriteString("/" + url.PathEscape(res.Resource))
	return b.String()
}

// PathInNamespace returns the path of a list in one namespace, from the path of that list across namespaces.
func PathInNamespace(path, namespace string) string {
	path = strings.TrimRight(path, "/")
	i := strings.LastIndexByte(path, '/')
	return path[:i] + "/namespaces/" + url.PathEscape(namespace) + path[i:]
}
