package generate

import (
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"
)

// Typed returns a random object of a kind of client-go's scheme. An API server may refuse it; see Repair.
func (s *Source) Typed(gvk schema.GroupVersionKind) (map[string]any, error) {
	object, err := scheme.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	s.filler().Fill(object)
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("write a random %s: %w", gvk.Kind, err)
	}
	o := map[string]any{}
	if err := Decode(text, &o); err != nil {
		return nil, err
	}
	o["apiVersion"], o["kind"] = gvk.GroupVersion().String(), gvk.Kind
	o["metadata"] = s.Metadata()
	delete(o, "status")
	s.complete(o)
	return o, nil
}

// htmlEscape matches the escapes of <, > and &, which the fleet does not write. The API server compares the bytes of a
// ControllerRevision's data with its own form, which has the escapes, and refuses the next patch.
var htmlEscape = regexp.MustCompile(`\\u00(3c|3e|26)`)

// filler returns a Filler with values that API servers often accept.
func (s *Source) filler() *randfill.Filler {
	nilChance := []float64{0.5, 0.7, 0.8, 0.9}
	return randfill.New().RandSource(fillSource{s}).NilChance(Pick(s, nilChance)).NumElements(1, 2).Funcs(
		func(v *string, _ randfill.Continue) {
			if *v = s.Label(); s.Chance(12) {
				*v = s.Text()
			}
		},
		func(v *int32, _ randfill.Continue) { *v = int32(s.IntN(100)) },
		func(v *int64, _ randfill.Continue) { *v = int64(s.IntN(100)) },
		func(v *int, _ randfill.Continue) { *v = s.IntN(100) },
		func(v *[]byte, _ randfill.Continue) { *v = []byte(s.Text()) },
		func(v *metav1.Time, _ randfill.Continue) { *v = metav1.Unix(1_700_000_000+int64(s.IntN(1_000_000)), 0) },
		func(v *metav1.MicroTime, _ randfill.Continue) {
			*v = metav1.NewMicroTime(time.Unix(1_700_000_000, int64(s.IntN(1_000_000))*1000))
		},
		func(v *metav1.Duration, _ randfill.Continue) { v.Duration = time.Duration(s.IntN(100)) * time.Second },
		func(v *resource.Quantity, _ randfill.Continue) {
			*v = resource.MustParse(Pick(s, []string{"1", "100m", "1Gi", "2k", "0.5", "1e3"}))
		},
		func(v *intstr.IntOrString, _ randfill.Continue) {
			if *v = intstr.FromInt32(int32(1 + s.IntN(99))); s.Chance(3) {
				*v = intstr.FromString(fmt.Sprintf("%d%%", s.IntN(100)))
			}
		},
		func(v *runtime.RawExtension, _ randfill.Continue) {
			text, _ := json.Marshal(s.Object(2)) // maps of JSON values always marshal
			v.Raw = htmlEscape.ReplaceAll(text, nil)
		},
		func(v *metav1.FieldsV1, _ randfill.Continue) { v.SetRawBytes([]byte("{}")) },
		func(v *metav1.ObjectMeta, _ randfill.Continue) {
			*v = metav1.ObjectMeta{Labels: map[string]string{"app": "x"}, Annotations: map[string]string{s.Label(): s.Text()}}
		},
	)
}

// complete adds fields that every object of a kind needs. It removes fields that concern other objects, such as an
// address, or a default of the whole cluster.
func (s *Source) complete(o map[string]any) {
	spec, _ := o["spec"].(map[string]any)
	switch o["kind"] {
	case "Pod":
		completePod(o, "Always")
	case "Deployment", "ReplicaSet", "DaemonSet", "StatefulSet":
		ensure(o, "spec")["selector"] = map[string]any{"matchLabels": map[string]any{"app": "x"}}
		completePod(ensure(ensure(o, "spec"), "template"), "Always")
	case "ReplicationController":
		ensure(o, "spec")["selector"] = map[string]any{"app": "x"}
		completePod(ensure(ensure(o, "spec"), "template"), "Always")
	case "Job":
		delete(ensure(o, "spec"), "selector")
		delete(spec, "manualSelector")
		completePod(ensure(ensure(o, "spec"), "template"), "Never")
	case "CronJob":
		ensure(o, "spec")["schedule"] = "5 4 * * *"
		job := ensure(ensure(ensure(o, "spec"), "jobTemplate"), "spec")
		delete(job, "selector")
		completePod(ensure(job, "template"), "Never")
	case "PodTemplate":
		completePod(ensure(o, "template"), "Always")
	case "Service":
		o["spec"] = map[string]any{"selector": map[string]any{"app": "x"}, "ports": []any{map[string]any{"port": 80}}}
	case "PersistentVolumeClaim":
		ensure(o, "spec")["resources"] = map[string]any{"requests": map[string]any{"storage": "1Gi"}}
		spec["accessModes"] = []any{"ReadWriteOnce"}
	case "PriorityClass":
		delete(o, "globalDefault")
	case "RoleBinding", "ClusterRoleBinding":
		role := Pick(s, []string{"dev", "dev@member1", "dev@member2", "dev@a@b", "dev@example.com", s.Label()})
		o["roleRef"] = map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
		o["subjects"] = s.subjects()
	}
}

// Names of users and groups may have an @.
func (s *Source) subjects() []any {
	subjects := []any{}
	for range s.IntN(4) {
		subject := map[string]any{"kind": "ServiceAccount", "name": s.Label(), "namespace": s.Label()}
		if s.Chance(3) {
			kind := Pick(s, []string{"User", "Group"})
			subject = map[string]any{"kind": kind, "apiGroup": "rbac.authorization.k8s.io", "name": s.Label() + "@member1"}
		}
		subjects = append(subjects, subject)
	}
	return subjects
}

func completePod(pod map[string]any, restart string) {
	pod["metadata"] = withLabel(pod["metadata"])
	spec := ensure(pod, "spec")
	spec["containers"] = []any{map[string]any{"name": "c", "image": "x"}}
	spec["restartPolicy"] = restart
	spec["automountServiceAccountToken"] = false // a random name of a volume otherwise
	for _, field := range []string{
		"serviceAccountName", "serviceAccount", "initContainers", "ephemeralContainers", "priority", "priorityClassName",
		"overhead", "runtimeClassName", "nodeName", "resourceClaims",
	} {
		delete(spec, field)
	}
}

func withLabel(metadata any) map[string]any {
	m, _ := metadata.(map[string]any)
	if m == nil {
		m = map[string]any{}
	}
	delete(m, "creationTimestamp")
	ensure(m, "labels")["app"] = "x"
	return m
}

func ensure(o map[string]any, field string) map[string]any {
	inner, ok := o[field].(map[string]any)
	if !ok {
		inner = map[string]any{}
		o[field] = inner
	}
	return inner
}
