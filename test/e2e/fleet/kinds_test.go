package fleet_test

import (
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestFleetAccessReviews: users must find out what they may do in a cluster, with the cluster in the namespace.
func TestFleetAccessReviews(t *testing.T) {
	k := fleet(t, `{apiVersion: v1, kind: "*"}, {apiVersion: authorization.k8s.io/v1, kind: "*"}`)
	waittest.Until(t, "access review in member1", func() bool {
		return k.Run(t, "auth", "can-i", "get", "pods", "-n", "default@member1").Code == 0
	})
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"can-i get pods -n default@member2", 0, "yes"},
		{"can-i get pods/web -n default@member2", 0, "yes"},
		{"can-i --list -n default@member1", 0, "selfsubjectaccessreviews.authorization.k8s.io"},
		{"can-i get pods -n default", 1, "the request names no cluster: " +
			"name the cluster in the namespace, as -n NAMESPACE@CLUSTER, or in the " +
			"parameter clusters, or send the request to /clusters/NAME; possible clusters: member1, member2"},
		{"can-i get pods -n default@nowhere", 1, "cluster"},
	} {
		if r := k.Run(t, append([]string{"auth"}, strings.Fields(tt.args)...)...); r.Code != tt.code ||
			!strings.Contains(r.Stdout+r.Stderr, tt.want) {
			t.Errorf("auth %s: %v", tt.args, r)
		}
	}
}

// TestFleetNewKind: a kind that one cluster has must work through the fleet without its cluster's name.
func TestFleetNewKind(t *testing.T) {
	k := fleet(t, `{apiVersion: "*", kind: "*"}`)
	waittest.Until(t, "fleet lists CustomResourceDefinitions", func() bool { return k.Run(t, "get", "crd").Code == 0 })
	k.Apply(t,
		`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: toys.example.org@member1},
spec: {group: example.org, scope: Namespaced,
names: {kind: Toy, plural: toys, singular: toy}, versions: [{name: v1, served: true, storage: true,
selectableFields: [{jsonPath: .color}],
schema: {openAPIV3Schema: {type: object, properties: {color: {type: string}}}}}]}}`)
	t.Cleanup(func() { e2e.Direct("member1").Run(t, "delete", "crd", "toys.example.org") })
	k.Must(t, "wait", "--for=condition=Established", "crd/toys.example.org@member1", "--timeout=4m")
	ns := e2e.NewNamespace(t, "member1")
	toys := strings.ReplaceAll(`---
{apiVersion: example.org/v1, kind: Toy, metadata: {name: bear, namespace: NAMESPACE}, color: brown}
---
{apiVersion: example.org/v1, kind: Toy, metadata: {name: car, namespace: NAMESPACE}, color: red}`, "NAMESPACE", ns)
	waittest.Until(t, "fleet creates objects of the new kind", func() bool {
		return k.WithInput(toys).Run(t, "apply", "-f", "-").Code == 0
	})
	if got := k.Must(t, "get", "toys", "-n", ns, "--field-selector", "color=red", "-o",
		"name"); got != "toy.example.org/car\n" {
		t.Errorf("%q", got)
	}
	if got := e2e.Direct("member1").Must(t, "get", "toys", "-n", ns, "-o",
		"name"); got != "toy.example.org/bear\ntoy.example.org/car\n" {
		t.Errorf("%q", got)
	}
}
