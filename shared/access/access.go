// Package access authorizes requests to the gateway by Kubernetes RBAC.
//
// A request to member cluster c is authorized as a verb on clusters/proxy of the group cluster.karmada.io, with the
// name c. The object store contains ClusterRoles and ClusterRoleBindings. A [Policy] is a compiled set of them, which
// an [Authorizer] updates.
//
// Invariants:
//   - Rules match exactly as in kube-apiserver's RBAC authorizer. A test compares both.
//   - An object that cannot be read, a missing role or an unknown kind of subject grants nothing.
//   - No decision is based on a Policy older than MaxAge. If the store is down for longer, decisions fail.
//   - Members of system:masters may do everything, except by a pass with limits. Package identity decides who is a
//     member.
package access

import (
	"fmt"
	"net/http"

	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Masters is the group whose members may do everything, see IsMaster.
const Masters = "system:masters"

// A request to a member cluster is authorized as ProxyResource of ClusterResource in ClusterGroup.
const (
	ClusterGroup    = "cluster.karmada.io"
	ClusterResource = "clusters"
	ProxyResource   = "proxy" // the subresource
)

// Attributes describe a request for a resource or, if Path is set, for a non-resource path.
type Attributes struct {
	Verb string
	// Namespace is used only in messages, because a ClusterRoleBinding grants in all namespaces.
	APIGroup, Resource, Subresource, Namespace, Name string
	Path                                             string
}

// Cluster returns the Attributes of a request to a member cluster. It detects an upgrade by the client's header.
func Cluster(name, method string, header http.Header) Attributes {
	return Attributes{
		Verb: Verb(method, len(header["Upgrade"]) > 0), APIGroup: ClusterGroup,
		Resource: ClusterResource, Subresource: ProxyResource, Name: name,
	}
}

// Verb returns the verb of a request to a proxy subresource. An upgrade is create, because a GET that switches to
// WebSocket may open a shell. Unknown methods have the verb "", which only "*" grants.
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

// Forbidden returns the error of a refused request with Kubernetes' wording. reason may be "".
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

func forbidden(a Attributes, reason string) *status.Error {
	e := &status.Error{Reason: status.Forbidden, Message: "forbidden: " + reason}
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
