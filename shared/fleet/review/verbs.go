package review

import (
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/selection"
)

// action is what an access review asks about. The zero value needs no particular verb on clusters/proxy.
type action struct{ verb, resource, subresource, namespace, name string }

func newAction(of *authorizationv1.ResourceAttributes) action {
	return action{
		verb: of.Verb, resource: of.Resource, subresource: of.Subresource, namespace: of.Namespace, name: of.Name,
	}
}

const anyVerb = "*"

// proxyVerbs maps the verbs of requests, of resources and others, to the verb on clusters/proxy that the gateway needs.
var proxyVerbs = map[string]string{
	"get": "get", "list": "get", "watch": "get", "head": "get", "options": "get",
	"create": "create", "post": "create", "update": "update", "put": "update", "patch": "patch",
	"delete": "delete", "deletecollection": "delete",
}

// resourceVerbs are the verbs of requests for resources, in the order in which kube-apiserver lists them.
var resourceVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

var allProxyVerbs = []string{"get", "create", "update", "patch", "delete"}

// upgrades are the subresources whose requests upgrade the connection, which is create at the gateway.
var upgrades = map[string]bool{anUpgrade: true, "attach": true, "portforward": true}

const anUpgrade = "exec"

// proxy is a subresource that the gateway refuses unless spec.serviceProxy of the Cluster lists the object.
const proxy = "proxy"

// refusal returns why the gateway refuses the action in a cluster, or "".
func (a action) refusal(g selection.Grant) string {
	missing := a.missing(g.Verbs)
	switch isProxy := a.subresource == proxy || a.verb == proxy; {
	case len(missing) > 0:
		return fmt.Sprintf("you lack %s on clusters/proxy", strings.Join(missing, ", "))
	case isProxy && !g.MayProxy(a.resource, a.namespace, a.name):
		return "its spec.serviceProxy does not allow that"
	}
	return ""
}

// missing returns the verbs on clusters/proxy that the action needs beside granted. Verbs that belong to no request of
// their own, such as use and bind, need none.
func (a action) missing(granted []string) []string {
	var needed []string
	switch verb, ok := proxyVerbs[a.verb]; {
	case a.verb == anyVerb:
		needed = allProxyVerbs
	case ok && upgrades[a.subresource]:
		needed = []string{"create"}
	case ok:
		needed = []string{verb}
	}
	var out []string
	for _, verb := range needed {
		if !slices.Contains(granted, verb) {
			out = append(out, verb)
		}
	}
	return out
}

// permitted returns those verbs of a rule for a subresource that granted permits, with the permitted ones in place of
// "*".
func permitted(verbs, granted []string, subresource string) []string {
	if len(action{verb: anyVerb}.missing(granted)) == 0 {
		return verbs
	}
	if slices.Contains(verbs, anyVerb) {
		verbs = resourceVerbs
	}
	return slices.DeleteFunc(slices.Clone(verbs), func(verb string) bool {
		return len(action{verb: verb, subresource: subresource}.missing(granted)) > 0
	})
}
