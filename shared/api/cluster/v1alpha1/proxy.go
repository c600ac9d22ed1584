package v1alpha1

import (
	"slices"
	"strings"
)

// MayProxy reports whether spec.serviceProxy lists an object of the member, whose proxy subresource may then be called.
// An empty name means all objects. Its namespace is ignored for nodes, and empty for all namespaces.
func (c *Cluster) MayProxy(resource, namespace, name string) bool {
	target := ProxyTarget(resource, namespace, name)
	return slices.ContainsFunc(c.Spec.ServiceProxy, func(entry string) bool {
		return matchProxy(strings.Split(entry, "/"), target)
	})
}

// ProxyTarget returns the parts that an entry of spec.serviceProxy must match.
func ProxyTarget(resource, namespace, name string) []string {
	if resource == "nodes" {
		return []string{resource, name}
	}
	return []string{resource, namespace, name}
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
