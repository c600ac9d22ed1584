package naming

import (
	"bytes"
	"cmp"
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

// TestProtobufPlaces would fail if a body in protobuf lost text that names no object, or kept a name that the cluster does
// not know.
func TestProtobufPlaces(t *testing.T) {
	type message interface{ Marshal() ([]byte, error) }
	about := func(name string) corev1.ObjectReference {
		return corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: name, UID: "1", FieldPath: "x@member1"}
	}
	role := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: name}
	}
	meta, note := metav1.ObjectMeta{Name: "x"}, "stays@member1"
	labelled := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "x", Labels: map[string]string{"app": name}, Annotations: map[string]string{"note": note}}
	}
	selector := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	}
	template := func(name string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: labelled(name), Spec: corev1.PodSpec{Hostname: note, Containers: []corev1.Container{{Name: name, Image: note}}}}
	}
	for _, tt := range []struct {
		apiVersion, kind string
		of               func(name, version string) message
	}{
		{"v1", "Event", func(name, _ string) message {
			related := about(name)
			return &corev1.Event{ObjectMeta: meta, InvolvedObject: about(name), Reason: note, Message: note, Count: 3, Related: &related}
		}},
		{"events.k8s.io/v1", "Event", func(name, _ string) message {
			related := about(name)
			return &eventsv1.Event{ObjectMeta: meta, Regarding: about(name), Reason: note, Note: note, Related: &related}
		}},
		{"authorization.k8s.io/v1", "SelfSubjectAccessReview", func(name, _ string) message {
			return &authorizationv1.SelfSubjectAccessReview{ObjectMeta: meta, Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: name, Verb: note, Name: name}}}
		}},
		{"authorization.k8s.io/v1", "LocalSubjectAccessReview", func(name, _ string) message {
			return &authorizationv1.LocalSubjectAccessReview{ObjectMeta: meta, Spec: authorizationv1.SubjectAccessReviewSpec{User: note, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: name, Verb: note, Name: name}}}
		}},
		{"authorization.k8s.io/v1", "SelfSubjectRulesReview", func(name, _ string) message {
			return &authorizationv1.SelfSubjectRulesReview{ObjectMeta: meta, Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: name}}
		}},
		{"v1", "Binding", func(name, _ string) message { return &corev1.Binding{ObjectMeta: meta, Target: about(name)} }},
		{"rbac.authorization.k8s.io/v1", "RoleBinding", func(name, _ string) message {
			return &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{{Kind: "User", Name: note}}, RoleRef: role(name)}
		}},
		{"rbac.authorization.k8s.io/v1", "ClusterRoleBinding", func(name, _ string) message {
			return &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{{Kind: "User", Name: note}}, RoleRef: role(name)}
		}},
		{"autoscaling/v1", "HorizontalPodAutoscaler", func(name, _ string) message {
			return &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: meta, Spec: autoscalingv1.HorizontalPodAutoscalerSpec{MaxReplicas: 3, ScaleTargetRef: autoscalingv1.CrossVersionObjectReference{Kind: "Deployment", Name: name, APIVersion: "apps/v1"}}}
		}},
		{"autoscaling/v2", "HorizontalPodAutoscaler", func(name, _ string) message {
			return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 3, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: name, APIVersion: "apps/v1"}}}
		}},
		{"v1", "Pod", func(name, _ string) message {
			return &corev1.Pod{ObjectMeta: labelled(name), Spec: corev1.PodSpec{NodeName: name, Hostname: note, Containers: []corev1.Container{{Name: "other", Image: note}, {Name: name, Image: note}}}}
		}},
		{"v1", "Service", func(name, _ string) message {
			return &corev1.Service{ObjectMeta: labelled(name), Spec: corev1.ServiceSpec{ClusterIP: note, Selector: map[string]string{"app": name}}}
		}},
		{"v1", "ReplicationController", func(name, _ string) message {
			pods := template(name)
			return &corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Selector: map[string]string{"app": name}, Template: &pods}}
		}},
		{"apps/v1", "Deployment", func(name, _ string) message {
			return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{MinReadySeconds: 3, Selector: selector(name), Template: template(name)}}
		}},
		{"apps/v1", "ReplicaSet", func(name, _ string) message {
			return &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{MinReadySeconds: 3, Selector: selector(name), Template: template(name)}}
		}},
		{"apps/v1", "StatefulSet", func(name, _ string) message {
			return &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{PodManagementPolicy: appsv1.PodManagementPolicyType(note), Selector: selector(name), Template: template(name)}}
		}},
		{"apps/v1", "DaemonSet", func(name, _ string) message {
			return &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{MinReadySeconds: 3, Selector: selector(name), Template: template(name)}}
		}},
		{"batch/v1", "Job", func(name, _ string) message {
			return &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Selector: selector(name), Template: template(name)}}
		}},
		{"batch/v1", "CronJob", func(name, _ string) message {
			return &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{Schedule: note, JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template(name)}}}}
		}},
		{"policy/v1", "Eviction", func(_, version string) message {
			return &policyv1.Eviction{ObjectMeta: meta, DeleteOptions: &metav1.DeleteOptions{DryRun: []string{"All"}, Preconditions: &metav1.Preconditions{ResourceVersion: &version}}}
		}},
	} {
		write := func(name, version string) []byte {
			raw, err := tt.of(name, version).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			out, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: tt.apiVersion, Kind: tt.kind}, Raw: raw}).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			return append([]byte("k8s\x00"), out...)
		}
		b, err := Parse(referencesOfKind(t, tt.apiVersion, tt.kind), protobufMedia, write("web@member1", composite))
		if err != nil {
			t.Errorf("%s %s: %v", tt.apiVersion, tt.kind, err)
			continue
		}
		if got, err := b.ForMember("member1", 7); err != nil || !bytes.Equal(got, write("web", "100")) {
			t.Errorf("%s %s\n got %q, %v\nwant %q", tt.apiVersion, tt.kind, got, err, write("web", "100"))
		}
		if _, err := Parse(referencesOfKind(t, tt.apiVersion, tt.kind), protobufMedia, bytes.TrimSuffix(write("web", "5"), []byte{5})[:20]); err == nil {
			t.Errorf("half of %s is taken for one", tt.kind)
		}
	}
}

// referencesOfKind returns the References of a kind in the table.
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
