package naming

import (
	"bytes"
	"fmt"
	"mime"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/fleet/merge"
)

// Body is a request's body that can be rewritten.
type Body struct {
	contentType string
	original    []byte
	value       any       // map[string]any, or []any of a JSON patch; nil without a body
	binary      *protobuf // of which value has the fields that are rewritten; else nil
}

// Readable reports whether bodies of a content type can be rewritten: those in JSON and YAML, and objects in protobuf.
func Readable(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return contentType == "" || err == nil && (media == "application/json" || strings.HasSuffix(media, "+json") || isYAML(media) || media == protobufMedia)
}

func isYAML(media string) bool {
	return media == "application/yaml" || strings.HasSuffix(media, "+yaml")
}

// Parse reads a body, which may be empty.
func Parse(contentType string, data []byte) (*Body, error) {
	b := &Body{contentType: contentType, original: data}
	if len(bytes.TrimSpace(data)) == 0 {
		return b, nil
	}
	media, _, _ := mime.ParseMediaType(contentType)
	if media == protobufMedia {
		var err error
		if b.binary, err = parseProtobuf(data); err == nil {
			b.value = b.binary.value
		}
		return b, err
	}
	if isYAML(media) {
		var err error
		if data, err = yaml.YAMLToJSON(data); err != nil {
			return nil, fmt.Errorf("the body is no YAML: %w", err)
		}
	}
	var err error
	if b.value, err = decode(data); err != nil {
		return nil, errUnreadable
	}
	switch b.value.(type) {
	case map[string]any, []any:
		return b, nil
	}
	return nil, errUnreadable
}

// Metadata returns what an object's body, or patch, says of its name and of a cluster: name, the placement annotation and the source
// annotation, each "" where it is not there.
func (b *Body) Metadata() (name, placement, source string) {
	object, _ := b.value.(map[string]any)
	metadata, _ := object["metadata"].(map[string]any)
	name, _ = metadata["name"].(string)
	annotations, _ := metadata["annotations"].(map[string]any)
	placement, _ = annotations[PlacementAnnotation].(string)
	source, _ = annotations[merge.SourceAnnotation].(string)
	return name, placement, source
}

// Beside returns the cluster of what a new object belongs to, where that is said by name@cluster: of its owners, or of what an Event is about;
// "" where nothing is.
func (b *Body) Beside(known func(cluster string) bool) string {
	object, _ := b.value.(map[string]any)
	metadata, _ := object["metadata"].(map[string]any)
	others, _ := metadata["ownerReferences"].([]any)
	if object["kind"] == "Event" {
		others = append(slices.Clone(others), object["involvedObject"], object["regarding"])
	}
	for _, other := range others {
		reference, _ := other.(map[string]any)
		name, _ := reference["name"].(string)
		if _, cluster, ok := Split(name, known); ok {
			return cluster
		}
	}
	return ""
}

// Apart returns a cluster, other than that of the object, that an owner in the body is of by its name@cluster; "" where none is. By the
// owner's uid, which the object's cluster does not have, its garbage collector would delete the object.
func (b *Body) Apart(cluster string, known func(cluster string) bool) string {
	elsewhere := func(references ...any) string {
		for _, one := range references {
			reference, _ := one.(map[string]any)
			name, _ := reference["name"].(string)
			if _, c, ok := Split(name, known); ok && c != cluster {
				return c
			}
		}
		return ""
	}
	ofObject := func(object map[string]any) string {
		metadata, _ := object["metadata"].(map[string]any)
		references, _ := metadata["ownerReferences"].([]any)
		return elsewhere(references...)
	}
	object, _ := b.value.(map[string]any)
	if c := ofObject(object); c != "" {
		return c
	}
	ops, _ := b.value.([]any)
	for _, one := range ops {
		op, _ := one.(map[string]any)
		path, _ := op["path"].(string)
		value := op["value"]
		whole, _ := value.(map[string]any)
		c := ""
		switch {
		case path == "":
			c = ofObject(whole)
		case path == metadataPointer:
			c = ofObject(map[string]any{"metadata": whole})
		case path == ownersPointer:
			references, _ := value.([]any)
			c = elsewhere(references...)
		case strings.HasPrefix(path, ownersPointer+"/") && strings.HasSuffix(path, "/name"):
			c = elsewhere(map[string]any{"name": value})
		case strings.HasPrefix(path, ownersPointer+"/"):
			c = elsewhere(value)
		}
		if c != "" && op["op"] != "test" {
			return c
		}
	}
	return ""
}

// ForMember returns the body as the member of that name and id wants it: names without @cluster, versions of its own, without the
// source annotation. Each member's is made of what came, and for several at once.
func (b *Body) ForMember(cluster string, id uint64) ([]byte, error) {
	b, err := Parse(b.contentType, b.original)
	if err != nil {
		return nil, err
	}
	in := inward{suffix: "@" + cluster, cluster: cluster, id: id}
	switch v := b.value.(type) {
	case map[string]any:
		if err = in.object(v); err == nil && b.binary != nil {
			err = b.binary.rewrite(&in)
		}
	case []any:
		b.value, err = in.patch(v)
	}
	if err != nil || !in.changed {
		return b.original, err
	}
	if b.binary != nil {
		return b.binary.encode()
	}
	return encode(b.value)
}
