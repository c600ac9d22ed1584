package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clusterpass/clusterpass/shared/identity"
)

const all = "*"

// scopeAllows reports whether a credential with scope s may be used for a:
//   - requests to the clusters of s, with its verbs
//   - reads of these Cluster objects, with the verb get
//   - reviews of the caller's own identity and rights
//   - non-resource paths, with its verbs
//
// Everything else is refused, since it could grant more rights.
func scopeAllows(s *identity.Scope, a *Attributes) bool {
	has := func(list []string, one string) bool { return slices.Contains(list, one) || slices.Contains(list, all) }
	switch {
	case a.Path != "":
		return has(s.Verbs, a.Verb)
	case strings.HasPrefix(a.Resource, "selfsubject") &&
		(a.APIGroup == "authorization.k8s.io" || a.APIGroup == "authentication.k8s.io"):
		return true
	case a.APIGroup != ClusterGroup || a.Resource != ClusterResource || !has(s.Clusters, a.Name):
		return false
	case a.Subresource == ProxyResource:
		return has(s.Verbs, a.Verb)
	}
	return a.Subresource == "" && slices.Contains([]string{"get", "list", "watch"}, a.Verb) && has(s.Verbs, "get")
}

func scopeRefusal(s *identity.Scope) string {
	return fmt.Sprintf("the pass is limited to clusters %q and verbs %q", s.Clusters, s.Verbs)
}
