package access

import (
	"strings"

	"github.com/clusterpass/clusterpass/shared/identity"
)

// Impersonation returns the rights that are needed to impersonate u: the verb impersonate on each attribute of u, as in
// Kubernetes. The groups that every service account has need no right.
func Impersonation(u *identity.User) []Attributes {
	var out []Attributes
	need := func(group, resource, subresource, namespace, name string) {
		out = append(out, Attributes{
			Verb: "impersonate", APIGroup: group, Resource: resource, Subresource: subresource, Namespace: namespace, Name: name,
		})
	}
	const authentication = "authentication.k8s.io"
	switch {
	case identity.ServiceAccountGroups(u.Name) != nil:
		namespace, name, _ := strings.Cut(strings.TrimPrefix(u.Name, identity.ServiceAccountPrefix), ":")
		need("", "serviceaccounts", "", namespace, name)
	case u.Name != "":
		need("", "users", "", "", u.Name)
	}
	for _, group := range u.Groups {
		need("", "groups", "", "", group)
	}
	if u.UID != "" {
		need(authentication, "uids", "", "", u.UID)
	}
	for key, values := range u.Extra {
		for _, v := range values {
			need(authentication, "userextras", key, "", v)
		}
	}
	return out
}
