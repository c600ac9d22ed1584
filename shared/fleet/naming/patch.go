package naming

import (
	"slices"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/merge"
)

const (
	metadataPointer    = "/metadata"
	annotationsPointer = "/metadata/annotations"
)

var (
	sourcePointer  = annotationsPointer + "/" + escape(merge.SourceAnnotation)
	appliedPointer = annotationsPointer + "/" + escape(merge.LastApplied)
)

var (
	pointerEscapes   = strings.NewReplacer("~", "~0", "/", "~1")
	pointerUnescapes = strings.NewReplacer("~1", "/", "~0", "~")
)

func escape(key string) string { return pointerEscapes.Replace(key) }

func tokensOf(pointer string) []string {
	if pointer == "" {
		return nil
	}
	tokens := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, token := range tokens {
		tokens[i] = pointerUnescapes.Replace(token)
	}
	return tokens
}

// patch rewrites a JSON patch (RFC 6902).
func (in *requestRewriter) patch(ops []any) ([]any, error) {
	var out []any
	for _, op := range ops {
		m, ok := op.(map[string]any)
		if !ok {
			return nil, errUnreadable
		}
		path, _ := m["path"].(string)
		if path == sourcePointer { // the member's object has no such annotation
			in.changed = true
			continue
		}
		if err := in.operation(m, path); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return slices.Clip(out), nil
}

// operation rewrites one operation. The names in a test operation do not decide the cluster.
func (in *requestRewriter) operation(op map[string]any, path string) error {
	value, ok := op["value"]
	if !ok {
		return nil
	}
	before := len(in.collected)
	op["value"] = in.references.requests.at(tokensOf(path), value, in.replace)
	if op["op"] == "test" {
		in.collected = in.collected[:before]
	}
	whole, _ := value.(map[string]any)
	switch path {
	case "":
		metadata, _ := whole["metadata"].(map[string]any)
		return in.annotationsOf(metadata)
	case metadataPointer:
		return in.annotationsOf(whole)
	case annotationsPointer:
		if whole != nil {
			return in.rewriteAnnotations(whole)
		}
	case appliedPointer:
		applied := map[string]any{merge.LastApplied: value}
		err := in.rewriteAnnotations(applied)
		op["value"] = applied[merge.LastApplied]
		return err
	}
	return nil
}
