package naming

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
)

// resource returns the References of a resource, as GROUP/RESOURCE or RESOURCE/SUBRESOURCE of the core group.
func resource(name string) *References {
	group, name, ok := strings.Cut(name, "/")
	if !ok {
		return ReferencesOf("", group, "")
	} else if group == "pods" || group == "serviceaccounts" {
		return ReferencesOf("", group, name)
	}
	name, subresource, _ := strings.Cut(name, "/")
	return ReferencesOf(group, name, subresource)
}

var anyKind = resource("configmaps")

func known(c string) bool { return c == "member1" || c == "member2" }

var composite = cursor.Version{7: "100", 8: "200"}.String()

func TestSplit(t *testing.T) {
	for in, want := range map[string][2]string{
		"web":         {"web", ""},
		"web@member1": {"web", "member1"},
		"web@other":   {"web@other", ""},
		"a@b@member2": {"a@b", "member2"},
		"@member1":    {"@member1", ""}, "web@": {"web@", ""},
	} {
		base, cluster, ok := Split(in, known)
		if base != want[0] || cluster != want[1] || ok != (cluster != "") {
			t.Errorf("%s is %q in %q, %v", in, base, cluster, ok)
		}
	}
}

func TestSelector(t *testing.T) {
	for in, want := range map[string][2]string{
		"":                          {"", ""},
		"status.phase=Running":      {"status.phase=Running", ""},
		"metadata.name=web":         {"metadata.name=web", ""},
		"metadata.name=web@member1": {"metadata.name=web", "member1"},
		"metadata.name=web@other":   {"metadata.name=web@other", ""},
		"spec.nodeName=web@member1": {"spec.nodeName=web", "member1"},
		"status.phase=web@other":    {"status.phase=web@other", ""},
		"involvedObject.uid=n@member1,involvedObject.namespace=x@member1": {
			"involvedObject.namespace=x,involvedObject.uid=n", "member1",
		},
		"involvedObject.name=web@member2,involvedObject.namespace!=x": {
			"involvedObject.name=web,involvedObject.namespace!=x", "member2",
		},
	} {
		got, cluster, err := RewriteFieldSelector(selectable(in), in, known)
		if err != nil || got != want[0] || cluster != want[1] {
			t.Errorf("%s is %q in %q, %v", in, got, cluster, err)
		}
	}
	for _, in := range []string{"metadata.name=a@member1,involvedObject.name=b@member2", "status.phase=web@member1",
		"metadata.name!=web@member1", "@"} {
		if got, cluster, err := RewriteFieldSelector(selectable(in), in, known); err == nil {
			t.Errorf("%s is %q in %q", in, got, cluster)
		}
	}
}

func selectable(selector string) *References {
	if strings.Contains(selector, "involvedObject") {
		return resource("events")
	}
	return resource("pods")
}

// TestSelectorOfOtherKinds would fail if a custom resource could not be selected by a field that has an @ of its own.
func TestSelectorOfOtherKinds(t *testing.T) {
	widgets := resource("example.com/widgets")
	for in, want := range map[string]string{
		"spec.owner=web@member1": "spec.owner=web@member1 ", "spec.name!=web@member1": "spec.name!=web@member1 ",
		"metadata.name=web@member1": "metadata.name=web member1",
	} {
		if got, cluster, err := RewriteFieldSelector(widgets, in, known); err != nil || got+" "+cluster != want {
			t.Errorf("%s is %q in %q, %v", in, got, cluster, err)
		}
	}
	if got, cluster, err := RewriteFieldSelector(widgets, "metadata.name!=web@member1", known); err == nil {
		t.Errorf("%q in %q", got, cluster)
	}
}

