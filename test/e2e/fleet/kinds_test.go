package fleet_test

import (
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

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
