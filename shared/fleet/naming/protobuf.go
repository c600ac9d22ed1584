package naming

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// protobufMedia is how typed clients write bodies.
const protobufMedia = "application/vnd.kubernetes.protobuf"

// magic begins every body in Kubernetes' protobuf. A runtime.Unknown follows.
var magic = []byte("k8s\x00")

// place is where something is that is rewritten, beside metadata: the numbers of the fields that lead to it, of which those that are repeated, as
// the entries of maps, lead to several. (The values of maps are field 2 of an entry.)
type place struct {
	fields  []protowire.Number
	version bool   // it is a resourceVersion, not a name
	key     string // of what it is the name of in JSON, where Beside reads that; else ""
}

func at(fields ...protowire.Number) place { return place{fields: fields} }

// places are those of kinds, as group/Kind.
var places = map[string][]place{
	"/Binding":                              {at(2, 3)},
	"/Event":                                {{fields: []protowire.Number{2, 3}, key: "involvedObject"}, at(13, 3)},
	"events.k8s.io/Event":                   {{fields: []protowire.Number{8, 3}, key: "regarding"}, at(9, 3)},
	"rbac.authorization.k8s.io/RoleBinding": {at(3, 3)},
	"rbac.authorization.k8s.io/ClusterRoleBinding":  {at(3, 3)},
	"autoscaling/HorizontalPodAutoscaler":           {at(2, 1, 2)},
	"policy/Eviction":                               {{fields: []protowire.Number{2, 2, 2}, version: true}},
	"authorization.k8s.io/SelfSubjectAccessReview":  review,
	"authorization.k8s.io/SubjectAccessReview":      review,
	"authorization.k8s.io/LocalSubjectAccessReview": review,
	"authorization.k8s.io/SelfSubjectRulesReview":   {{fields: []protowire.Number{2, 1}, key: "regarding"}},
	// What kubectl calls as the object that it makes: see called.
	"/Pod":                   {at(2, 2, 1), at(2, 10)},
	"/Service":               {at(2, 2, 2)},
	"/ReplicationController": {at(2, 2, 2), at(2, 3, 1, 11, 2), at(2, 3, 2, 2, 1)},
	"apps/Deployment":        {at(2, 2, 1, 2), at(2, 3, 1, 11, 2), at(2, 3, 2, 2, 1)},
	"apps/ReplicaSet":        {at(2, 2, 1, 2), at(2, 3, 1, 11, 2), at(2, 3, 2, 2, 1)},
	"apps/StatefulSet":       {at(2, 2, 1, 2), at(2, 3, 1, 11, 2), at(2, 3, 2, 2, 1)},
	"apps/DaemonSet":         {at(2, 1, 1, 2), at(2, 2, 1, 11, 2), at(2, 2, 2, 2, 1)},
	"batch/Job":              {at(2, 4, 1, 2), at(2, 6, 1, 11, 2), at(2, 6, 2, 2, 1)},
	"batch/CronJob":          {at(2, 5, 2, 6, 1, 11, 2), at(2, 5, 2, 6, 2, 2, 1)},
}

// review are the places of an access review: the name and the namespace that it is about.
var review = []place{{fields: []protowire.Number{2, 1, 7}, key: "involvedObject"}, {fields: []protowire.Number{2, 1, 1}, key: "regarding"}}

// deletion is the place in DeleteOptions, which are of every group.
var deletion = []place{{fields: []protowire.Number{2, 2}, version: true}}

// protobuf is a body of which only what is rewritten is read: of an object its ObjectMeta, which is field 1 of every kind that kube-apiserver
// has, and its places. The rest stays byte for byte.
type protobuf struct {
	unknown runtime.Unknown
	meta    *metav1.ObjectMeta // nil where there is none
	rest    []byte             // the fields beside metadata
	places  []place
	value   map[string]any // metadata, in the form of JSON, and what Beside reads
}

