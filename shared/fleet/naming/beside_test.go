package naming

import (
	"fmt"
	"strings"
	"testing"
)

const accessReviews = "authorization.k8s.io/selfsubjectaccessreviews"

var bodiesWithReferences = map[string]struct{ resource, in, want string }{
	"owners": {
		"configmaps",
		`{"metadata":{"ownerReferences":[{"name":"a"},{"name":"b@other"},7,{"name":"c@member2"}]}}`, "member2",
	},
	"an event": {"events", `{"kind":"Event","involvedObject":{"name":"web@member1"}}`, "member1"},
	"a new event": {
		"events.k8s.io/events",
		`{"kind":"Event","metadata":{},"regarding":{"name":"web@member2"}}`, "member2",
	},
	"no reference": {
		"pods",
		`{"kind":"Pod","regarding":{"name":"web@member2"},"metadata":{"name":"a@member1"}}`, "",
	},
	"labels": {
		"pods",
		`{"metadata":{"labels":{"a":"web@member1"}},"spec":{"containers":[{"name":"web@member1"}]}}`, "",
	},
	"a review's namespace": {
		accessReviews,
		`{"spec":{"resourceAttributes":{"namespace":"shop@member2"}}}`, "member2",
	},
	"a review of a path": {accessReviews, `{"spec":{"nonResourceAttributes":{"path":"/healthz"}}}`, ""},
	"a review of two": {
		accessReviews,
		`{"spec":{"resourceAttributes":{"name":"web@member1","namespace":"shop@member2"}}}`, "member1 member2",
	},
	"a review of rules": {
		"authorization.k8s.io/selfsubjectrulesreviews",
		`{"kind":"SelfSubjectRulesReview","spec":{"namespace":"shop@member1"}}`, "member1",
	},
	"a role": {
		"rbac.authorization.k8s.io/rolebindings",
		`{"roleRef":{"name":"see@member1"}}`, "member1",
	},
	"a version of no member": {
		"configmaps",
		`{"metadata":{"resourceVersion":"` + composite + `","ownerReferences":[{"name":"c@member2"}]}}`, "member2",
	},
	"last applied": {
		"rbac.authorization.k8s.io/rolebindings",
		applied(`{"roleRef":{"name":"see@member1"}}`), "",
	},
	"nothing":                {"events", `{"kind":"Event"}`, ""},
	"a patch without fields": {"events", `[{"name":"a@member1"}]`, ""},
	"no body":                {"events", ``, ""},
}

// TestReferencedClusters would fail if a new object were created in another cluster than the object that it names.
func TestReferencedClusters(t *testing.T) {
	for name, tt := range bodiesWithReferences {
		t.Run(name, func(t *testing.T) {
			b, err := Parse(resource(tt.resource), "application/json", []byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(b.ReferencedClusters(known), " "); got != tt.want {
				t.Errorf("%s names clusters %q, want %q", tt.in, got, tt.want)
			}
		})
	}
}

// TestReferenceToOtherCluster would fail if an update could name an owner in a cluster other than the object's.
func TestReferenceToOtherCluster(t *testing.T) {
	const inPatch = `[{"op":"%s","path":"/metadata%s","value":%s}]`
	for want, bodies := range map[string][]string{
		"": {
			`{"metadata":{"name":"x","ownerReferences":[{"name":"a@member1"},{"name":"b"},7,{"name":"c@other"},` +
				`{"name":"r@member2@member1"}]}}`,
			strings.TrimSuffix(fmt.Sprintf(inPatch, "replace", "/ownerReferences/0/name", `"b@member1"`), "]") + ",7]",
			fmt.Sprintf(inPatch, "add", "/name", `"b@member2"`),
			``,
		},
		"member2": {
			`{"metadata":{"ownerReferences":[{"name":"a@member1"},{"name":"b@member2"}]}}`,
			`[{"op":"add","path":"","value":{"metadata":{"ownerReferences":[{"name":"b@member2"}]}}}]`,
			fmt.Sprintf(inPatch, "add", "", `{"ownerReferences":[{"name":"b@member2"}]}`),
			`[{"op":"remove","path":"/metadata/labels"},` +
				fmt.Sprintf(inPatch, "add", "/ownerReferences", `[{"name":"b@member2"}]`)[1:],
			fmt.Sprintf(inPatch, "add", "/ownerReferences/-", `{"name":"b@member2"}`),
			fmt.Sprintf(inPatch, "replace", "/ownerReferences/0/name", `"b@member2"`),
		},
	} {
		for _, in := range bodies {
			checkOtherCluster(t, in, want)
		}
	}
}

func checkOtherCluster(t *testing.T, in, want string) {
	t.Helper()
	b, err := Parse(anyKind, "application/json", []byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, got := b.ReferenceToOtherCluster("member1", known); got != want {
		t.Errorf("%s names cluster %q, want %q", in, got, want)
	}
}
