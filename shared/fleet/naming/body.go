package naming

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"mime"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// Body is a request's body that can be rewritten for a member. It stores the received bytes, because the decoded value
// may be a hundred times as large. It is safe for concurrent use.
type Body struct {
	contentType             string
	original                []byte
	isUnchanged             bool // nothing is rewritten for any member
	hasPrecondition         bool // see HasPrecondition
	name, placement, source string
	references              *References
	collected               []reference
	duplicates              []error
}

// Readable reports whether bodies of a content type can be rewritten: JSON, YAML and objects in protobuf.
func Readable(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return contentType == "" || err == nil && (isJSON(media) || isYAML(media) || media == protobufMedia)
}

func isJSON(media string) bool {
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

func isYAML(media string) bool {
	return media == "application/yaml" || strings.HasSuffix(media, "+yaml")
}

// Parse reads a body, which may be empty. The error wraps scan.ErrTooMany if decoding would exceed the memory limit.
func Parse(references *References, contentType string, data []byte) (*Body, error) {
	b := &Body{contentType: contentType, original: data, references: references}
	c, err := read(contentType, data)
	if err != nil {
		return nil, err
	}
	b.readMetadata(c.value)
	b.hasPrecondition = hasPrecondition(c, references == Deletion)
	in := requestRewriter{references: references}
	err = c.rewrite(&in)
	if errors.Is(err, scan.ErrTooMany) {
		return nil, err
	}
	b.isUnchanged, b.collected = err == nil && !in.changed, in.collected
	if !b.isUnchanged {
		b.duplicates = c.duplicates(data)
	}
	return b, nil
}

type content struct {
	value  any       // map[string]any, or []any of a JSON patch; nil without a body
	binary *protobuf // nil for other content types; if not nil, value has only kind and metadata
	yaml   bool      // the member reads the body as YAML
}

// duplicates returns kube-apiserver's errors for the fields that an object in the body has twice.
func (c *content) duplicates(body []byte) []error {
	switch {
	case c.value == nil, c.binary != nil:
		return nil
	case c.yaml && !readsAsJSON(body):
		if _, err := yaml.YAMLToJSONStrict(body); err != nil {
			return []error{err}
		}
		return nil
	case jsontext.Value(body).IsValid(jsontext.AllowInvalidUTF8(true)):
		return nil
	}
	var value any
	duplicates, err := kjson.UnmarshalStrict(body, &value, kjson.DisallowDuplicateFields)
	if err != nil {
		return nil // the member refuses it
	}
	return duplicates
}

func read(contentType string, data []byte) (c content, err error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return c, nil
	}
	media, _, _ := mime.ParseMediaType(contentType)
	if media == protobufMedia {
		if c.binary, err = parseProtobuf(data); err == nil {
			c.value = c.binary.value
		}
		return c, err
	}
	if c.yaml = isYAML(media); c.yaml {
		if data, err = yamlToJSON(data); err != nil {
			return c, fmt.Errorf("the body is in YAML, and cannot be read: %w", err)
		}
	}
	if c.value, err = decodeBounded(data); errors.Is(err, scan.ErrTooMany) {
		return c, fmt.Errorf("the body is refused: %w; send fewer", errTooMany)
	}
	switch c.value.(type) {
	case map[string]any, []any:
		return c, nil
	}
	return c, errUnreadable
}

var errTooMany = fmt.Errorf("%w, over %d, and nearly all objects in clusters have fewer",
	scan.ErrTooMany, maxValues)

// rewrite continues after a version that cannot be replaced, to collect all references.
func (c *content) rewrite(in *requestRewriter) (err error) {
	switch v := c.value.(type) {
	case map[string]any:
		if err = in.object(v); err == nil && c.binary != nil {
			c.binary.rest, err = in.references.wire.rewrite(c.binary.rest, in.replace)
		}
	case []any:
		c.value, err = in.patch(v)
	}
	return cmp.Or(err, in.err)
}

func (b *Body) readMetadata(value any) {
	object, _ := value.(map[string]any)
	metadata, _ := object["metadata"].(map[string]any)
	b.name, _ = metadata["name"].(string)
	annotations, _ := metadata["annotations"].(map[string]any)
	b.placement, _ = annotations[PlacementAnnotation].(string)
	b.source, _ = annotations[merge.SourceAnnotation].(string)
	if b.placement == "" && b.source == "" {
		b.placement = appliedPlacement(annotations)
	}
}

// Metadata returns the name, the placement annotation and the source annotation in the body. An absent field is "".
func (b *Body) Metadata() (name, placement, source string) { return b.name, b.placement, b.source }

// ReferencedClusters returns the clusters that the references in the body name, each once.
func (b *Body) ReferencedClusters(known func(cluster string) bool) (clusters []string) {
	for _, r := range b.collected {
		if _, cluster, ok := Split(r.name, known); ok && !slices.Contains(clusters, cluster) {
			clusters = append(clusters, cluster)
		}
	}
	return clusters
}

// Duplicates returns errors for the duplicate fields of a body that is rewritten. In any other body, members find them.
func (b *Body) Duplicates() []error { return b.duplicates }

// Bytes returns the received body. Callers must not change it.
func (b *Body) Bytes() []byte { return b.original }

// Len returns the number of bytes received.
func (b *Body) Len() int { return len(b.original) }

// ReferenceToOtherCluster returns path, name and cluster of the first reference to another cluster; "" if there is
// none.
func (b *Body) ReferenceToOtherCluster(cluster string, known func(cluster string) bool) (path, name, other string) {
	for _, r := range b.collected {
		if _, c, ok := Split(r.name, known); ok && c != cluster {
			return r.path, r.name, c
		}
	}
	return "", "", ""
}

// DecodeSize returns the number of bytes that ForMember decodes. It is 0 if no member needs a rewrite.
func (b *Body) DecodeSize() int {
	if b.isUnchanged {
		return 0
	}
	return len(b.original)
}

// ForMember returns the body for the member with that name and id, with its own names and versions and without the
// source annotation. Each call decodes the received bytes, unless no member needs a rewrite.
func (b *Body) ForMember(cluster string, id uint64) ([]byte, error) {
	if b.isUnchanged {
		return b.original, nil
	}
	c, err := read(b.contentType, b.original)
	if err != nil {
		return nil, err
	}
	in := requestRewriter{references: b.references, suffix: "@" + cluster, cluster: cluster, id: id}
	switch err := c.rewrite(&in); {
	case err != nil:
		return nil, err
	case !in.changed:
		return b.original, nil
	case c.binary != nil:
		return c.binary.encode()
	}
	out, err := encode(c.value)
	if err == nil && c.yaml {
		out = escapeForYAML(out)
	}
	return out, err
}
