package gateway

import (
	"slices"
	"strings"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// checkServiceProxy refuses proxy subresources that spec.serviceProxy does not list. They reach listeners outside of
// the member's API server.
func checkServiceProxy(c *v1alpha1.Cluster, res route.Resource) error {
	if !res.IsResource || res.Subresource != "proxy" && res.Verb != "proxy" {
		return nil
	}
	target := []string{res.Resource, res.Namespace, res.Name}
	if res.Resource == "nodes" {
		target = []string{res.Resource, res.Name}
	}
	for _, entry := range c.Spec.ServiceProxy {
		if matchProxy(strings.Split(entry, "/"), target) {
			return nil
		}
	}
	return status.New(status.Forbidden, c.Name,
		"cluster %q does not allow its proxy subresources for %s; its administrator may add that to spec.serviceProxy",
		c.Name, strings.Join(target, "/"))
}

// matchProxy accepts the target names SCHEME:NAME:PORT and NAME:PORT. The entry contains NAME or NAME:PORT.
func matchProxy(entry, target []string) bool {
	if len(entry) != len(target) {
		return false
	}
	last := len(target) - 1
	for i := range last {
		if entry[i] != target[i] && entry[i] != "*" {
			return false
		}
	}
	parts := strings.Split(target[last], ":")
	if len(parts) == 3 {
		parts = parts[1:]
	}
	names := []string{"*", parts[0]}
	if len(parts) == 2 {
		names = append(names, parts[0]+":"+parts[1], "*:"+parts[1])
	}
	return len(parts) <= 2 && slices.Contains(names, entry[last])
}
