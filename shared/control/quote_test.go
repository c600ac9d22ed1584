package control_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A document may contain a credential, which no response and no log may show.
func TestErrorsQuoteNoDocument(t *testing.T) {
	h := newInstallation(t)
	d := h.gateway()
	const token = "credential-that-nobody-is-to-see-0123456789"
	doc := func(spec map[string]any) string { return clusterJSON(t, spec) }
	kc := kubeconfig("https://one.example:6443", token)
	var parsed map[string]any
	if err := json.Unmarshal([]byte(kc), &parsed); err != nil {
		t.Fatal(err)
	}
	good := doc(map[string]any{"kubeconfig": kc})
	if code, answer := d.call(d.master(), "POST", clusters, "application/json", good); code != http.StatusCreated {
		t.Fatal(answer)
	}
	inAnnotation := strings.Replace(doc(map[string]any{"zones": "eu"}), `"name":"m"`,
		fmt.Sprintf(`"name":"m","annotations":{"kubectl.kubernetes.io/last-applied-configuration":%q}`, good), 1)
	const (
		jsonType  = "application/json"
		merge     = "application/merge-patch+json"
		strategic = "application/strategic-merge-patch+json"
		patches   = "application/json-patch+json"
		apply     = "application/apply-patch+yaml"
	)
	for _, tt := range []struct{ method, contentType, body, want string }{
		{"POST", jsonType, doc(map[string]any{"kubeconfig": kc, "regionn": "eu"}), `unknown field "spec.regionn"`},
		{"POST", jsonType, doc(map[string]any{"kubeconfig": parsed}), "spec.kubeconfig"},
		{"PUT", jsonType, doc(map[string]any{"kubeconfig": kc, "regionn": "eu"}), `unknown field "spec.regionn"`},
		{"PUT", jsonType, doc(map[string]any{"kubeconfig": kc, "zones": "eu"}), "spec.zones"},
		{"PATCH", merge, doc(map[string]any{"kubeconfig": kc, "regionn": "eu"}), `unknown field "spec.regionn"`},
		{"PATCH", merge, doc(map[string]any{"kubeconfig": kc, "zones": "eu"}), "spec.zones"},
		{"PATCH", merge, doc(map[string]any{"kubeconfig": parsed}), "spec.kubeconfig"},
		{"PATCH", merge, inAnnotation, "spec.zones"},
		{"PATCH", strategic, doc(map[string]any{"kubeconfig": kc, "regionn": "eu"}), `unknown field "spec.regionn"`},
		{"PATCH", strategic, doc(map[string]any{"kubeconfig": kc, "zones": "eu"}), "cannot restore slice from string"},
		{"PATCH", strategic, doc(map[string]any{"kubeconfig": parsed}), "unrecognized type"},
		{"PATCH", patches,
			fmt.Sprintf(`[{"op":"add","path":"/spec/kubeconfig","value":%q},{"op":"add","path":"/spec/regionn","value":"eu"}]`,
				kc), `unknown field "spec.regionn"`},
		{"PATCH", patches, fmt.Sprintf(`[{"op":"add","path":"/spec/kubeconfig","value":%s}]`, kc), "spec.kubeconfig"},
		{"PATCH", patches, fmt.Sprintf(`[{"op":"test","path":"/spec/kubeconfig","value":%q}]`, kc), "rejected our request"},
		{"PATCH", apply, doc(map[string]any{"kubeconfig": kc, "regionn": "eu"}), "spec.regionn"},
		{"PATCH", apply, doc(map[string]any{"kubeconfig": kc, "zones": "eu"}), ".spec.zones: expected list"},
		{"PATCH", apply, doc(map[string]any{"kubeconfig": parsed}), ".spec.kubeconfig: expected string"},
		{"PATCH", apply,
			fmt.Sprintf(`{"apiVersion":"cluster.karmada.io/v1alpha1","kind":"Cluster","metadata":{"name":"m"},"spec":%q}`, kc),
			".spec: expected map"},
	} {
		paths := []string{clusters + "/m"}
		switch tt.method {
		case "POST":
			paths = []string{clusters}
		case "PATCH":
			paths = append(paths, clusters+"/m/status")
		}
		for _, path := range paths {
			code, answer := d.call(d.master(), tt.method, path+"?fieldValidation=Strict&fieldManager=me",
				tt.contentType, tt.body)
			var status metav1.Status
			if err := json.Unmarshal([]byte(answer), &status); err != nil || code < 400 || code >= 500 ||
				!strings.Contains(status.Message, tt.want) {
				t.Errorf("%s %s %s: %d %s, want %s", tt.method, path, tt.contentType, code, answer, tt.want)
			}
			if strings.Contains(answer, token) {
				t.Errorf("%s %s %s answers with the credential: %s", tt.method, path, tt.contentType, answer)
			}
		}
	}
	slip := strings.NewReplacer(`"name":"m"`,
		fmt.Sprintf(`"name":"slip","annotations":{"kubectl.kubernetes.io/last-applied-configuration":%q}`,
			strings.Replace(good, `"kubeconfig"`, `"KubeConfig"`, 1)), `"kubeconfig"`, `"KubeConfig"`).Replace(good)
	if code, answer := d.call(d.master(), "POST", clusters+"?fieldValidation=Ignore", jsonType,
		slip); code != http.StatusCreated || strings.Contains(answer, token) {
		t.Errorf("%d %s", code, answer)
	}
	if stored, err := h.Objects.Get(testContext(t), "clusters/slip"); err != nil ||
		strings.Contains(string(stored.Value), token) || !strings.Contains(string(stored.Value), "last-applied") {
		t.Errorf("stored %s, %v", stored.Value, err)
	}
	if strings.Contains(h.log.String(), token) {
		t.Errorf("the log has the credential: %s", &h.log)
	}
}

func clusterJSON(t *testing.T, spec map[string]any) string {
	t.Helper()
	out, err := json.Marshal(map[string]any{"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
		"metadata": map[string]any{"name": "m"}, "spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
