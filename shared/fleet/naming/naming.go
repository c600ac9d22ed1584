// Package naming is how one of several objects of one name is addressed: name@cluster. It writes bodies for the member, with its own
// names and versions, and answers for the client, with the names that it used.
//
// Numbers and all that is not said here stay as they are; a body without anything to change stays byte for byte.
package naming

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
)

// PlacementAnnotation says in which cluster an object is to be made.
const PlacementAnnotation = "clusterpass.io/cluster"

// ClusterLabel is what a label selector compares to name clusters. No object has it.
const ClusterLabel = PlacementAnnotation

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Split parts name@cluster. Names of some kinds may hold an @ of their own: known says what is a cluster.
func Split(name string, known func(cluster string) bool) (base, cluster string, ok bool) {
	i := strings.LastIndexByte(name, '@')
	if i <= 0 || !known(name[i+1:]) {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

// Selector takes name@cluster out of a field selector, wherever it compares a name: metadata.name, involvedObject.name, spec.nodeName and
// the like. cluster is "" if nothing names one. In other fields it is an error, since no object would ever have it.
func Selector(selector string, known func(cluster string) bool) (rewritten, cluster string, err error) {
	if !strings.Contains(selector, "@") {
		return selector, "", nil
	}
	parsed, err := fields.ParseSelector(selector)
	if err != nil {
		return "", "", err
	}
	for _, r := range parsed.Requirements() {
		if _, c, ok := Split(r.Value, known); ok && r.Operator == selection.NotEquals {
			return "", "", fmt.Errorf("%s!=%s would leave out what is in cluster %q, and the others' too", r.Field, r.Value, c)
		}
	}
	parsed, err = parsed.Transform(func(field, value string) (string, string, error) {
		base, c, ok := Split(value, known)
		switch {
		case !ok:
			return field, value, nil
		case !strings.HasSuffix(field, ".name") && field != "spec.nodeName":
			return "", "", fmt.Errorf("%s compares no name, and %q names cluster %q", field, value, c)
		}
		if cluster != "" && cluster != c {
			return "", "", fmt.Errorf("it names clusters %q and %q", cluster, c)
		}
		cluster = c
		return field, base, nil
	})
	if err != nil {
		return "", "", err
	}
	return parsed.String(), cluster, nil
}

// Labels takes the clusters that a label selector names out of it: ClusterLabel=a, or in (a,b). clusters is nil if it names none.
func Labels(selector string) (rewritten string, clusters []string, err error) {
	if !strings.Contains(selector, ClusterLabel) {
		return selector, nil, nil
	}
	parsed, err := labels.Parse(selector)
	if err != nil {
		return "", nil, err
	}
	requirements, _ := parsed.Requirements()
	rest := labels.NewSelector()
	for _, r := range requirements {
		switch op := r.Operator(); {
		case r.Key() != ClusterLabel:
			rest = rest.Add(r)
		case clusters != nil:
			return "", nil, fmt.Errorf("it names clusters twice")
		case op == selection.Equals, op == selection.DoubleEquals, op == selection.In:
			clusters = r.ValuesUnsorted()
			slices.Sort(clusters)
		default:
			return "", nil, fmt.Errorf("%s takes = and in; this is %q", ClusterLabel, r.String())
		}
	}
	return rest.String(), clusters, nil
}

// Body is a request's body that can be rewritten.
type Body struct {
	contentType string
	original    []byte
	value       any       // map[string]any, or []any of a JSON patch; nil without a body
	binary      *protobuf // of which value has the fields that are rewritten; else nil
}

// errUnreadable is for what is no object, or patch of one.
var errUnreadable = fmt.Errorf("the body is neither an object nor a patch of one")

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
			if fields := b.binary.fields(); fields != nil {
				b.value = fields
			}
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
		err = in.object(v)
	case []any:
		b.value, err = in.patch(v)
	}
	if err != nil || !in.changed {
		return b.original, err
	}
	if b.binary != nil {
		return b.binary.encode(b.value.(map[string]any))
	}
	return encode(b.value)
}

// inward rewrites what goes to a member.
type inward struct {
	suffix, cluster string
	id              uint64
	changed         bool
}