func TestLabels(t *testing.T) {
	for in, want := range map[string]string{
		"":                                      " []",
		"a=b, c in (d)":                         "a=b, c in (d) []", // unchanged
		"a=b,clusterpass.io/cluster=m":          "a=b [m]",
		"clusterpass.io/cluster==m":             " [m]",
		"!x,clusterpass.io/cluster in (n,m)":    "!x [m n]",
		"a=clusterpass.io/cluster":              "",
		"clusterpass.io/cluster":                "",
		"clusterpass.io/cluster notin (m)":      "",
		"kubernetes.io/service-name=web@m":      "kubernetes.io/service-name=web [m]",
		"a in (x@m, y@m ),b!=c":                 "a in (x, y ),b!=c [m]",
		"a=x@m,clusterpass.io/cluster in (n,m)": "a=x [m]",
		"a=x@m,clusterpass.io/cluster=n":        "",
		"a=x@m,b=y@n":                           "",
		"a=x@":                                  "",
		"x@m":                                   "",
		"a!=x@m":                                "",
		"a notin (y, x@m)":                      "",
		"a in (x@m),b notin (y@m)":              "",
		"a=@m":                                  "",
		"a in (x@m, @m)":                        "",
		"clusterpass.io/cluster=a,clusterpass.io/cluster=a": "",
	} {
		got, clusters, err := RewriteLabelSelector(in)
		if (err != nil) != (want == "") || err == nil && fmt.Sprint(got, " ", clusters) != want {
			t.Errorf("%q is %q, %q, %v; want %s", in, got, clusters, err, want)
		}
	}
}

// TestProtobuf would fail if a protobuf body lost data besides the rewritten fields.
func TestProtobuf(t *testing.T) {
	write := func(kind string, raw []byte) []byte {
		t.Helper()
		u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: raw}
		out, err := u.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte("k8s\x00"), out...)
	}
	pod := func(name, version string, annotations map[string]string, owners ...metav1.OwnerReference) []byte {
		t.Helper()
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners, ResourceVersion: version,
			Annotations: annotations, Labels: map[string]string{"a": "b"}},
			Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		raw, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return write("Pod", raw)
	}
	deletion := func(version string) []byte {
		t.Helper()
		seconds := int64(3)
		raw, err := (&metav1.DeleteOptions{GracePeriodSeconds: &seconds,
			Preconditions: &metav1.Preconditions{ResourceVersion: &version}}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return write("DeleteOptions", raw)
	}
	for name, tt := range map[string]struct{ in, want []byte }{
		"a pod": {
			pod("web@member1", composite, map[string]string{"resource.karmada.io/cached-from-cluster": "member1", "x": "y"}),
			pod("web", "100", map[string]string{"x": "y"}),
		},
		"nothing to change": {pod("web", "5", nil), pod("web", "5", nil)},
		"owners": {
			pod("web", "5", nil, metav1.OwnerReference{Name: "a", UID: "1"},
				metav1.OwnerReference{Name: "b@member1", UID: "2"}),
			pod("web", "5", nil, metav1.OwnerReference{Name: "a", UID: "1"}, metav1.OwnerReference{Name: "b", UID: "2"}),
		},
		"a deletion":          {deletion(composite), deletion("100")},
		"a deletion with own": {deletion("5"), deletion("5")},
	} {
		references := resource("pods")
		if strings.Contains(name, "deletion") {
			references = Deletion
		}
		b, err := Parse(references, protobufMedia, tt.in)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := b.ForMember("member1", 7); err != nil || !bytes.Equal(got, tt.want) {
			t.Errorf("%s\n got %q, %v\nwant %q", name, got, err, tt.want)
		}
	}
	for _, in := range []string{"k8s", "k8s\x00\x01", "{}", string(write("Pod", []byte{8, 1}))} {
		if _, err := Parse(resource("pods"), protobufMedia, []byte(in)); err == nil {
			t.Errorf("%q is read as an object", in)
		}
	}
}

