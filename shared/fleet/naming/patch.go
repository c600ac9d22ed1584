package naming

import (
	"slices"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/merge"
)

const (
	namePointer        = "/metadata/name"
	namespacePointer   = "/metadata/namespace"
	versionPointer     = "/metadata/resourceVersion"
	metadataPointer    = "/metadata"
	annotationsPointer = "/metadata/annotations"
	ownersPointer      = "/metadata/ownerReferences"
)

// referencePointers are those of what has the name of another object.
var referencePointers = []string{"/target", "/involvedObject", "/regarding", "/related", "/roleRef", "/spec/scaleTargetRef"}

var (
	sourcePointer  = annotationsPointer + "/" + escape(merge.SourceAnnotation)
	appliedPointer = annotationsPointer + "/" + escape(merge.LastApplied)
)

// escape writes a key for a JSON pointer (RFC 6901).
func escape(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }

// patch rewrites a JSON patch (RFC 6902).
func (in *inward) patch(ops []any) ([]any, error) {
	var out []any
	for _, op := range ops {
		m, ok := op.(map[string]any)
		if !ok {
			return nil, errUnreadable
		}
		var err error
		path, _ := m["path"].(string)
		ofOwner := strings.HasPrefix(path, ownersPointer+"/") // "-", a number, or that and a field
		switch value := m["value"].(type) {
		case []any:
			if path == ownersPointer {
				in.each(value)
			}
		case map[string]any:
			if ofOwner || slices.Contains(referencePointers, path) {
				in.rename(value)
			}
			switch path {
			case "":
				err = in.object(value)
			case "/spec":
				err = in.object(map[string]any{"spec": value})
			case metadataPointer:
				err = in.metadata(value)
			case annotationsPointer:
				err = in.annotations(value)
			}
		case string:
			if of, ok := strings.CutSuffix(path, "/name"); ok && (strings.HasPrefix(of, ownersPointer+"/") || slices.Contains(referencePointers, of)) {
				m["value"] = in.name(value)
			}
			switch path {
			case namePointer, namespacePointer:
				m["value"] = in.name(value)
			case versionPointer:
				held := map[string]any{"resourceVersion": value}
				err = in.version(held)
				m["value"] = held["resourceVersion"]
			case appliedPointer:
				held := map[string]any{merge.LastApplied: value}
				err = in.annotations(held)
				m["value"] = held[merge.LastApplied]
			}
		}
		if err != nil {
			return nil, err
		}
		if path == sourcePointer { // the member has none
			in.changed = true
			continue
		}
		out = append(out, m)
	}
	return slices.Clip(out), nil
}