func (in *inward) object(o map[string]any) error {
	if preconditions, ok := o["preconditions"].(map[string]any); ok {
		if err := in.version(preconditions); err != nil {
			return err
		}
	}
	if options, ok := o["deleteOptions"].(map[string]any); ok { // of an Eviction
		if err := in.object(options); err != nil {
			return err
		}
	}
	if target, ok := o["target"].(map[string]any); ok && o["kind"] == "Binding" { // the node
		in.rename(target)
	}
	if metadata, ok := o["metadata"].(map[string]any); ok {
		return in.metadata(metadata)
	}
	return nil
}

func (in *inward) metadata(m map[string]any) error {
	in.rename(m)
	in.owners(m["ownerReferences"])
	if annotations, ok := m["annotations"].(map[string]any); ok {
		if err := in.annotations(annotations); err != nil {
			return err
		}
	}
	return in.version(m)
}

// rename takes @cluster from what has a name.
func (in *inward) rename(m map[string]any) {
	if name, ok := m["name"].(string); ok {
		m["name"] = in.name(name)
	}
}

// owners takes @cluster from the names in ownerReferences.
func (in *inward) owners(references any) {
	list, _ := references.([]any)
	for _, one := range list {
		if m, ok := one.(map[string]any); ok {
			in.rename(m)
		}
	}
}

func (in *inward) name(name string) string {
	base, ok := strings.CutSuffix(name, in.suffix)
	in.changed = in.changed || ok
	return base
}

func (in *inward) annotations(a map[string]any) error {
	if _, ok := a[merge.SourceAnnotation]; ok {
		delete(a, merge.SourceAnnotation)
		in.changed = true
	}
	text, ok := a[lastApplied].(string)
	if !ok {
		return nil
	}
	applied, err := decode([]byte(text))
	object, ok := applied.(map[string]any)
	if err != nil || !ok {
		return nil //nolint:nilerr // not kubectl's; the member may judge it
	}
	inner := *in
	inner.changed = false
	if err := inner.object(object); err != nil || !inner.changed {
		return err
	}
	out, err := encode(object)
	if err != nil {
		return err
	}
	a[lastApplied], in.changed = string(out)+"\n", true // as kubectl writes it
	return nil
}

// version replaces a composite resourceVersion by the member's own.
func (in *inward) version(m map[string]any) error {
	text, ok := m["resourceVersion"].(string)
	if !ok || text == "" {
		return nil
	}
	own, err := OwnVersion(text, in.cluster, in.id)
	if own != text {
		m["resourceVersion"], in.changed = own, true
	}
	return err
}

// OwnVersion returns what a resourceVersion is to one member: its part of a composite, or anything else as it is.
func OwnVersion(version, cluster string, id uint64) (string, error) {
	if !cursor.Composite(version) {
		return version, nil
	}
	v, err := cursor.ParseVersion(version)
	if err != nil {
		return version, err
	}
	own, ok := v[id]
	if !ok {
		return version, fmt.Errorf("the resourceVersion says nothing of cluster %q: read the object again", cluster)
	}
	return own, nil
}

const (
	namePointer        = "/metadata/name"
	versionPointer     = "/metadata/resourceVersion"
	metadataPointer    = "/metadata"
	annotationsPointer = "/metadata/annotations"
	ownersPointer      = "/metadata/ownerReferences"
)

