package object

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpass/clusterpass/shared/fleet/naming"
)

func parsed(t *testing.T, method, contentType, text string) *naming.Body {
	t.Helper()
	references := naming.ReferencesOf("", "configmaps", "")
	if method == http.MethodDelete {
		references = naming.Deletion
	}
	body, err := naming.Parse(references, contentType, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// TestBareWritesPermits fails if a bare write could reach the object of a cluster that the manifest does not name.
func TestBareWritesPermits(t *testing.T) {
	const (
		merge = "application/merge-patch+json"
		ops   = "application/json-patch+json"
		apply = "application/apply-patch+yaml"
		pb    = "application/vnd.kubernetes.protobuf"
	)
	for name, tt := range map[string]struct {
		method, contentType, command, body string
		want                               string // the settings that permit it
	}{
		"kubectl delete": {
			"DELETE", "application/json", "kubectl delete", `{"propagationPolicy":"Background"}`, "all",
		},
		"kubectl replace --force": {
			"DELETE", "application/json", "kubectl replace", `{"propagationPolicy":"Background"}`, "all",
		},
		"kubectl apply --force": {
			"DELETE", "application/json", "kubectl apply", `{"propagationPolicy":"Background"}`, "all",
		},
		"kubectl delete --raw":      {"DELETE", "", "kubectl delete", "", "all"},
		"another client's deletion": {"DELETE", "", "", "", "all"},
		"kubectl drain":             {"DELETE", "application/json", "kubectl drain", `{}`, "whole all"},
		"a deletion of one uid": {
			"DELETE", "application/json", "", `{"preconditions":{"uid":"u"}}`, "none whole all",
		},
		"a deletion of one version": {
			"DELETE", "application/json", "", `{"preconditions":{"resourceVersion":"7"}}`, "none whole all",
		},
		"a deletion of any version": {
			"DELETE", "application/json", "", `{"preconditions":{"resourceVersion":"0"}}`, "all",
		},
		"a deletion with metadata":     {"DELETE", "application/json", "", `{"metadata":{"uid":"u"}}`, "all"},
		"a patch with preconditions":   {"PATCH", merge, "", `{"preconditions":{"uid":"u"}}`, "all"},
		"a deletion with an empty uid": {"DELETE", "application/json", "", `{"preconditions":{"uid":""}}`, "all"},
		"kubectl patch":                {"PATCH", merge, "kubectl patch", `{"data":{}}`, "all"},
		"kubectl scale":                {"PATCH", merge, "kubectl scale", `{"spec":{"replicas":0}}`, "all"},
		"kubectl rollout undo": {
			"PATCH", ops, "kubectl rollout undo", `[{"op":"replace","path":"/spec","value":{}}]`, "all",
		},
		"another client's patch": {"PATCH", merge, "", `{"data":{}}`, "all"},
		"kubectl apply":          {"PATCH", merge, "kubectl apply", `{"data":{}}`, "whole all"},
		"kubectl diff":           {"PATCH", merge, "kubectl diff", `{"data":{}}`, "whole all"},
		"kubectl uncordon":       {"PATCH", merge, "kubectl uncordon", `{"spec":{}}`, "whole all"},
		"server-side apply":      {"PATCH", apply, "kubectl apply", `{"data":{}}`, "whole all"},
		"another client's apply": {"PATCH", apply, "", `{"data":{}}`, "whole all"},
		"a patch of one version": {"PATCH", merge, "", `{"metadata":{"resourceVersion":"7"}}`, "none whole all"},
		"a JSON patch that tests a uid": {
			"PATCH", ops, "", `[{"op":"test","path":"/metadata/uid","value":"u"}]`, "none whole all",
		},
		"a JSON patch that replaces a uid": {
			"PATCH", ops, "", `[{"op":"replace","path":"/metadata/uid","value":"u"}]`, "all",
		},
		"kubectl replace": {
			"PUT", "application/json", "kubectl replace", `{"metadata":{"resourceVersion":"7"}}`, "whole all",
		},
		"kubectl certificate approve": {
			"PUT", "application/json", "kubectl certificate approve", `{"metadata":{"uid":"u"}}`, "all",
		},
		"an eviction":                       {"POST", "application/json", "", `{"kind":"Eviction"}`, "whole all"},
		"a deletion in protobuf":            {"DELETE", pb, "", protobufOptions(t, ""), "all"},
		"a deletion of one uid in protobuf": {"DELETE", pb, "", protobufOptions(t, "u"), "none whole all"},
	} {
		t.Run(name, func(t *testing.T) {
			body := parsed(t, tt.method, tt.contentType, tt.body)
			var got []string
			for _, b := range []BareWrites{BareNone, BareWhole, BareAll} {
				if b.permits(tt.method, tt.contentType, tt.command, body) {
					got = append(got, string(b))
				}
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("permitted by %q, want %q", s, tt.want)
			}
			var unset BareWrites
			whole := slices.Contains(got, string(BareWhole))
			if unset.permits(tt.method, tt.contentType, tt.command, body) != whole {
				t.Error("the zero value is not BareWhole")
			}
		})
	}
}

func protobufOptions(t *testing.T, uid types.UID) string {
	t.Helper()
	options := &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"}}
	if uid != "" {
		options.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	var out strings.Builder
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, apischema.GroupVersion{Version: "v1"})
	if err := protobuf.NewSerializer(scheme, scheme).Encode(options, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestBareWritesDecode fails if a mistyped setting could permit deletions.
func TestBareWritesDecode(t *testing.T) {
	for value, good := range map[string]bool{
		"whole": true, "none": true, "all": true, "": false, "All": false, "no": false,
	} {
		var b BareWrites
		if err := b.Decode(value); (err == nil) != good {
			t.Errorf("%q: %v", value, err)
		}
	}
}
