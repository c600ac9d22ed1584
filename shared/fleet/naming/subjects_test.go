package naming

import (
	"errors"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// TestTextOfOtherKinds would fail if a custom resource lost text with an @ that names no object of the fleet.
func TestTextOfOtherKinds(t *testing.T) {
	const text = `{"apiVersion":"example.com/v1","kind":"Deployment","metadata":{"name":"web"},` +
		`"roleRef":{"name":"a@member1"},"spec":{"containers":[{"name":"a@member1"}],"nodeName":"a@member1",` +
		`"scaleTargetRef":{"name":"a@member1"},"selector":{"matchLabels":{"a":"a@member1"}},` +
		`"template":{"metadata":{"labels":{"a":"a@member1"}}}},"subjects":[{"name":"a@member1","namespace":"a@member1"}]}`
	deployments := resource("example.com/deployments")
	for form, body := range map[string][2]string{
		"JSON":        {"application/json", text},
		"apply":       {"application/apply-patch+yaml", text},
		"merge patch": {"application/merge-patch+json", text},
		"JSON patch":  addition("/spec/selector/matchLabels/a", []byte(`"a@member1"`)),
	} {
		t.Run(form, func(t *testing.T) {
			b, err := Parse(deployments, body[0], []byte(body[1]))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := b.ForMember("member1", 7); err != nil || string(got) != body[1] {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
	want := strings.Replace(text, `"metadata":{`, `"metadata":{"annotations":{"`+merge.SourceAnnotation+`":"member1"},`, 1)
	out, err := NewAnswer(deployments, "member1", false, slots(nil)).Append(nil, parseObject(t, text))
	if err != nil || string(out) != want {
		t.Errorf("%s, %v", out, err)
	}
}

// TestSubjects would fail if a user's name lost a part, or if a binding got the same subject again with each write.
func TestSubjects(t *testing.T) {
	bindings := resource("rbac.authorization.k8s.io/rolebindings")
	for name, tt := range map[string]struct{ in, want string }{
		"users": {
			`[{"kind":"User","name":"a@member1"},{"kind":"Group","name":"a@member1"}]`,
			`[{"kind":"User","name":"a@member1"},{"kind":"Group","name":"a@member1"}]`,
		},
		"an account": {
			`[{"kind":"ServiceAccount","name":"a@member1","namespace":"b@member1"}]`,
			`[{"kind":"ServiceAccount","name":"a","namespace":"b"}]`,
		},
		"the same account": {
			`[{"name":"a","namespace":"b"},{"name":"a","namespace":"b@member1"}]`, `[{"name":"a","namespace":"b"}]`,
		},
		"equal as they came": {`[{"name":"a"},{"name":"a"}]`, `[{"name":"a"},{"name":"a"}]`},
		"no list":            {`{"namespace":"b@member1"}`, `{"namespace":"b@member1"}`},
		"a list of lists":    {`[[{"namespace":"b@member1"}],7,null]`, `[[{"namespace":"b@member1"}],7,null]`},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := Parse(bindings, "application/json", []byte(`{"subjects":`+tt.in+`}`))
			if err != nil {
				t.Fatal(err)
			}
			want := `{"subjects":` + tt.want + `}`
			if got, err := b.ForMember("member1", 7); err != nil || string(got) != want {
				t.Errorf("%s, %v, want %s", got, err, tt.want)
			}
		})
	}
	t.Run("a name without its kind", func(t *testing.T) {
		body := addition("/subjects/0/name", []byte(`"a@member1"`))
		b, err := Parse(bindings, body[0], []byte(body[1]))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := b.ForMember("member1", 7); err != nil || string(got) != body[1] {
			t.Errorf("%s, %v", got, err)
		}
	})
	t.Run("protobuf", func(t *testing.T) {
		write := func(namespaces ...string) string {
			binding := rbacv1.RoleBinding{Subjects: []rbacv1.Subject{{Kind: "User", Name: "a@member1"}}}
			for _, namespace := range namespaces {
				binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: "ServiceAccount", Name: "a", Namespace: namespace})
			}
			raw, err := binding.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			types := runtime.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "RoleBinding"}
			out, err := (&runtime.Unknown{TypeMeta: types, Raw: raw}).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			return string(magic) + string(out)
		}
		b, err := Parse(bindings, protobufMedia, []byte(write("b", "b@member1")))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := b.ForMember("member1", 7); err != nil || string(got) != write("b") {
			t.Errorf("%q, %v", got, err)
		}
	})
	// The longest list of subjects is compared in linear time.
	long := fill(`{"subjects":[`, `{"namespace":"b@member1"},`, `{}]}`)
	if b, err := Parse(bindings, "application/json", []byte(long)); err == nil {
		if got, err := b.ForMember("member1", 7); err != nil || string(got) != `{"subjects":[{"namespace":"b"},{}]}` {
			t.Errorf("%.100s, %v", got, err)
		}
	} else if !errors.Is(err, scan.ErrTooMany) {
		t.Error(err)
	}
}

// TestElementOrder would fail if a strategic merge patch ordered a list by names that its elements do not have.
func TestElementOrder(t *testing.T) {
	const in = `{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"web@member1"}],` +
		`"containers":[{"$patch":"delete","name":"web@member1"}]}}}}`
	b, err := Parse(resource("apps/deployments"), "application/strategic-merge-patch+json", []byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := b.ForMember("member1", 7); err != nil || string(got) != strings.ReplaceAll(in, "@member1", "") {
		t.Errorf("%s, %v", got, err)
	}
}

// TestAnswersOfManyFields would fail if a cluster could keep the gateway busy with an object that repeats a field.
func TestAnswersOfManyFields(t *testing.T) {
	text := fill(`{"subjects":[{"kind":"ServiceAccount","a":"a@b"`, `,"name":""`, `}]}`)
	bindings := resource("rbac.authorization.k8s.io/rolebindings")
	if _, err := NewAnswer(bindings, "member1", false, slots(nil)).Append(nil, parseObject(t, text)); err != nil {
		t.Error(err)
	}
}