var (
	sourcePointer  = annotationsPointer + "/" + escape(merge.SourceAnnotation)
	appliedPointer = annotationsPointer + "/" + escape(lastApplied)
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
		owner, ofOwner := strings.CutPrefix(path, ownersPointer+"/") // "-", a number, or that and a field
		switch value := m["value"].(type) {
		case []any:
			if path == ownersPointer {
				in.owners(value)
			}
		case map[string]any:
			if ofOwner {
				in.rename(value)
			}
			switch path {
			case "":
				err = in.object(value)
			case metadataPointer:
				err = in.metadata(value)
			case annotationsPointer:
				err = in.annotations(value)
			}
		case string:
			if ofOwner && strings.HasSuffix(owner, "/name") {
				m["value"] = in.name(value)
			}
			switch path {
			case namePointer:
				m["value"] = in.name(value)
			case versionPointer:
				held := map[string]any{"resourceVersion": value}
				err = in.version(held)
				m["value"] = held["resourceVersion"]
			case appliedPointer:
				held := map[string]any{lastApplied: value}
				err = in.annotations(held)
				m["value"] = held[lastApplied]
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

// Answer rewrites objects of one cluster for clients. It is not safe for concurrent use.
type Answer struct {
	cluster, suffix string
	selects         bool
	annotator       *merge.Annotator
}

// NewAnswer returns an Answer for a cluster. named says that the client addressed the object by name@cluster and is to see that name.
func NewAnswer(cluster string, named bool) *Answer {
	a := &Answer{cluster: cluster, annotator: merge.NewAnnotator(cluster)}
	if named {
		a.suffix = "@" + cluster
	}
	return a
}

// SelectHere has the selectors by which kubectl finds the pods of an object say that they are to be in this cluster.
func (a *Answer) SelectHere() { a.selects = true }

// Suffix is what names end with in the answer: "", or @cluster.
func (a *Answer) Suffix() string { return a.suffix }

// SetVersion has version give what is written in place of an object's own resourceVersion.
func (a *Answer) SetVersion(version func(own string) string) { a.annotator.Version = version }

// Append appends an object, with where it came from, to dst.
func (a *Answer) Append(dst []byte, object jsontext.Value) ([]byte, error) {
	if a.suffix == "" && !a.selects {
		return a.annotator.Append(dst, object)
	}
	value, err := decode(object)
	if err != nil {
		return dst, err
	}
	o, ok := value.(map[string]any)
	if !ok {
		return dst, errUnreadable
	}
	if a.suffix != "" {
		a.object(o)
	}
	if a.selects {
		if labels := podLabels(o); labels != nil {
			labels[ClusterLabel] = a.cluster
		}
	}
	text, err := encode(o)
	if err != nil {
		return dst, err
	}
	return a.annotator.Append(dst, jsontext.Value(text))
}

// Namespace is that of the object before.
func (a *Answer) Namespace() string { return a.annotator.Namespace() }

func (a *Answer) object(o map[string]any) {
	m, ok := o["metadata"].(map[string]any)
	if !ok {
		return
	}
	if name, ok := m["name"].(string); ok && name != "" {
		m["name"] = name + a.suffix
	}
	owners, _ := m["ownerReferences"].([]any) // they are in the same cluster
	for _, one := range owners {
		if owner, ok := one.(map[string]any); ok {
			if name, ok := owner["name"].(string); ok && name != "" {
				owner["name"] = name + a.suffix
			}
		}
	}
	annotations, _ := m["annotations"].(map[string]any)
	text, ok := annotations[lastApplied].(string)
	if !ok {
		return
	}
	if applied, err := decode([]byte(text)); err == nil {
		if object, ok := applied.(map[string]any); ok {
			a.object(object)
			if out, err := encode(object); err == nil {
				annotations[lastApplied] = string(out) + "\n"
			}
		}
	}
}

// podLabels returns the labels by which an object chooses pods, if it is of a kind that does; else nil.
func podLabels(o map[string]any) map[string]any {
	spec, _ := o["spec"].(map[string]any)
	selector, _ := spec["selector"].(map[string]any)
	switch o["kind"] {
	case "Service", "ReplicationController":
		if len(selector) > 0 { // else it chooses none
			return selector
		}
	case "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job":
		if selector == nil {
			return nil
		}
		labels, ok := selector["matchLabels"].(map[string]any)
		if !ok {
			labels = map[string]any{}
			selector["matchLabels"] = labels
		}
		return labels
	}
	return nil
}

// Status rewrites the names in a Status.
func (a *Answer) Status(status []byte) []byte {
	value, err := decode(status)
	o, _ := value.(map[string]any)
	details, _ := o["details"].(map[string]any)
	name, _ := details["name"].(string)
	if err != nil || name == "" || a.suffix == "" {
		return status
	}
	details["name"] = name + a.suffix
	if message, ok := o["message"].(string); ok {
		o["message"] = strings.ReplaceAll(message, strconv.Quote(name), strconv.Quote(name+a.suffix))
	}
	if out, err := encode(o); err == nil {
		return append(out, '\n')
	}
	return status
}

// decode keeps numbers as they are written.
func decode(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if dec.More() {
		return nil, errUnreadable
	}
	return v, nil
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
