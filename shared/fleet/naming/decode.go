package naming

import (
	"bytes"
	"fmt"
	"mime"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// Object is a type of the Kubernetes API that has a form in protobuf.
type Object interface {
	runtime.Object
	Unmarshal(data []byte) error
}

// Decode reads a body in JSON, YAML or protobuf into an empty object. The caller bounds the size of the body.
func Decode(contentType string, data []byte, into Object) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	media, _, _ := mime.ParseMediaType(contentType)
	if media == protobufMedia {
		var unknown runtime.Unknown
		raw, ok := bytes.CutPrefix(data, magic)
		if !ok || unknown.Unmarshal(raw) != nil || unknown.ContentEncoding != "" || into.Unmarshal(unknown.Raw) != nil {
			return errUnreadable
		}
		into.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(unknown.APIVersion, unknown.Kind))
		return nil
	}
	if isYAML(media) {
		var err error
		if data, err = yamlToJSON(data); err != nil {
			return fmt.Errorf("the body is in YAML, and cannot be read: %w", err)
		}
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, into); err != nil {
		return fmt.Errorf("the body cannot be read: %w", err)
	}
	return nil
}
