package naming

import (
	"bytes"
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// protobufMedia is how typed clients write bodies.
const protobufMedia = "application/vnd.kubernetes.protobuf"

// magic begins every body in Kubernetes' protobuf. A runtime.Unknown follows.
var magic = []byte("k8s\x00")

// protobuf is a body of which only what stands for metadata is read: of an object its ObjectMeta, which is field 1 of every kind that
// kube-apiserver has, or DeleteOptions. The rest stays byte for byte.
type protobuf struct {
	unknown  runtime.Unknown
	meta     *metav1.ObjectMeta // nil where there is none
	deletion *metav1.DeleteOptions
	rest     []byte // the fields after, or around, metadata
}

func parseProtobuf(data []byte) (*protobuf, error) {
	p := &protobuf{}
	raw, ok := bytes.CutPrefix(data, magic)
	if !ok || p.unknown.Unmarshal(raw) != nil || p.unknown.ContentEncoding != "" {
		return nil, errUnreadable
	}
	if p.unknown.Kind == "DeleteOptions" {
		p.deletion = &metav1.DeleteOptions{}
		if p.deletion.Unmarshal(p.unknown.Raw) != nil {
			return nil, errUnreadable
		}
		return p, nil
	}
	for in := p.unknown.Raw; len(in) > 0; {
		number, kind, n := protowire.ConsumeTag(in)
		if n < 0 {
			return nil, errUnreadable
		}
		size := protowire.ConsumeFieldValue(number, kind, in[n:])
		if size < 0 {
			return nil, errUnreadable
		}
		if number == 1 {
			value, m := protowire.ConsumeBytes(in[n:])
			if p.meta != nil || kind != protowire.BytesType || m < 0 {
				return nil, errUnreadable
			}
			p.meta = &metav1.ObjectMeta{}
			if p.meta.Unmarshal(value) != nil {
				return nil, errUnreadable
			}
		} else {
			p.rest = append(p.rest, in[:n+size]...)
		}
		in = in[n+size:]
	}
	return p, nil
}

// fields gives what is rewritten in the form of JSON.
func (p *protobuf) fields() map[string]any {
	switch {
	case p.deletion != nil && p.deletion.Preconditions != nil && p.deletion.Preconditions.ResourceVersion != nil:
		return map[string]any{"preconditions": map[string]any{"resourceVersion": *p.deletion.Preconditions.ResourceVersion}}
	case p.meta == nil:
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
	var owners []any
	for _, o := range p.meta.OwnerReferences {
		owners = append(owners, map[string]any{"name": o.Name})
	}
	metadata["ownerReferences"] = owners
	return map[string]any{"metadata": metadata}
}

// encode writes the body with the fields as they were rewritten.
func (p *protobuf) encode(fields map[string]any) ([]byte, error) {
	var err error
	unknown := p.unknown
	if p.deletion != nil {
		version, _ := fields["preconditions"].(map[string]any)["resourceVersion"].(string)
		p.deletion.Preconditions.ResourceVersion = &version
		unknown.Raw, err = p.deletion.Marshal()
	} else {
		metadata, ok := fields["metadata"].(map[string]any)
		if !ok {
			return nil, errors.New("there is no metadata")
		}
		p.meta.Name, _ = metadata["name"].(string)
		p.meta.Namespace, _ = metadata["namespace"].(string)
		p.meta.ResourceVersion, _ = metadata["resourceVersion"].(string)
		owners, _ := metadata["ownerReferences"].([]any)
		for i, o := range owners { // as many, in their order
			p.meta.OwnerReferences[i].Name, _ = o.(map[string]any)["name"].(string)
		}
		annotations, _ := metadata["annotations"].(map[string]any)
		for k := range p.meta.Annotations {
			if v, ok := annotations[k].(string); ok {
				p.meta.Annotations[k] = v
			} else {
				delete(p.meta.Annotations, k)
			}
		}
		var meta []byte
		if meta, err = p.meta.Marshal(); err == nil {
			unknown.Raw = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), meta)
			unknown.Raw = append(unknown.Raw, p.rest...)
		}
	}
	if err != nil {
		return nil, err
	}
	out, err := unknown.Marshal()
	return append(bytes.Clone(magic), out...), err
}
