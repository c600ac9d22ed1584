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

func TestScopeOf(t *testing.T) {
	pods, nodes := Kind{APIVersion: "v1", Resource: "pods"}, Kind{APIVersion: "v1", Resource: "nodes"}
	all, none := Scope{All: true}, Scope{}
	for name, tt := range map[string]struct {
		specs []string
		kind  Kind
		want  Scope
	}{
		"no registry":              {nil, pods, none},
		"the seeds' own":           {[]string{`{targetCluster: {clusterNames: }, resourceSelectors: [{apiVersion: v1, kind: Pod}, {apiVersion: v1, kind: Node}]}`}, nodes, all},
		"another kind":             {[]string{`{resourceSelectors: [{apiVersion: v1, kind: Pod}]}`}, nodes, none},
		"another version":          {[]string{`{resourceSelectors: [{apiVersion: apps/v1, kind: Pod}]}`}, pods, none},
		"any kind":                 {[]string{`{resourceSelectors: [{apiVersion: v1, kind: "*"}]}`}, nodes, all},
		"any kind of any version":  {[]string{`{resourceSelectors: [{apiVersion: "*", kind: "*"}]}`}, nodes, all},
		"any kind, other version":  {[]string{`{resourceSelectors: [{apiVersion: apps/v1, kind: "*"}]}`}, nodes, none},
		"by name":                  {[]string{`{targetCluster: {clusterNames: [member1]}, resourceSelectors: [{apiVersion: v1, kind: Pod}]}`}, pods, all},
		"by another name":          {[]string{`{targetCluster: {clusterNames: [member2]}, resourceSelectors: [{apiVersion: v1, kind: Pod}]}`}, pods, none},
		"excluded":                 {[]string{`{targetCluster: {clusterNames: [member1], exclude: [member1]}, resourceSelectors: [{apiVersion: v1, kind: Pod}]}`}, pods, none},
		"by label":                 {[]string{`{targetCluster: {labelSelector: {matchLabels: {env: prod}}}, resourceSelectors: [{apiVersion: v1, kind: Pod}]}`}, pods, all},
		"by another label":         {[]string{`{targetCluster: {labelSelector: {matchExpressions: [{key: env, operator: NotIn, values: [prod]}]}}, resourceSelectors: [{apiVersion: v1, kind: Pod}]}`}, pods, none},
		"a selector that is wrong": {[]string{`{targetCluster: {labelSelector: {matchExpressions: [{key: env, operator: Is}]}}, resourceSelectors: [{apiVersion: v1, kind: Pod}]}`}, pods, none},
		"by fields":                {[]string{`{targetCluster: {fieldSelector: {matchExpressions: [{key: provider, operator: In, values: [aws]}, {key: zone, operator: In, values: [b, a, c]}, {key: region, operator: NotIn, values: [us]}]}}, resourceSelectors: [{apiVersion: v1, kind: Pod}]}`}, pods, all},
		"by another zone":          {[]string{`{targetCluster: {fieldSelector: {matchExpressions: [{key: zone, operator: In, values: [c]}]}}, resourceSelectors: [{apiVersion: v1, kind: Pod}]}`}, pods, none},
		"by one of its zones":      {[]string{`{targetCluster: {fieldSelector: {matchExpressions: [{key: zone, operator: In, values: [b]}]}}, resourceSelectors: [{apiVersion: v1, kind: Pod}]}`}, pods, none},
		"but by one of its zones":  {[]string{`{targetCluster: {fieldSelector: {matchExpressions: [{key: zone, operator: NotIn, values: [b]}]}}, resourceSelectors: [{apiVersion: v1, kind: Pod}]}`}, pods, none},
		"but by other zones":       {[]string{`{targetCluster: {fieldSelector: {matchExpressions: [{key: zone, operator: NotIn, values: [c]}]}}, resourceSelectors: [{apiVersion: v1, kind: Pod}]}`}, pods, all},
		"by an operator":           {[]string{`{targetCluster: {fieldSelector: {matchExpressions: [{key: zone, operator: Exists}]}}, resourceSelectors: [{apiVersion: v1, kind: Pod}]}`}, pods, none},
		"by an unknown field":      {[]string{`{targetCluster: {fieldSelector: {matchExpressions: [{key: color, operator: NotIn, values: [c]}]}}, resourceSelectors: [{apiVersion: v1, kind: Pod}]}`}, pods, none},
		"namespaces unite": {[]string{`{resourceSelectors: [{apiVersion: v1, kind: Pod, namespace: b}]}`,
			`{resourceSelectors: [{apiVersion: v1, kind: Pod, namespace: a}, {apiVersion: v1, kind: Pod, namespace: b}]}`}, pods, Scope{Namespaces: []string{"a", "b"}}},
		"all wins over some": {[]string{`{resourceSelectors: [{apiVersion: v1, kind: Pod, namespace: b}]}`, `{resourceSelectors: [{apiVersion: v1, kind: Pod}]}`}, pods, all},
		"a plural that must be asked for, unasked": {[]string{`{resourceSelectors: [{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway}]}`},
			Kind{APIVersion: "gateway.networking.k8s.io/v1", Resource: "gateways"}, none},
		"and asked": {[]string{`{resourceSelectors: [{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway}]}`},
			Kind{APIVersion: "gateway.networking.k8s.io/v1", Resource: "gateways", Kind: "Gateway"}, all},
	} {
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

func TestDoubtful(t *testing.T) {
	gw := registries(t, []string{`{resourceSelectors: [{apiVersion: g.io/v1, kind: Gateway}, {apiVersion: v1, kind: Pod}]}`,
		`{targetCluster: {clusterNames: [member2]}, resourceSelectors: [{apiVersion: g.io/v1, kind: "*"}, {apiVersion: h.io/v1, kind: Other}]}`})
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
		if got := Doubtful(gw, member1, tt.kind); got != tt.want {
			t.Errorf("%+v: %v", tt.kind, got)
		}
	}
	if member2 := (&clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "member2"}}); Doubtful(gw, member2, Kind{APIVersion: "g.io/v1", Resource: "gateways"}) {
		t.Error("a cluster whose kinds are taken in, all, must say which it is")
	}
}

// TestRegular holds: in Kubernetes' own groups no cluster's word makes a resource one that is taken in.
func TestRegular(t *testing.T) {
	of := registries(t, []string{`{resourceSelectors: [{apiVersion: v1, kind: ConfigMap}, {apiVersion: networking.k8s.io/v1, kind: Ingress}]}`})
	for _, tt := range []struct {
		kind Kind
		want bool
	}{
		{Kind{APIVersion: "v1", Resource: "secrets", Kind: "ConfigMap"}, false},
		{Kind{APIVersion: "v1", Resource: "configmaps", Kind: "Secret"}, true},
		{Kind{APIVersion: "networking.k8s.io/v1", Resource: "secrets", Kind: "Ingress"}, true},
	} {
		if got := ScopeOf(of, member1, tt.kind).All; got != tt.want {
			t.Errorf("%+v: %v", tt.kind, got)
		}
	}
}

func TestTakes(t *testing.T) {
	some := Scope{Namespaces: []string{"a"}}
	for _, tt := range []struct {
		scope     Scope
		namespace string
		want      bool
	}{{Scope{All: true}, "", true}, {Scope{All: true}, "x", true}, {some, "a", true}, {some, "b", false}, {some, "", true}, {Scope{}, "", false}} {
		if got := tt.scope.Takes(tt.namespace); got != tt.want {
			t.Errorf("%+v takes %q: %v", tt.scope, tt.namespace, got)
		}
	}
}
