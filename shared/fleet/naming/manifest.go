package naming

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// appliedPlacement returns the placement in kubectl apply's annotation, which every patch of kubectl apply contains.
func appliedPlacement(annotations map[string]any) string {
	text, _ := annotations[merge.LastApplied].(string)
	return scan.Text(scan.Lookup([]byte(text), "metadata", "annotations", PlacementAnnotation))
}

// HasPrecondition reports whether a patch or DeleteOptions requires a uid or a resourceVersion of the object.
func (b *Body) HasPrecondition() bool { return b.hasPrecondition }

// hasPrecondition reads the preconditions of DeleteOptions, and the metadata of other bodies.
func hasPrecondition(c content, deletion bool) bool {
	if c.binary != nil && deletion {
		var options metav1.DeleteOptions
		if options.Unmarshal(c.binary.unknown.Raw) != nil || options.Preconditions == nil {
			return false
		}
		uid, version := options.Preconditions.UID, options.Preconditions.ResourceVersion
		return uid != nil && isCondition(string(*uid)) || version != nil && isCondition(*version)
	}
	if ops, ok := c.value.([]any); ok {
		return slices.ContainsFunc(ops, func(one any) bool {
			op, _ := one.(map[string]any)
			return op["op"] == "test" && (op["path"] == "/metadata/uid" || op["path"] == "/metadata/resourceVersion")
		})
	}
	key := "metadata"
	if deletion {
		key = "preconditions"
	}
	object, _ := c.value.(map[string]any)
	conditions, _ := object[key].(map[string]any)
	uid, _ := conditions["uid"].(string)
	version, _ := conditions["resourceVersion"].(string)
	return isCondition(uid) || isCondition(version)
}

// isCondition reports false for "0", which members do not compare.
func isCondition(v string) bool { return v != "" && v != "0" }
