package naming

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

const protobufMedia = "application/vnd.kubernetes.protobuf"

// magic begins every body in Kubernetes' protobuf. A runtime.Unknown follows.
var magic = []byte("k8s\x00")

// protobuf is a body in protobuf. Only its references and its metadata are decoded. Metadata is field 1 of every kind
// in kube-apiserver.
type protobuf struct {
	unknown runtime.Unknown
	meta    *metav1.ObjectMeta // nil if the body has none
	rest    []byte             // all fields except metadata
	value   map[string]any     // metadata as a JSON object
}

func parseProtobuf(data []byte) (*protobuf, error) {
	p := &protobuf{}
	raw, ok := bytes.CutPrefix(data, magic)
	if !ok || p.unknown.Unmarshal(raw) != nil || p.unknown.ContentEncoding != "" {
		return nil, errUnreadable
	}
	p.value = map[string]any{"kind": p.unknown.Kind}
	if p.rest = p.unknown.Raw; p.unknown.Kind != "DeleteOptions" {
		if err := p.splitMetadata(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *protobuf) splitMetadata() error {
	in := p.rest
	p.rest = nil
	for len(in) > 0 {
		number, kind, tag, size, err := nextField(in)
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
		if err := checkFieldCount(text); err != nil {
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
	metadata := map[string]any{
		"name": p.meta.Name, "namespace": p.meta.Namespace, "resourceVersion": p.meta.ResourceVersion,
	}
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

// maxFields limits the fields of an ObjectMeta. An owner of two bytes needs some hundred bytes when decoded.
const maxFields = 20_000

func checkFieldCount(message []byte) error {
	for n := 0; len(message) > 0; n++ {
		_, _, tag, size, err := nextField(message)
		if err != nil {
			return err
		}
		if n == maxFields {
			return fmt.Errorf("the body is refused: %w, over %d labels, annotations and owners",
				scan.ErrTooMany, maxFields)
		}
		message = message[tag+size:]
	}
	return nil
}

func (p *protobuf) encode() ([]byte, error) {
	unknown := p.unknown
	unknown.Raw = nil
	if p.meta != nil {
		metadata := p.value["metadata"].(map[string]any)
		p.meta.Name, _ = metadata["name"].(string)
		p.meta.Namespace, _ = metadata["namespace"].(string)
		p.meta.ResourceVersion, _ = metadata["resourceVersion"].(string)
		owners, _ := metadata["ownerReferences"].([]any)
		for i, o := range owners { // same length and order as in p.meta
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

// nextField reads the tag of the first field of a message. It returns the sizes of the tag and of the value.
func nextField(in []byte) (number protowire.Number, kind protowire.Type, tag, size int, err error) {
	if number, kind, tag = protowire.ConsumeTag(in); tag < 0 {
		return 0, 0, 0, 0, errUnreadable
	}
	if size = protowire.ConsumeFieldValue(number, kind, in[tag:]); size < 0 {
		return 0, 0, 0, 0, errUnreadable
	}
	return number, kind, tag, size, nil
}
