// Package access decides who may do what: Kubernetes RBAC, on whatever is asked of the gateway.
//
// A call to member cluster c is a verb on the resource clusters/proxy in cluster.karmada.io with c as the name; the
// gateway's own API is authorized by its own resources. ClusterRoles and ClusterRoleBindings
// (rbac.authorization.k8s.io/v1) are kept in the object store. A Policy is a set of them, compiled, and
// decides by computation alone; an Authorizer keeps the Policy of a store up to date.
//
// Invariants:
//   - Rules match exactly as in kube-apiserver's RBAC authorizer: a test compares the two on a real one.
//   - Whatever cannot be read or resolved (a broken object, a missing role, an unknown kind of subject) grants
//     nothing. Rules only ever add.
//   - No decision is made on a Policy that may be older than MaxAge: without the store there is an error.
//   - Members of system:masters may do everything, also with an empty store. Who may be one is for package
//     identity to say.
package access

import (
	"fmt"
	"net/http"

	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Masters is the group that may do everything.
const Masters = "system:masters"

// Names of what a call to a member cluster is authorized as.
const (
	ClusterGroup    = "cluster.karmada.io"
	ClusterResource = "clusters"
	ProxyResource   = "proxy" // the subresource
)

// Attributes are what is asked: something of a resource or, where Path is set, of a path that is none.
type Attributes struct {
	Verb string
	// APIGroup, Resource, Subresource, Namespace and Name say which resource, as a Kubernetes URL names it.
	// Only ClusterRoleBindings exist here, which grant in all namespaces: Namespace serves messages.
	APIGroup, Resource, Subresource, Namespace, Name string
	// Path is a URL path, not escaped, that begins with "/".
	Path string
}

// Cluster returns the Attributes of a call with method and header to a member cluster. The header is the client's
// own, so that an upgrade is seen.
func Cluster(name, method string, header http.Header) Attributes {
	return Attributes{
		Verb: Verb(method, len(header["Upgrade"]) > 0), APIGroup: ClusterGroup,
		Resource: ClusterResource, Subresource: ProxyResource, Name: name,
	}
}

// Verb is the verb of a call through a proxy subresource, which names one object: that of the HTTP method as
// Kubernetes maps it, but create for every upgrade, since behind a GET that switches to websocket there may be a
// shell. HEAD and OPTIONS read. Other methods have no verb, "", which only verbs "*" grant.
func Verb(method string, upgrade bool) string {
	if upgrade {
		return "create"
	}
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}

// Forbidden is the error of a refused request, in Kubernetes' words. reason may be empty.
func Forbidden(u *identity.User, a Attributes, reason string) *status.Error {
	what := fmt.Sprintf("User %q cannot %s path %q", u.Name, a.Verb, a.Path)
	if a.Path == "" {
		resource := a.Resource
		if a.Subresource != "" {
			resource += "/" + a.Subresource
		}
		what = fmt.Sprintf("User %q cannot %s resource %q in API group %q", u.Name, a.Verb, resource, a.APIGroup)
		if a.Namespace == "" {
			what += " at the cluster scope"
		} else {
			what += fmt.Sprintf(" in the namespace %q", a.Namespace)
		}
	}
	if reason != "" {
		what += ": " + reason
	}
	return forbidden(a, what)
}

// forbidden says that what a names is forbidden because of why.
func forbidden(a Attributes, why string) *status.Error {
	e := &status.Error{Reason: status.Forbidden, Message: "forbidden: " + why}
	if a.Path != "" || a.Resource == "" {
		return e
	}
	resource := a.Resource
	if a.APIGroup != "" {
		resource += "." + a.APIGroup
	}
	if a.Name != "" {
		resource += fmt.Sprintf(" %q", a.Name)
	}
	e.Message = resource + " is " + e.Message
	if a.APIGroup == ClusterGroup && a.Resource == ClusterResource {
		e.Cluster = a.Name
	}
	return e
}
