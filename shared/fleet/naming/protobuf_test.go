package naming

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// unrelated is text that no member's body loses.
const unrelated = "stays@member1"

var testMeta = metav1.ObjectMeta{Name: "x"}

func testTarget(name string) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: name, UID: "1", FieldPath: "x@member1"}
}

func testRole(name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: name}
}

func testMetadata(label string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: "x", Labels: map[string]string{"app": label}, Annotations: map[string]string{"note": unrelated},
	}
}

func testSelector(label string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": label}}
}

func testTemplate(name string) corev1.PodTemplateSpec {
	containers := []corev1.Container{{Name: name, Image: unrelated}}
	return corev1.PodTemplateSpec{
		ObjectMeta: testMetadata(name), Spec: corev1.PodSpec{Hostname: unrelated, Containers: containers},
	}
}

type message interface{ Marshal() ([]byte, error) }

type messageCase struct {
	apiVersion, kind string
	build            func(name, version string) message
}

var referrers = []messageCase{
	{"v1", "Event", func(name, _ string) message {
		related := testTarget(name)
		return &corev1.Event{ObjectMeta: testMeta, InvolvedObject: testTarget(name), Reason: unrelated, Message: unrelated,
			Count:   3,
			Related: &related}
	}},
	{"events.k8s.io/v1", "Event", func(name, _ string) message {
		related := testTarget(name)
		return &eventsv1.Event{ObjectMeta: testMeta, Regarding: testTarget(name), Reason: unrelated, Note: unrelated,
			Related: &related}
	}},
	{"authorization.k8s.io/v1", "SelfSubjectAccessReview", func(name, _ string) message {
		return &authorizationv1.SelfSubjectAccessReview{ObjectMeta: testMeta,
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: name, Verb: unrelated, Name: name}}}
	}},
	{"authorization.k8s.io/v1", "LocalSubjectAccessReview", func(name, _ string) message {
		return &authorizationv1.LocalSubjectAccessReview{ObjectMeta: testMeta,
			Spec: authorizationv1.SubjectAccessReviewSpec{User: unrelated,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: name, Verb: unrelated, Name: name}}}
	}},
	{"authorization.k8s.io/v1", "SelfSubjectRulesReview", func(name, _ string) message {
		return &authorizationv1.SelfSubjectRulesReview{ObjectMeta: testMeta,
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: name}}
	}},
	{
		"v1", "Binding",
		func(name, _ string) message { return &corev1.Binding{ObjectMeta: testMeta, Target: testTarget(name)} },
	},
	{"rbac.authorization.k8s.io/v1", "RoleBinding", func(name, _ string) message {
		return &rbacv1.RoleBinding{ObjectMeta: testMeta, Subjects: []rbacv1.Subject{{Kind: "User", Name: unrelated}},
			RoleRef: testRole(name)}
	}},
	{"rbac.authorization.k8s.io/v1", "ClusterRoleBinding", func(name, _ string) message {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: testMeta, Subjects: []rbacv1.Subject{{Kind: "User", Name: unrelated}},
			RoleRef: testRole(name)}
	}},
	{"autoscaling/v1", "HorizontalPodAutoscaler", func(name, _ string) message {
		return &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: testMeta,
			Spec: autoscalingv1.HorizontalPodAutoscalerSpec{MaxReplicas: 3,
				ScaleTargetRef: autoscalingv1.CrossVersionObjectReference{Kind: "Deployment", Name: name,
					APIVersion: "apps/v1"}}}
	}},
	{"autoscaling/v2", "HorizontalPodAutoscaler", func(name, _ string) message {
		return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: testMeta,
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 3,
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: name,
					APIVersion: "apps/v1"}}}
	}},
}