func parseProtobuf(data []byte) (*protobuf, error) {
	p := &protobuf{}
	raw, ok := bytes.CutPrefix(data, magic)
	if !ok || p.unknown.Unmarshal(raw) != nil || p.unknown.ContentEncoding != "" {
		return nil, errUnreadable
	}
	group, _, ok := strings.Cut(p.unknown.APIVersion, "/")
	if !ok {
		group = ""
	}
	p.value = map[string]any{"kind": p.unknown.Kind}
	if p.rest, p.places = p.unknown.Raw, deletion; p.unknown.Kind != "DeleteOptions" {
		p.places = places[group+"/"+p.unknown.Kind]
		if err := p.metadata(); err != nil {
			return nil, err
		}
	}
	for _, place := range p.places {
		if _, err := replaced(p.rest, place.fields, func(own string) string {
			if place.key != "" {
				p.value[place.key] = map[string]any{"name": own}
			}
			return own
		}); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// rewrite rewrites what is in its places.
func (p *protobuf) rewrite(in *inward) (err error) {
	var wrong error
	for _, place := range p.places {
		if p.rest, err = replaced(p.rest, place.fields, func(own string) string {
			if !place.version {
				return in.name(own)
			}
			held := map[string]any{"resourceVersion": own}
			wrong = in.version(held)
			return held["resourceVersion"].(string)
		}); err != nil || wrong != nil {
			return cmp.Or(wrong, err)
		}
	}
	return nil
}

// metadata takes the metadata out of the rest.
func (p *protobuf) metadata() error {
	in := p.rest
	p.rest = nil
	for len(in) > 0 {
		number, kind, tag, size, err := field(in)
		if err != nil {
			return err
		}
		if number != 1 {
			p.rest = append(p.rest, in[:tag+size]...)
			in = in[tag+size:]
			continue
		}
		text, n := protowire.ConsumeBytes(in[tag:])
		if p.meta != nil || kind != protowire.BytesType || n < 0 {
			return errUnreadable
		}
		if err := few(text); err != nil {
			return err
		}
		p.meta = &metav1.ObjectMeta{}
		if p.meta.Unmarshal(text) != nil {
			return errUnreadable
		}
		in = in[tag+size:]
	}
	if p.meta == nil {
		return nil
	}
	metadata := map[string]any{"name": p.meta.Name, "namespace": p.meta.Namespace, "resourceVersion": p.meta.ResourceVersion}
	if p.meta.Annotations != nil {
		annotations := map[string]any{}
		for k, v := range p.meta.Annotations {
			annotations[k] = v
		}
		metadata["annotations"] = annotations
	}
	labels := map[string]any{}
	for k, v := range p.meta.Labels {
		labels[k] = v
	}
	metadata["labels"] = labels
	var owners []any
	for _, o := range p.meta.OwnerReferences {
		owners = append(owners, map[string]any{"name": o.Name})
	}
	metadata["ownerReferences"] = owners
	p.value["metadata"] = metadata
	return nil
}

// maxFields is how many fields an ObjectMeta may have, where each label, annotation and owner is one. It is decoded whole: two bytes may be an owner, of
// some hundred then.
const maxFields = 20_000

// few returns nil if a message has so many fields at most.
func few(message []byte) error {
	for n := 0; len(message) > 0; n++ {
		_, _, tag, size, err := field(message)
		if err != nil {
			return err
		}
		if n == maxFields {
			return fmt.Errorf("the body cannot be taken: %w, over %d labels, annotations and owners", scan.ErrTooMany, maxFields)
		}
		message = message[tag+size:]
	}
	return nil
}

// encode writes the body with value and its places as they were rewritten.
func (p *protobuf) encode() ([]byte, error) {
	unknown := p.unknown
	unknown.Raw = nil
	if p.meta != nil {
		metadata := p.value["metadata"].(map[string]any)
		p.meta.Name, _ = metadata["name"].(string)
		p.meta.Namespace, _ = metadata["namespace"].(string)
		p.meta.ResourceVersion, _ = metadata["resourceVersion"].(string)
		owners, _ := metadata["ownerReferences"].([]any)
		for i, o := range owners { // as many, in their order
			p.meta.OwnerReferences[i].Name, _ = o.(map[string]any)["name"].(string)
		}
		labels := metadata["labels"].(map[string]any)
		for k := range p.meta.Labels {
			p.meta.Labels[k], _ = labels[k].(string)
		}
		annotations, _ := metadata["annotations"].(map[string]any)
		for k := range p.meta.Annotations {
			if v, ok := annotations[k].(string); ok {
				p.meta.Annotations[k] = v
			} else {
				delete(p.meta.Annotations, k)
			}
		}
		meta, err := p.meta.Marshal()
		if err != nil {
			return nil, err
		}
		unknown.Raw = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), meta)
	}
	unknown.Raw = append(unknown.Raw, p.rest...)
	out, err := unknown.Marshal()
	return append(bytes.Clone(magic), out...), err
}

// field reads the tag of a message's first field, and returns the sizes of that and of what follows it.
func field(in []byte) (number protowire.Number, kind protowire.Type, tag, size int, err error) {
	if number, kind, tag = protowire.ConsumeTag(in); tag < 0 {
		return 0, 0, 0, 0, errUnreadable
	}
	if size = protowire.ConsumeFieldValue(number, kind, in[tag:]); size < 0 {
		return 0, 0, 0, 0, errUnreadable
	}
	return number, kind, tag, size, nil
}

// replaced returns a message with what by gives in place of the text that a field of a field of it is.
func replaced(message []byte, fields []protowire.Number, by func(own string) string) (out []byte, err error) {
	for in := message; len(in) > 0; {
		number, kind, tag, size, err := field(in)
		if err != nil {
			return nil, err
		}
		text, n := protowire.ConsumeBytes(in[tag : tag+size])
		switch {
		case number != fields[0] || kind != protowire.BytesType || n < 0:
			out = append(out, in[:tag+size]...)
		case len(fields) == 1:
			out = protowire.AppendString(append(out, in[:tag]...), by(string(text)))
		default:
			inner, err := replaced(text, fields[1:], by)
			if err != nil {
				return nil, err
			}
			out = protowire.AppendBytes(append(out, in[:tag]...), inner)
		}
		in = in[tag+size:]
	}
	return out, nil
}
