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

// Body is a request's body that can be rewritten. It holds the bytes that came and the little that is asked of them, not what they are decoded: that
// may be a hundred times as much, and a call may wait for a minute.
type Body struct {
	contentType             string
	original                []byte
	asItIs                  bool // nothing is rewritten for any member
	exact                   bool // see Exact
	name, placement, source string
	references              *References
	collected               []reference
	duplicates              []error
}

// Readable reports whether bodies of a content type can be rewritten: those in JSON and YAML, and objects in protobuf.
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

// Parse reads a body for a resource with these References. The body may be empty. The error is a scan.ErrTooMany where
// the decoded body would exceed its limit of memory. Parse uses some tens of MiB at most, and keeps none of them.
func Parse(references *References, contentType string, data []byte) (*Body, error) {
	b := &Body{contentType: contentType, original: data, references: references}
	c, err := read(contentType, data)
	if err != nil {
		return nil, err
	}
	b.readMetadata(c.value)
	b.exact = isExact(c, references == Deletion)
	in := inward{references: references}
	err = c.rewrite(&in)
	if errors.Is(err, scan.ErrTooMany) {
		return nil, err
	}
	b.asItIs, b.collected = err == nil && !in.changed, in.collected
	if !b.asItIs {
		b.duplicates = c.duplicates(data)
	}
	return b, nil
}

// content is a decoded body.
type content struct {
	value  any       // map[string]any, or []any of a JSON patch; nil without a body
	binary *protobuf // of which value has the fields that are rewritten; else nil
	yaml   bool      // the member reads it as YAML
}

// duplicates returns errors for the names that an object in the body has twice, as kube-apiserver words them.
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
		if data, err = jsonOf(data); err != nil {
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

// errTooMany is for what would be too much if it were decoded.
var errTooMany = fmt.Errorf("%w, over %d, which is more than objects in clusters usually "+
	"have", scan.ErrTooMany, maxValues)

// rewrite applies in to the content. It goes on after a version that cannot be replaced, to collect all references.
func (c *content) rewrite(in *inward) (err error) {
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

// readMetadata reads what an object's body, or patch, has of its name and of a cluster.
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

// Metadata returns what an object's body, or patch, says of its name and of a cluster: name, the placement annotation and the source
// annotation, each "" where it is not there.
func (b *Body) Metadata() (name, placement, source string) { return b.name, b.placement, b.source }

// Beside returns the clusters, each once, that the references in the body name. They lead into the object's own cluster.
func (b *Body) Beside(known func(cluster string) bool) (clusters []string) {
	for _, r := range b.collected {
		if _, cluster, ok := Split(r.name, known); ok && !slices.Contains(clusters, cluster) {
			clusters = append(clusters, cluster)
		}
	}
	return clusters
}

// Duplicates returns an error for each name that an object in the body has twice; none where the body is rewritten for
// no member.
func (b *Body) Duplicates() []error { return b.duplicates }

// Bytes returns the body as it came. It is not to be changed.
func (b *Body) Bytes() []byte { return b.original }

// Len is how many bytes came.
func (b *Body) Len() int { return len(b.original) }

// Apart returns the first reference in the body to another cluster than that of the object. It returns the path of the
// field, the name in it, and that cluster, or three times "".
func (b *Body) Apart(cluster string, known func(cluster string) bool) (path, name, other string) {
	for _, r := range b.collected {
		if _, c, ok := Split(r.name, known); ok && c != cluster {
			return r.path, r.name, c
		}
	}
	return "", "", ""
}

// Work is how many bytes ForMember decodes, 0 where it returns what came.
func (b *Body) Work() int {
	if b.asItIs {
		return 0
	}
	return len(b.original)
}

// ForMember returns the body as the member of that name and id wants it: names without @cluster, versions of its own, without the
// source annotation. Each member's is made of what came, and for several at once; where nothing is rewritten for any it is
// what came, and is not decoded again.
func (b *Body) ForMember(cluster string, id uint64) ([]byte, error) {
	if b.asItIs {
		return b.original, nil
	}
	c, err := read(b.contentType, b.original)
	if err != nil {
		return nil, err
	}
	in := inward{references: b.references, suffix: "@" + cluster, cluster: cluster, id: id}
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
