package registry

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	searchv1alpha1 "github.com/clusterpass/clusterpass/shared/api/search/v1alpha1"
)

var member1 = &clusterv1alpha1.Cluster{
	ObjectMeta: metav1.ObjectMeta{Name: "member1", Labels: map[string]string{"env": "prod"}},
	Spec:       clusterv1alpha1.ClusterSpec{Provider: "aws", Region: "eu", Zones: []string{"a", "b"}},
}

const podSelector = `resourceSelectors: [{apiVersion: v1, kind: Pod}]}`

var (
	pods, nodes = Kind{APIVersion: "v1", Resource: "pods"}, Kind{APIVersion: "v1", Resource: "nodes"}
	all, none   = Scope{All: true}, Scope{}
)

var scopeCases = map[string]struct {
	specs []string
	kind  Kind
	want  Scope
}{
	"no registry": {nil, pods, none},
	"null names": {
		[]string{`{targetCluster: {clusterNames: }, resourceSelectors: [{apiVersion: v1, kind: Pod}, {apiVersion: v1, ` +
			`kind: Node}]}`},
		nodes, all,
	},
	"another kind":            {[]string{`{` + podSelector}, nodes, none},
	"another version":         {[]string{`{resourceSelectors: [{apiVersion: apps/v1, kind: Pod}]}`}, pods, none},
	"any kind":                {[]string{`{resourceSelectors: [{apiVersion: v1, kind: "*"}]}`}, nodes, all},
	"any kind of any version": {[]string{`{resourceSelectors: [{apiVersion: "*", kind: "*"}]}`}, nodes, all},
	"any kind, other version": {[]string{`{resourceSelectors: [{apiVersion: apps/v1, kind: "*"}]}`}, nodes, none},
	"by name":                 {[]string{`{targetCluster: {clusterNames: [member1]}, ` + podSelector}, pods, all},
	"by another name":         {[]string{`{targetCluster: {clusterNames: [member2]}, ` + podSelector}, pods, none},
	"excluded": {
		[]string{`{targetCluster: {clusterNames: [member1], exclude: [member1]}, ` + podSelector}, pods, none,
	},
	"by label": {
		[]string{`{targetCluster: {labelSelector: {matchLabels: {env: prod}}}, ` + podSelector}, pods, all,
	},
	"by another label": {
		[]string{`{targetCluster: {labelSelector: {matchExpressions: [{key: env, operator: NotIn, values: [prod]}]}}, ` +
			podSelector},
		pods, none,
	},
	"a selector that is wrong": {
		[]string{`{targetCluster: {labelSelector: {matchExpressions: [{key: env, operator: Is}]}}, ` + podSelector}, pods,
		none,
	},
	"by fields": {
		[]string{`{targetCluster: {fieldSelector: {matchExpressions: [{key: provider, operator: In, values: [aws]},` +
			` {key: zone, operator: In, values: [b, a, c]}, {key: region, operator: NotIn, values: [us]}]}}, ` + podSelector},
		pods, all,
	},
	"by another zone": {
		[]string{`{targetCluster: {fieldSelector: {matchExpressions: [{key: zone, operator: In, values: [c]}]}}, ` +
			podSelector},
		pods, none,
	},
	"by one of its zones": {
		[]string{`{targetCluster: {fieldSelector: {matchExpressions: [{key: zone, operator: In, values: [b]}]}}, ` +
			podSelector},
		pods, none,
	},
	"excluded by one zone": {
		[]string{`{targetCluster: {fieldSelector: {matchExpressions: [{key: zone, operator: NotIn, values: [b]}]}}, ` +
			podSelector},
		pods, none,
	},
	"excluded by other zones": {
		[]string{`{targetCluster: {fieldSelector: {matchExpressions: [{key: zone, operator: NotIn, values: [c]}]}}, ` +
			podSelector},
		pods, all,
	},
	"by an operator": {
		[]string{`{targetCluster: {fieldSelector: {matchExpressions: [{key: zone, operator: Exists}]}}, ` + podSelector},
		pods, none,
	},
	"by an unknown field": {
		[]string{`{targetCluster: {fieldSelector: {matchExpressions: [{key: color, operator: NotIn, values: [c]}]}}, ` +
			podSelector},
		pods, none,
	},
	"namespaces unite": {[]string{`{resourceSelectors: [{apiVersion: v1, kind: Pod, namespace: b}]}`,
		`{resourceSelectors: [{apiVersion: v1, kind: Pod, namespace: a}, {apiVersion: v1, kind: Pod, namespace: b}]}`},
		pods, Scope{Namespaces: []string{"a", "b"}}},
	"all wins over some": {
		[]string{`{resourceSelectors: [{apiVersion: v1, kind: Pod, namespace: b}]}`, `{` + podSelector}, pods, all,
	},
	"an irregular plural without its kind": {
		[]string{`{resourceSelectors: [{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway}]}`},
		Kind{APIVersion: "gateway.networking.k8s.io/v1", Resource: "gateways"}, none},
	"an irregular plural with its kind": {[]string{`{resourceSelectors: [{apiVersion: gateway.networking.k8s.io/v1, ` +
		`kind: Gateway}]}`},
		Kind{APIVersion: "gateway.networking.k8s.io/v1", Resource: "gateways", Kind: "Gateway"}, all},
}

