package gateway

import (
	"strings"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// checkServiceProxy refuses proxy subresources that spec.serviceProxy does not list. They reach listeners outside of
// the member's API server.
func checkServiceProxy(c *v1alpha1.Cluster, res route.Resource) error {
	if !res.IsResource || res.Subresource != "proxy" && res.Verb != "proxy" ||
		c.MayProxy(res.Resource, res.Namespace, res.Name) {
		return nil
	}
	target := strings.Join(v1alpha1.ProxyTarget(res.Resource, res.Namespace, res.Name), "/")
	return status.New(status.Forbidden, c.Name,
		"cluster %q does not allow its proxy subresources for %s; its administrator may add that to spec.serviceProxy",
		c.Name, target)
}
