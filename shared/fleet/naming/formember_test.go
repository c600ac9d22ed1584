package naming

import (
	"cmp"
	"sync"
	"testing"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
)

// resources are the resources of memberBodies, by the names of the cases. Other bodies are of configmaps.
var resources = map[string]string{
	"an eviction": "pods/eviction", "a binding": "pods/binding",
	"an event": "events", "an event's patch": "events", "a patch of an Event": "events.k8s.io/events",
	"an access review":           "authorization.k8s.io/selfsubjectaccessreviews",
	"a rules review":             "authorization.k8s.io/selfsubjectrulesreviews",
	"an autoscaler":              "autoscaling/horizontalpodautoscalers",
	"an autoscaler's patch":      "autoscaling/horizontalpodautoscalers",
	"references by a JSON patch": "autoscaling/horizontalpodautoscalers",
	"a role's binding":           "rbac.authorization.k8s.io/rolebindings",
}

var memberBodies = map[string]struct{ contentType, in, want string }{
	"nothing to change": {
		"application/json", `{ "metadata": {"name":"web","resourceVersion":"5"}, "n": 1e3 }`,
		`{ "metadata": {"name":"web","resourceVersion":"5"}, "n": 1e3 }`,
	},
	"empty": {"application/json", ``, ``},
	"a name": {
		"application/json", `{"metadata":{"name":"web@member1"},"n":12345678901234567890,"f":1.0}`,
		`{"f":1.0,"metadata":{"name":"web"},"n":12345678901234567890}`,
	},
	"a namespace": {
		"application/json", `{"metadata":{"name":"web","namespace":"shop@member1"}}`,
		`{"metadata":{"name":"web","namespace":"shop"}}`,
	},
	"another's name": {
		"application/json", `{"metadata":{"name":"web@member2"}}`, `{"metadata":{"name":"web@member2"}}`,
	},
	"a version": {
		"application/merge-patch+json", `{"metadata":{"resourceVersion":"` + composite + `"}}`,
		`{"metadata":{"resourceVersion":"100"}}`,
	},
	"a source annotation": {"application/json", `{"metadata":{"annotations":` +
		`{"resource.karmada.io/cached-from-cluster":"member1","a":"<&>"}}}`,
		`{"metadata":{"annotations":{"a":"<&>"}}}`},
	"last applied": {"application/json", `{"metadata":{"annotations":` +
		`{"kubectl.kubernetes.io/last-applied-configuration":"{\"metadata\":{\"name\":\"web@member1\"}}\n"}}}`,
		`{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"metadata\":` +
			`{\"name\":\"web\"}}\n"}}}`},
	"owners": {
		"application/merge-patch+json", `{"metadata":{"ownerReferences":[{"name":"web@member1","uid":"1"},{"uid":"2"}]}}`,
		`{"metadata":{"ownerReferences":[{"name":"web","uid":"1"},{"uid":"2"}]}}`,
	},
	"owners by a JSON patch": {"application/json-patch+json", `[{"op":"add","path":"/metadata/ownerReferences",` +
		`"value":[{"name":"a@member1"}]},{"op":"add","path":"/metadata/ownerReferences/-","value":{"name":"b@member1"}},` +
		`{"op":"test","path":"/metadata/ownerReferences/0/name","value":"c@member1"}]`,
		`[{"op":"add","path":"/metadata/ownerReferences","value":[{"name":"a"}]},{"op":"add",` +
			`"path":"/metadata/ownerReferences/-","value":{"name":"b"}},{"op":"test",` +
			`"path":"/metadata/ownerReferences/0/name","value":"c"}]`},
	"an eviction": {"application/json", `{"kind":"Eviction","metadata":{"name":"web@member1"},"deleteOptions":` +
		`{"preconditions":{"resourceVersion":"` + composite + `"}}}`,
		`{"deleteOptions":{"preconditions":{"resourceVersion":"100"}},"kind":"Eviction","metadata":{"name":"web"}}`},
	"a binding": {"application/json", `{"kind":"Binding","metadata":{"name":"web@member1"},"target":{"kind":"Node",` +
		`"name":"node@member1"}}`,
		`{"kind":"Binding","metadata":{"name":"web"},"target":{"kind":"Node","name":"node"}}`},
	"an event": {"application/json", `{"kind":"Event","metadata":{"name":"e"},"involvedObject":{"kind":"Pod",` +
		`"name":"web@member1","namespace":"x"},"related":{"name":"n@member1"}}`,
		`{"involvedObject":{"kind":"Pod","name":"web","namespace":"x"},"kind":"Event","metadata":{"name":"e"},` +
			`"related":{"name":"n"}}`},
	"an event's patch": {
		"application/merge-patch+json", `{"involvedObject":{"name":"web@member1"}}`, `{"involvedObject":{"name":"web"}}`,
	},
	"an access review": {"application/json", `{"kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":` +
		`{"name":"web@member1","namespace":"shop@member1","verb":"get@member1"}}}`,
		`{"kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"name":"web","namespace":"shop",` +
			`"verb":"get@member1"}}}`},
	"a rules review": {
		"application/json", `{"kind":"SelfSubjectRulesReview","spec":{"namespace":"shop@member1"}}`,
		`{"kind":"SelfSubjectRulesReview","spec":{"namespace":"shop"}}`,
	},
	"an autoscaler": {"application/json", `{"kind":"HorizontalPodAutoscaler","metadata":{"name":"web@member1"},` +
		`"spec":{"maxReplicas":2,"scaleTargetRef":{"kind":"Deployment","name":"web@member1"}}}`,
		`{"kind":"HorizontalPodAutoscaler","metadata":{"name":"web"},"spec":{"maxReplicas":2,"scaleTargetRef":` +
			`{"kind":"Deployment","name":"web"}}}`},
	"an autoscaler's patch": {
		"application/merge-patch+json", `{"spec":{"scaleTargetRef":{"name":"web@member1"}}}`,
		`{"spec":{"scaleTargetRef":{"name":"web"}}}`,
	},
	"a role's binding": {"application/json", `{"kind":"RoleBinding","metadata":{"name":"web"},"roleRef":` +
		`{"kind":"Role","name":"see@member1"}}`,
		`{"kind":"RoleBinding","metadata":{"name":"web"},"roleRef":{"kind":"Role","name":"see"}}`},
	"YAML":           {"application/apply-patch+yaml", "metadata:\n  name: web@member1\n", `{"metadata":{"name":"web"}}`},
	"unchanged YAML": {"application/apply-patch+yaml", "metadata:\n  name: web\n", "metadata:\n  name: web\n"},
	"references by a JSON patch": {"application/json-patch+json", `[{"op":"replace","path":"/spec/scaleTargetRef/name",` +
		`"value":"web@member1"},{"op":"add","path":"/spec","value":{"scaleTargetRef":{"name":"web@member1"},"x":1e3}},` +
		`{"op":"add","path":"/involvedObject","value":{"name":"web@member1"}},{"op":"test",` +
		`"path":"/spec/scaleTargetRef/name","value":"r@member1"},{"op":"add","path":"/spec/x/name",` +
		`"value":"web@member1"}]`,
		`[{"op":"replace","path":"/spec/scaleTargetRef/name","value":"web"},{"op":"add","path":"/spec","value":` +
			`{"scaleTargetRef":{"name":"web"},"x":1e3}},{"op":"add","path":"/involvedObject","value":` +
			`{"name":"web@member1"}},{"op":"test","path":"/spec/scaleTargetRef/name","value":"r"},{"op":"add",` +
			`"path":"/spec/x/name","value":"web@member1"}]`},
	"a patch of an Event": {
		"application/merge-patch+json", `{"regarding":{"name":"web@member1"}}`, `{"regarding":{"name":"web"}}`,
	},
	"a JSON patch": {"application/json-patch+json",
		`[{"op":"test","path":"/metadata/resourceVersion","value":"` + composite +
			`"},{"op":"remove","path":"/metadata/annotations/resource.karmada.io~1cached-from-cluster"},` +
			`{"op":"test","path":"/metadata/name","value":"web@member1"},{"op":"add","path":"/metadata","value":` +
			`{"name":"web@member1"}},{"op":"add","path":"/spec/x","value":1}]`,
		`[{"op":"test","path":"/metadata/resourceVersion","value":"100"},{"op":"test","path":"/metadata/name",` +
			`"value":"web"},{"op":"add","path":"/metadata","value":{"name":"web"}},{"op":"add","path":"/spec/x","value":1}]`},
}

