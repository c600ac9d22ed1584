package naming

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lastApplied is the annotation in which kubectl apply stores the manifest.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// appliedPlacement returns the placement of the manifest that kubectl apply stores in an annotation, "" if there is
// none. A patch of kubectl apply has that annotation, also where it does not change the placement.
func appliedPlacement(annotations map[string]any) string {
	text, _ := annotations[lastApplied].(string)
	var manifest struct {
		Metadata struct{ Annotations map[string]string }
	}
	if json.Unmarshal([]byte(text), &manifest) != nil {
		return ""
	}
	return manifest.Metadata.Annotations[PlacementAnnotation]
}

// Exact reports whether the body, of a patch or DeleteOptions, requires a uid or a resourceVersion of the object. Its
// sender has read the object.
func (b *Body) Exact() bool { return b.exact }

func isExact(c content) bool {
	if c.binary != nil && c.binary.unknown.Kind == "DeleteOptions" {
		var options metav1.DeleteOptions
		return options.Unmarshal(c.binary.unknown.Raw) == nil && options.Preconditions != nil &&
			(options.Preconditions.UID != nil || options.Preconditions.ResourceVersion != nil)
	}
	if ops, ok := c.value.([]any); ok {
		for _, one := range ops {
			op, _ := one.(map[string]any)
			if op["op"] == "test" && (op["path"] == "/metadata/uid" || op["path"] == "/metadata/resourceVersion") {
				return true
			}
		}
		return false
	}
	object, _ := c.value.(map[string]any)
	for _, key := range []string{"metadata", "preconditions"} {
		part, _ := object[key].(map[string]any)
		for _, condition := range []string{"uid", "resourceVersion"} {
			if v, _ := part[condition].(string); v != "" {
				return true
			}
		}
	}
	return false
}
