// Package request reads requests for the fleet. Parse returns an immutable Request. SplitNames derives the Request
// whose names have no @cluster. The package decides neither which clusters exist nor which a caller may call.
package request

import (
	"maps"
	"net/http"
	"net/url"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Request is a client's request for the fleet. No code may change its fields after Parse.
type Request struct {
	Method   string
	Header   http.Header // the client's; a watch over a WebSocket keeps its upgrade here, which needs another right
	User     *identity.User
	Route    route.Route    // its path has no @cluster after SplitNames
	Resource route.Resource // its names have no @cluster after SplitNames
	RawQuery string         // for a request that is forwarded to one cluster, without the fleet's own parameters
	Strict   bool
	ClusterSelector

	query url.Values // for members: without the fleet's own parameters and without @cluster
}

// ClusterSelector has the clusters that a request selects or names.
type ClusterSelector struct {
	Clusters         []string        // selected by name; nil selects all
	Labels           labels.Selector // of clusters
	Cluster          string          // of name@cluster, or the only one of a label selector; "" for none
	NamespaceCluster string          // of namespace@cluster; "" for none
}

// NamesCluster reports whether the request itself names exactly one cluster.
func (s *ClusterSelector) NamesCluster() bool {
	return s.Cluster != "" || s.NamespaceCluster != "" || len(s.Clusters) == 1
}

// NarrowsClusters reports whether the request selects some clusters by name or label.
func (s *ClusterSelector) NarrowsClusters() bool {
	return s.Clusters != nil || s.Cluster != "" || !s.Labels.Empty()
}

// Selects reports whether the request selects a cluster with that name and these labels.
func (s *ClusterSelector) Selects(cluster string, set map[string]string) bool {
	return (s.Clusters == nil || slices.Contains(s.Clusters, cluster)) &&
		(s.Cluster == "" || s.Cluster == cluster) && s.Labels.Matches(labels.Set(set))
}

// Query returns a copy of the parameters for members. The copy shares the values.
func (r *Request) Query() url.Values {
	if r.query == nil {
		return url.Values{}
	}
	return maps.Clone(r.query)
}

// Param returns the first value of a parameter for members, or "".
func (r *Request) Param(name string) string { return r.query.Get(name) }

// HasParam reports whether a parameter for members is set.
func (r *Request) HasParam(name string) bool { return r.query.Has(name) }

// WithQuery returns a copy with other parameters for members. RawQuery stays.
func (r *Request) WithQuery(query url.Values) *Request {
	out := *r
	out.query = query
	return &out
}

// WithPath returns a copy with another path.
func (r *Request) WithPath(path string) *Request {
	out := *r
	out.Route.Path = path
	return &out
}

// WithCluster returns a copy that names a cluster.
func (r *Request) WithCluster(cluster string) *Request {
	out := *r
	out.Cluster = cluster
	return &out
}

// Kind returns the kind of the resource, without the name of the kind, which a path lacks.
func (r *Request) Kind() registry.Kind {
	kind := registry.Kind{APIVersion: r.Resource.APIVersion, Resource: r.Resource.Resource}
	if r.Resource.APIGroup != "" {
		kind.APIVersion = r.Resource.APIGroup + "/" + kind.APIVersion
	}
	return kind
}

// References returns the fields of the resource that name other objects.
func (r *Request) References() *naming.References {
	return naming.ReferencesOf(r.Resource.APIGroup, r.Resource.Resource, r.Resource.Subresource)
}

// CallerDigest returns a hash of the identity that members receive. It is part of every cache key for one caller.
func (r *Request) CallerDigest() members.Digest {
	return members.DigestOfUser(r.User)
}

// ObjectKey returns a hash of the caller and the requested object.
func (r *Request) ObjectKey() members.Digest {
	res := r.Resource
	return members.DigestOf(r.CallerDigest(), res.APIGroup, res.Resource, res.Namespace, res.Name)
}

// IsRead reports whether the request changes nothing, upgrades no connection, uses no proxy and is not strict.
func (r *Request) IsRead() bool {
	return !r.Strict && !r.IsWrite() && len(r.Header["Upgrade"]) == 0 && r.Resource.Verb != "proxy"
}

// IsWrite reports whether the method may change objects.
func (r *Request) IsWrite() bool { return !route.IsRead(r.Method) }

// ForeignVersion returns the error for a resourceVersion that is not one of the fleet's.
func ForeignVersion(v string) error {
	return status.New(status.Expired, "", "the resourceVersion %.64q is not one of the fleet's: list again", v)
}