func TestMetadata(t *testing.T) {
	b, err := Parse(anyKind, "", []byte(`{"metadata":{"name":"web","annotations":`+
		`{"clusterpass.io/cluster":"member1","resource.karmada.io/cached-from-cluster":"member2"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if name, placement, source := b.Metadata(); name != "web" || placement != "member1" || source != "member2" {
		t.Errorf("%q %q %q", name, placement, source)
	}
}

func TestAnswer(t *testing.T) {
	in := `{"kind":"Pod","metadata":{"name":"web","ownerReferences":[{"kind":"DaemonSet","name":"set","uid":"1"}],` +
		`"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"metadata\":{\"name\":\"web\"}}\n"}}}`
	got, err := NewAnswer(anyKind, "member1", true, slots(nil)).Append(nil, parseObject(t, in))
	if err != nil {
		t.Fatal(err)
	}
	var o struct {
		Metadata struct {
			Name            string
			Annotations     map[string]string
			OwnerReferences []metav1.OwnerReference
		}
	}
	if err := json.Unmarshal(got, &o); err != nil || o.Metadata.OwnerReferences[0].Name != "set@member1" ||
		o.Metadata.Name != "web@member1" ||
		o.Metadata.Annotations["resource.karmada.io/cached-from-cluster"] != "member1" ||
		!strings.Contains(o.Metadata.Annotations[merge.LastApplied], `"web@member1"`) {
		t.Errorf("%s, %v", got, err)
	}
	// A client that writes the object back sends the member's own object.
	b, err := Parse(anyKind, "application/json", got)
	if err != nil {
		t.Fatal(err)
	}
	back, err := b.ForMember("member1", 7)
	if err != nil {
		t.Fatal(err)
	}
	var before, after any
	_ = json.Unmarshal([]byte(in), &before)
	if err := json.Unmarshal(back, &after); err != nil || !reflect.DeepEqual(before, after) {
		t.Errorf("%s, want %s", back, in)
	}
	if got := string(NewAnswer(anyKind, "member1", true, slots(nil)).Status([]byte(`{"message":"pods \"web\" not found",` +
		`"details":{"name":"web"}}`))); got != `{"details":{"name":"web@member1"},`+
		`"message":"pods \"web@member1\" not found"}`+"\n" {
		t.Error(got)
	}
}

// TestNamesWithAt would fail if an object whose own name has the form name@cluster could not be read and written back.
func TestNamesWithAt(t *testing.T) {
	a := NewAnswer(anyKind, "member1", false, slots(nil))
	for own, want := range map[string]string{
		"web": "web", "web@example.com": "web@example.com", "a@Example": "a@Example", "a@": "a@", "@a": "@a", "": "",
		"web@member2": "web@member2@member1",
		"web@member1": "web@member1@member1",
		"web@unknown": "web@unknown@member1",
		"a@b@c":       "a@b@c@member1",
	} {
		if got := a.Name(own); got != want {
			t.Errorf("%s is named %s, want %s", own, got, want)
		}
	}
	const in = `{"metadata":{"name":"web@member1","ownerReferences":[{"name":"set@member1"}],"annotations":` +
		`{"kubectl.kubernetes.io/last-applied-configuration":"{\"metadata\":{\"name\":\"web@member1\"}}\n"}}}`
	out, err := a.Append(nil, parseObject(t, in))
	if err != nil || strings.Count(string(out), "@member1@member1") != 3 {
		t.Fatalf("%s, %v", out, err)
	}
	b, err := Parse(anyKind, "application/json", out)
	if err != nil {
		t.Fatal(err)
	}
	back, err := b.ForMember("member1", 7)
	var before, after any
	_ = json.Unmarshal([]byte(in), &before)
	if err != nil || json.Unmarshal(back, &after) != nil || !reflect.DeepEqual(before, after) {
		t.Errorf("%s, %v, want %s", back, err, in)
	}
	if got := string(a.Status([]byte(
		`{"message":"\"a@b\"","details":{"name":"a@b"}}`))); got != `{"details":{"name":"a@b@member1"},`+
		`"message":"\"a@b@member1\""}`+"\n" {
		t.Error(got)
	}
}

// TestAddClusterToSelectors would fail if kubectl describe listed pods of other clusters.
func TestAddClusterToSelectors(t *testing.T) {
	for in, want := range map[string]string{
		`{"kind":"Deployment","spec":{"selector":{"matchLabels":{"a":"b"}}}}`: `{"kind":"Deployment","spec":` +
			`{"selector":{"matchLabels":{"a":"b","clusterpass.io/cluster":"member1"}}}}`,
		`{"kind":"Job","spec":{"selector":{"matchExpressions":[]}}}`: `{"kind":"Job","spec":{"selector":` +
			`{"matchExpressions":[],"matchLabels":{"clusterpass.io/cluster":"member1"}}}}`,
		`{"kind":"Service","spec":{"selector":{"a":"b"}}}`: `{"kind":"Service","spec":{"selector":` +
			`{"a":"b","clusterpass.io/cluster":"member1"}}}`,
		`{"kind":"Service","spec":{"selector":{}}}`: `{"kind":"Service","spec":{"selector":{}}}`,
		`{"kind":"Service","spec":{}}`:              `{"kind":"Service","spec":{}}`,
		`{"kind":"Job","spec":{}}`:                  `{"kind":"Job","spec":{}}`,
		`{"kind":"PodDisruptionBudget","spec":{"selector":{"matchLabels":{}}}}`: `{"kind":"PodDisruptionBudget","spec":` +
			`{"selector":{"matchLabels":{}}}}`,
		`{"kind":["Service"],"spec":[{"selector":{"a":"b"}}]}`: `{"kind":["Service"],"spec":` +
			`[{"selector":{"a":"b"}}]}`,
	} {
		a := NewAnswer(anyKind, "member1", false, slots(nil))
		a.AddClusterToSelectors()
		got, err := a.Append(nil, parseObject(t, in))
		if want = `{"metadata":{"annotations":{"resource.karmada.io/cached-from-cluster":"member1"}},` +
			want[1:]; err != nil || string(got) != want {
			t.Errorf("%s\n got %s, %v\nwant %s", in, got, err, want)
		}
	}
}

// TestQualifyNamespacesAndClaims would fail if kubectl describe read claims or namespaces of other clusters.
func TestQualifyNamespacesAndClaims(t *testing.T) {
	const source = `"annotations":{"resource.karmada.io/cached-from-cluster":"m"}`
	for in, want := range map[string]string{
		`{"kind":"Node","metadata":{"name":"n"}}`: `{"kind":"Node","metadata":{` + source + `,"name":"n@m"}}`,
		`{"metadata":{"name":"p","namespace":"x"},"spec":{"volumes":[` +
			`{"name":"v","persistentVolumeClaim":{"claimName":"c"}},{"emptyDir":{},"name":"e"},null]}}`: `{"metadata":{` +
			source + `,"name":"p@m","namespace":"x@m"},"spec":{"volumes":[` +
			`{"name":"v","persistentVolumeClaim":{"claimName":"c@m"}},{"emptyDir":{},"name":"e"},null]}}`,
		`{"metadata":{"namespace":7},"spec":{"volumes":{"persistentVolumeClaim":"c"}}}`: ``,
		`{"metadata":{"namespace":""},"spec":[]}`: `{"metadata":{` +
			source + `,"namespace":""},"spec":[]}`,
	} {
		a := NewAnswer(resource("pods"), "m", true, slots(nil))
		a.QualifyNamespaces()
		a.QualifyClaims()
		if got, err := a.Append(nil, parseObject(t, in)); (err != nil) != (want == "") || err == nil && string(got) != want {
			t.Errorf("%s\n got %s, %v\nwant %s", in, got, err, want)
		}
	}
}

// FuzzBody would fail if a member received a source annotation or the name of its cluster.
func FuzzBody(f *testing.F) {
	f.Add("application/json",
		`{"metadata":{"name":"web@member1","resourceVersion":"`+composite+
			`","annotations":{"resource.karmada.io/cached-from-cluster":"x"}}}`)
	f.Add("application/json-patch+json", `[{"op":"replace","path":"/metadata/name","value":"a@member1"}]`)
	f.Add("application/apply-patch+yaml", "metadata: {name: web@member1}")
	f.Add(protobufMedia, "k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x0f\x0a\x0d\x0a\x0bweb@member1")
	f.Add(protobufMedia, "k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x0f\x12\x0d\x52\x0bweb@member1")
	f.Add("application/json-patch+json", `[{"op":"add","path":"/spec/volumes/-","value":{"configMap":`+
		`{"name":"a@member1"}}}]`)
	f.Fuzz(func(t *testing.T, contentType, in string) {
		b, err := Parse(resource("pods"), contentType, []byte(in))
		if err != nil {
			return
		}
		nameBefore, _, _ := b.Metadata()
		rewritten, err := b.ForMember("member1", 7)
		if err != nil {
			return
		}
		if again, err := Parse(resource("pods"), contentType, rewritten); err != nil {
			t.Fatalf("%q becomes %q, which cannot be read: %v", in, rewritten, err)
		} else if name, _, source := again.Metadata(); source != "" || name != strings.TrimSuffix(nameBefore, "@member1") {
			t.Fatalf("%q becomes %q", in, rewritten)
		}
	})
}

func parseObject(t *testing.T, text string) merge.Object {
	t.Helper()
	o, err := merge.ObjectOf([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}