var selectors = []messageCase{
	{"v1", "Pod", func(name, _ string) message {
		return &corev1.Pod{ObjectMeta: testMetadata(name),
			Spec: corev1.PodSpec{NodeName: name, Hostname: unrelated,
				Containers: []corev1.Container{{Name: "other", Image: unrelated}, {Name: name, Image: unrelated}}}}
	}},
	{"v1", "Service", func(name, _ string) message {
		return &corev1.Service{ObjectMeta: testMetadata(name),
			Spec: corev1.ServiceSpec{ClusterIP: unrelated, Selector: map[string]string{"app": name}}}
	}},
	{"v1", "ReplicationController", func(name, _ string) message {
		pods := testTemplate(name)
		return &corev1.ReplicationController{ObjectMeta: testMeta,
			Spec: corev1.ReplicationControllerSpec{Selector: map[string]string{"app": name}, Template: &pods}}
	}},
	{"apps/v1", "Deployment", func(name, _ string) message {
		return &appsv1.Deployment{ObjectMeta: testMeta,
			Spec: appsv1.DeploymentSpec{MinReadySeconds: 3, Selector: testSelector(name), Template: testTemplate(name)}}
	}},
	{"apps/v1", "ReplicaSet", func(name, _ string) message {
		return &appsv1.ReplicaSet{ObjectMeta: testMeta,
			Spec: appsv1.ReplicaSetSpec{MinReadySeconds: 3, Selector: testSelector(name), Template: testTemplate(name)}}
	}},
	{"apps/v1", "StatefulSet", func(name, _ string) message {
		return &appsv1.StatefulSet{ObjectMeta: testMeta,
			Spec: appsv1.StatefulSetSpec{PodManagementPolicy: appsv1.PodManagementPolicyType(unrelated),
				Selector: testSelector(name),
				Template: testTemplate(name)}}
	}},
	{"apps/v1", "DaemonSet", func(name, _ string) message {
		return &appsv1.DaemonSet{ObjectMeta: testMeta,
			Spec: appsv1.DaemonSetSpec{MinReadySeconds: 3, Selector: testSelector(name), Template: testTemplate(name)}}
	}},
	{"batch/v1", "Job", func(name, _ string) message {
		return &batchv1.Job{ObjectMeta: testMeta,
			Spec: batchv1.JobSpec{Selector: testSelector(name), Template: testTemplate(name)}}
	}},
	{"batch/v1", "CronJob", func(name, _ string) message {
		return &batchv1.CronJob{ObjectMeta: testMeta,
			Spec: batchv1.CronJobSpec{Schedule: unrelated,
				JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: testTemplate(name)}}}}
	}},
	{"policy/v1", "Eviction", func(_, version string) message {
		return &policyv1.Eviction{ObjectMeta: testMeta,
			DeleteOptions: &metav1.DeleteOptions{DryRun: []string{"All"},
				Preconditions: &metav1.Preconditions{ResourceVersion: &version}}}
	}},
}

func (c messageCase) encode(t *testing.T, name, version string) []byte {
	t.Helper()
	raw, err := c.build(name, version).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	types := runtime.TypeMeta{APIVersion: c.apiVersion, Kind: c.kind}
	out, err := (&runtime.Unknown{TypeMeta: types, Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), out...)
}

// TestProtobufPlaces would fail if a protobuf body lost text that names no object, or kept a name@cluster.
func TestProtobufPlaces(t *testing.T) {
	for _, tt := range slices.Concat(referrers, selectors) {
		t.Run(tt.apiVersion+" "+tt.kind, func(t *testing.T) {
			references := referencesOfKind(t, tt.apiVersion, tt.kind)
			b, err := Parse(references, protobufMedia, tt.encode(t, "web@member1", composite))
			if err != nil {
				t.Fatal(err)
			}
			want := tt.encode(t, "web", "100")
			if got, err := b.ForMember("member1", 7); err != nil || !bytes.Equal(got, want) {
				t.Errorf("got %q, %v\nwant %q", got, err, want)
			}
			incomplete := bytes.TrimSuffix(tt.encode(t, "web", "5"), []byte{5})[:20]
			if _, err := Parse(references, protobufMedia, incomplete); err == nil {
				t.Error("an incomplete object is read")
			}
		})
	}
}

func referencesOfKind(t *testing.T, apiVersion, kind string) *References {
	t.Helper()
	group, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		group = ""
	}
	for _, r := range allRows() {
		if r.Kind == kind && cmp.Or(bodyGroups[r.Resource], r.Group) == group {
			return ReferencesOf(r.Group, r.Resource, "")
		}
	}
	t.Fatalf("the table has no %s of %s", kind, apiVersion)
	return nil
}
