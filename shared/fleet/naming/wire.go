package naming

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// wire is a node in the tree of the protobuf field numbers of References.
type wire struct {
	number   protowire.Number
	distinct bool // equal messages with this number are reduced to one
	ref      *Reference
	fields   []*wire
}

// kindNumber is the number of the field kind in each message whose references depend on it.
const kindNumber = 1

func (w *wire) add(r *Reference) {
	parent := w
	for text := range strings.SplitSeq(r.Wire, ".") {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			panic(err) // a test compares the table with the types of Kubernetes
		}
		next := w.field(protowire.Number(n))
		if next == nil {
			next = &wire{number: protowire.Number(n)}
			w.fields = append(w.fields, next)
		}
		parent, w = w, next
	}
	parent.distinct = parent.distinct || r.Distinct
	w.ref = r
}

func (w *wire) field(number protowire.Number) *wire {
	for _, inner := range w.fields {
		if inner.number == number {
			return inner
		}
	}
	return nil
}

func (w *wire) rewrite(message []byte, by replacer) (out []byte, err error) {
	kind := w.kind(message)
	for in := message; len(in) > 0; {
		number, typ, tag, size, err := nextField(in)
		if err != nil {
			return nil, err
		}
		text, n := protowire.ConsumeBytes(in[tag : tag+size])
		inner := w.field(number)
		switch {
		case inner == nil || typ != protowire.BytesType || n < 0,
			inner.ref != nil && inner.ref.SiblingKind != "" && inner.ref.SiblingKind != kind:
			out = append(out, in[:tag+size]...)
		case inner.ref != nil:
			out = protowire.AppendString(append(out, in[:tag]...), by(inner.ref, string(text)))
		default:
			text, err := inner.rewrite(text, by)
			if err != nil {
				return nil, err
			}
			out = protowire.AppendBytes(append(out, in[:tag]...), text)
		}
		in = in[tag+size:]
	}
	if !bytes.Equal(out, message) {
		out = w.dropEqual(out)
	}
	return out, nil
}

func (w *wire) dropEqual(message []byte) (out []byte) {
	if !slices.ContainsFunc(w.fields, func(inner *wire) bool { return inner.distinct }) {
		return message
	}
	seen := map[string]bool{}
	for in := message; len(in) > 0; {
		number, _, tag, size, err := nextField(in)
		if err != nil {
			return message
		}
		whole := in[:tag+size]
		inner := w.field(number)
		distinct := inner != nil && inner.distinct
		if !distinct || !seen[string(whole)] {
			out = append(out, whole...)
		}
		if distinct {
			seen[string(whole)] = true
		}
		in = in[tag+size:]
	}
	return out
}

// kind returns the kind in a message if references of w depend on it. As in decoders, the last one counts.
func (w *wire) kind(message []byte) (kind string) {
	needed := false
	for _, inner := range w.fields {
		needed = needed || inner.ref != nil && inner.ref.SiblingKind != ""
	}
	for needed && len(message) > 0 {
		number, _, tag, size, err := nextField(message)
		if err != nil {
			return ""
		}
		if text, n := protowire.ConsumeBytes(message[tag : tag+size]); number == kindNumber && n >= 0 {
			kind = string(text)
		}
		message = message[tag+size:]
	}
	return kind
}