// TestScopeOf would fail if a registry covered objects that it does not select, or missed objects that it selects.
func TestScopeOf(t *testing.T) {
	for name, tt := range scopeCases {
		if got := ScopeOf(registries(t, tt.specs), member1, tt.kind); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

func registries(t *testing.T, specs []string) []searchv1alpha1.ResourceRegistry {
	t.Helper()
	out := make([]searchv1alpha1.ResourceRegistry, len(specs))
	for i, s := range specs {
		if err := yaml.UnmarshalStrict([]byte(s), &out[i].Spec); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestNeedsKind would fail if the fleet asked clusters for kinds needlessly, or missed a custom resource.
func TestNeedsKind(t *testing.T) {
	gateways := registries(t, []string{`{resourceSelectors: [{apiVersion: g.io/v1, kind: Gateway}, {apiVersion: v1, ` +
		`kind: Pod}]}`,
		`{targetCluster: {clusterNames: [member2]}, resourceSelectors: [{apiVersion: g.io/v1, kind: "*"},` +
			` {apiVersion: h.io/v1, kind: Other}]}`})
	for _, tt := range []struct {
		kind Kind
		want bool
	}{
		{Kind{APIVersion: "g.io/v1", Resource: "gateways"}, true},
		{Kind{APIVersion: "g.io/v1", Resource: "gateways", Kind: "Gateway"}, false},
		{Kind{APIVersion: "h.io/v1", Resource: "gateways"}, false},
		{Kind{APIVersion: "v1", Resource: "pods"}, false},
		{Kind{APIVersion: "v1", Resource: "nodes"}, false},
		{Kind{APIVersion: "apps/v1", Resource: "deployments"}, false},
	} {
		if got := NeedsKind(gateways, member1, tt.kind); got != tt.want {
			t.Errorf("%+v: %v", tt.kind, got)
		}
	}
	if member2 := (&clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "member2"}}); NeedsKind(gateways,
		member2, Kind{APIVersion: "g.io/v1", Resource: "gateways"}) {
		t.Error("a cluster with all kinds covered needs the kind")
	}
}

// TestBuiltInGroups would fail if a cluster could make secrets global by a wrong kind in its discovery.
func TestBuiltInGroups(t *testing.T) {
	configMaps := registries(t, []string{`{resourceSelectors: [{apiVersion: v1, kind: ConfigMap},` +
		` {apiVersion: networking.k8s.io/v1, kind: Ingress}]}`})
	for _, tt := range []struct {
		kind Kind
		want bool
	}{
		{Kind{APIVersion: "v1", Resource: "secrets", Kind: "ConfigMap"}, false},
		{Kind{APIVersion: "v1", Resource: "configmaps", Kind: "Secret"}, true},
		{Kind{APIVersion: "networking.k8s.io/v1", Resource: "secrets", Kind: "Ingress"}, true},
	} {
		if got := ScopeOf(configMaps, member1, tt.kind).All; got != tt.want {
			t.Errorf("%+v: %v", tt.kind, got)
		}
	}
}

func TestCovers(t *testing.T) {
	inA := Scope{Namespaces: []string{"a"}}
	for _, tt := range []struct {
		scope     Scope
		namespace string
		want      bool
	}{{Scope{All: true}, "", true}, {Scope{All: true}, "x", true}, {inA, "a", true}, {inA, "b", false}, {inA, "",
		true}, {Scope{}, "", false}} {
		if got := tt.scope.Covers(tt.namespace); got != tt.want {
			t.Errorf("%+v covers %q: %v", tt.scope, tt.namespace, got)
		}
	}
}
