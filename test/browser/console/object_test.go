package console

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestEditConflictLosesNothing fails if an edit overwrites a change that another user made meanwhile, or if the text of
// the user is lost.
func TestEditConflictLosesNothing(t *testing.T) {
	namespace := e2e.NewNamespace(t, "member1")
	client := e2e.DirectClient(t, "member1").CoreV1().ConfigMaps(namespace)
	if _, err := client.Create(t.Context(), configMap("settings", map[string]string{"colour": "red"}),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := func(data string) {
		t.Helper()
		if _, err := client.Patch(t.Context(), "settings", types.MergePatchType, []byte(`{"data":`+data+`}`),
			metav1.PatchOptions{FieldManager: "other-user"}); err != nil {
			t.Fatal(err)
		}
	}
	stored := func() *corev1.ConfigMap {
		t.Helper()
		c, err := client.Get(t.Context(), "settings", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}

	s := startAsOwner(t, "conflict.mjs", "NAMESPACE="+namespace)
	s.step("typed")
	patch(`{"size":"large"}`)
	s.next("")
	s.step("checked")
	if got := stored().Data["colour"]; got != "red" {
		t.Errorf("the check has written colour %s", got)
	}
	patch(`{"colour":"green"}`)
	s.next("")
	s.step("conflict")
	if got := stored().Data["colour"]; got != "green" {
		t.Errorf("the conflict has written colour %s", got)
	}
	s.next("")
	s.step("applied")
	if got := stored().Data; got["colour"] != "blue" || got["size"] != "large" {
		t.Errorf("the object has %v, want the change of the user and that of the other user", got)
	}
	s.next("")
	s.end()
}

// secret is as kubectl apply writes it, with a copy of its value.
const secret = `
apiVersion: v1
kind: Secret
metadata: {name: hidden}
data: {password: Y29uZmlkZW50aWFs}
`

// TestObjectShowsWhatBelongsToIt fails if a user does not find the conditions, events, children and owners of an
// object. It also fails if the values of a Secret appear before the user asks for them.
func TestObjectShowsWhatBelongsToIt(t *testing.T) {
	namespace := e2e.NewNamespace(t, "member1")
	e2e.Direct("member1").Must(t, "apply", "-f", e2e.Manifest(t, namespace, e2e.Deployment))
	e2e.Direct("member1").Apply(t, secret, "-n", namespace)
	s := startAsOwner(t, "related.mjs", "NAMESPACE="+namespace)
	for _, want := range []string{"Available", "ScalingReplicaSet", "ReplicaSet/idle-"} {
		if out := s.stepCommand(); !strings.Contains(out, want) {
			t.Errorf("a command of the console prints no %s:\n%s", want, out)
		}
	}
	s.end()
}