// TestForMember would fail if a member received a name or a version that it does not know, or other text changed.
func TestForMember(t *testing.T) {
	for name, tt := range memberBodies {
		b, err := Parse(resource(cmp.Or(resources[name], "configmaps")), tt.contentType, []byte(tt.in))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := b.ForMember("member1", 7)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s\n got %s, %v\nwant %s", name, got, err, tt.want)
		}
	}
	for _, in := range []string{`{"metadata":{"resourceVersion":"` + cursor.Version{9: "1"}.String() + `"}}`,
		`{"metadata":{"resourceVersion":"` + composite + `1"}}`} {
		b, err := Parse(anyKind, "application/json", []byte(in))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := b.ForMember("member1", 7); err == nil {
			t.Errorf("%s becomes %s", in, got)
		}
	}
	for _, in := range []string{`"x"`, `1`, `{`, `{} {}`} {
		if _, err := Parse(anyKind, "application/json", []byte(in)); err == nil {
			t.Errorf("%s is read as an object", in)
		}
	}
}

// TestForMembers would fail if concurrent requests to several members mixed up their bodies.
func TestForMembers(t *testing.T) {
	b, err := Parse(Deletion, "application/json", []byte(`{"preconditions":{"resourceVersion":"`+composite+`"}}`))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for id, own := range map[uint64]string{7: "100", 8: "200"} {
		for range 50 {
			all.Go(func() {
				if got, err := b.ForMember("c", id); err != nil ||
					string(got) != `{"preconditions":{"resourceVersion":"`+own+`"}}` {
					t.Errorf("member %d gets %s, %v", id, got, err)
				}
			})
		}
	}
	all.Wait()
}
