package control_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/clusterpass/clusterpass/shared/recording/policy"
)

var recordingGVR = schema.GroupVersionResource{Group: "clusterpass.io", Version: "v1alpha1",
	Resource: "recordingpolicies"}

const recordingPath = "/apis/clusterpass.io/v1alpha1/recordingpolicies"

func recordingPolicy(name, spec string) string {
	return "{apiVersion: clusterpass.io/v1alpha1, kind: RecordingPolicy, metadata: {name: " + name + "}, spec: " + spec +
		"}"
}

// TestRecordingPolicyDecides: a policy that an administrator writes must apply to sessions.
func TestRecordingPolicyDecides(t *testing.T) {
	h := newInstallation(t)
	d := h.gateway()
	ctx := testContext(t)
	client := d.dynamic(d.master()).Resource(recordingGVR)
	w, err := client.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	doc := object(t, recordingPolicy("prod", "{clusters: [prod-*], level: required, recordInput: true}"))
	if _, err := client.Create(ctx, doc, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if e := nextEvent(t, w); e.Type != watch.Added || e.Object.(*unstructured.Unstructured).GetName() != "prod" {
		t.Errorf("got the event %+v", e)
	}
	decide := func(cluster string) policy.Rule {
		t.Helper()
		rule, err := policy.New(policy.Config{Objects: h.Reopen().Objects}).For(ctx, policy.Call{Cluster: cluster})
		if err != nil {
			t.Fatal(err)
		}
		return rule
	}
	for cluster, want := range map[string]policy.Rule{
		"prod-1": {Level: policy.Required, RecordInput: true, Policy: "prod"},
		"test":   {},
	} {
		if got := decide(cluster); got != want {
			t.Errorf("cluster %s: got %+v, want %+v", cluster, got, want)
		}
	}
	if err := client.Delete(ctx, "prod", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := decide("prod-1"); got != (policy.Rule{}) {
		t.Errorf("without a policy: got %+v", got)
	}
}

// TestRecordingPolicyHasTwoManagers: two administrators must be able to own entries of one list by server-side apply.
func TestRecordingPolicyHasTwoManagers(t *testing.T) {
	d := newInstallation(t).gateway()
	ctx := testContext(t)
	client := d.dynamic(d.master()).Resource(recordingGVR)
	apply := func(manager, spec string) (*unstructured.Unstructured, error) {
		return client.Patch(ctx, "shared", types.ApplyPatchType, []byte(recordingPolicy("shared", spec)),
			metav1.PatchOptions{FieldManager: manager})
	}
	if _, err := apply("one", "{level: required, clusters: [a]}"); err != nil {
		t.Fatal(err)
	}
	if _, err := apply("two", "{level: bestEffort, clusters: [b]}"); !apierrors.IsConflict(err) {
		t.Errorf("another manager's level: got %v, want a conflict", err)
	}
	obj, err := apply("two", "{level: required, clusters: [b]}")
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := unstructured.NestedStringSlice(obj.Object, "spec", "clusters")
	if err != nil || strings.Join(got, " ") != "a b" {
		t.Errorf("clusters are %q, %v, want a and b", got, err)
	}
}

// TestInvalidRecordingPolicyIsRefused: a policy with a mistake would leave sessions unrecorded.
func TestInvalidRecordingPolicyIsRefused(t *testing.T) {
	d := newInstallation(t).gateway()
	ctx := testContext(t)
	client := d.dynamic(d.master()).Resource(recordingGVR)
	for name, c := range map[string]struct{ spec, want string }{
		"no level":           {"{clusters: [a]}", "spec.level: Required value"},
		"unknown level":      {"{level: strict}", `spec.level: Unsupported value: "strict"`},
		"misspelt field":     {"{level: required, cluster: [a]}", `unknown field "spec.cluster"`},
		"impossible cluster": {"{level: required, clusters: [a_b]}", "spec.clusters[0]: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client.Create(ctx, object(t, recordingPolicy("x", c.spec)),
				metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	valid := object(t, recordingPolicy("x", "{level: required}"))
	if _, err := client.Create(ctx, valid, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Patch(ctx, "x", types.MergePatchType, []byte(`{"spec":{"level":"none"}}`),
		metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("got %v, want Invalid", err)
	}
}

// TestRecordingPolicyNeedsRights: a user could otherwise switch off the recording of its own sessions.
func TestRecordingPolicyNeedsRights(t *testing.T) {
	d := newInstallation(t).gateway()
	root, eve := d.dynamic(d.master()).Resource(recordingGVR), d.dynamic(d.config("eve")).Resource(recordingGVR)
	ctx := testContext(t)
	all := object(t, recordingPolicy("all", "{level: required}"))
	if _, err := root.Create(ctx, all, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := eve.List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list: got %v", err)
	}
	if err := eve.Delete(ctx, "all", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("delete: got %v", err)
	}
}

// TestRecordingPolicyTable: kubectl get must show whom a policy covers.
func TestRecordingPolicyTable(t *testing.T) {
	d := newInstallation(t).gateway()
	client := d.dynamic(d.master()).Resource(recordingGVR)
	for _, doc := range []string{
		recordingPolicy("a", "{level: required}"),
		recordingPolicy("b", "{level: bestEffort, recordInput: true, clusters: [c1, c2], namespaces: [shop], "+
			"users: [ann], groups: [dev]}"),
	} {
		if _, err := client.Create(testContext(t), object(t, doc), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	table := d.table(recordingPath)
	var headers []string
	for _, c := range table.ColumnDefinitions {
		headers = append(headers, c.Name)
	}
	if got := strings.Join(headers, " "); got != "Name Level Input Clusters Namespaces Callers Age" {
		t.Errorf("columns: %s", got)
	}
	for i, want := range []string{"a required false * * *", "b bestEffort true c1,c2 shop ann,dev"} {
		var cells []string
		for _, cell := range table.Rows[i].Cells[:6] {
			cells = append(cells, cell.(string))
		}
		if got := strings.Join(cells, " "); got != want {
			t.Errorf("row %d: got %s, want %s", i, got, want)
		}
	}
}
