package merge

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// SourceAnnotation tells where an object came from. It is Karmada's.
const SourceAnnotation = "resource.karmada.io/cached-from-cluster"

// LastApplied is the annotation in which kubectl apply keeps an object, as text, with its name.
const LastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// once is Syntax without equal names. What is written into the first of them would be hidden from who reads the last: an object could say
// that another cluster's it is. API servers send none.
var once = []jsontext.Options{jsontext.AllowDuplicateNames(false), jsontext.AllowInvalidUTF8(true)}

// Annotator writes the source of objects into their annotations. It is not safe for concurrent use.
type Annotator struct {
	pair []byte // the annotation as it stands in JSON; nil for none
	dec  *jsontext.Decoder
	buf  bytes.Buffer
	// Version, if not nil, gives what is written in place of an object's own resourceVersion.
	Version func(own string) string
	// Name, if not nil, gives what is written in place of names: the object's own, also in LastApplied, and its owners', which are in the same
	// cluster.
	Name func(own string) string
	// InNamespace, if not nil, gives what is written in place of an object's namespace.
	InNamespace func(own string) string
	namespace   string
	edits       []edit
	inner       *Annotator // of LastApplied; nil until there was one
}

// NewAnnotator returns an Annotator for the objects of one cluster.
func NewAnnotator(cluster string) *Annotator {
	pair, err := json.Marshal(map[string]string{SourceAnnotation: cluster})
	if err != nil {
		panic(err) // strings always marshal
	}
	a := &Annotator{pair: pair[1 : len(pair)-1]}
	a.dec = jsontext.NewDecoder(&a.buf, once...)
	return a
}

// Namespace is that of the object before, "" without one.
func (a *Annotator) Namespace() string { return a.namespace }

// span is a part of an object's text.
type span struct{ from, to int64 }

// place is where the annotation goes.
type place struct {
	open, first int64 // after the object's "{", after metadata's "{"
	some, any   bool  // metadata has fields; there is metadata
	annotations int64 // after annotations' "{"; 0 if there are none
	comma       bool  // something follows there
	null        span  // annotations: null
	old         span  // an annotation of that name, with the comma before it
}

// edit replaces a part of an object by texts.
type edit struct {
	span
	texts [4]string
}

// Append appends object, which is well-formed, with the annotation to dst. Every other byte stays as it is, but for the version and names.
func (a *Annotator) Append(dst []byte, object jsontext.Value) ([]byte, error) {
	a.edits = a.edits[:0]
	p, err := a.find(object)
	if err != nil {
		return dst, err
	}
	if a.pair != nil {
		a.annotate(p, object)
	}
	slices.SortStableFunc(a.edits, func(x, y edit) int { return cmp.Compare(x.from, y.from) })
	at := int64(0)
	for _, e := range a.edits {
		dst = append(dst, object[at:e.from]...)
		for _, text := range e.texts {
			dst = append(dst, text...)
		}
		at = e.to
	}
	return append(dst, object[at:]...), nil
}

func (a *Annotator) edit(at span, texts ...string) {
	e := edit{span: at}
	copy(e.texts[:], texts)
	a.edits = append(a.edits, e)
}

// annotate writes the annotation.
func (a *Annotator) annotate(p place, object jsontext.Value) {
	comma := func(some bool) string {
		if some {
			return ","
		}
		return ""
	}
	switch pair := string(a.pair); {
	case p.annotations > 0:
		a.edit(span{p.annotations, p.annotations}, pair, comma(p.comma))
		if p.old.to > 0 {
			a.edit(p.old)
		}
	case p.null.to > 0:
		a.edit(p.null, "{", pair, "}")
	case p.any:
		a.edit(span{p.first, p.first}, `"annotations":{`, pair, "}", comma(p.some))
	default:
		a.edit(span{p.open, p.open}, `"metadata":{"annotations":{`, pair, "}}", comma(len(bytes.TrimSpace(object[p.open:])) > 1))
	}
}

var (
	errNoObject = errors.New("an object has no readable metadata")
	errTwice    = errors.New("an object has a name twice")
)

// find reads object up to the end of its metadata, and replaces the version and names in it.
func (a *Annotator) find(object jsontext.Value) (p place, err error) {
	a.namespace = ""
	a.buf = *bytes.NewBuffer(object) // not copied, and only read
	a.dec.Reset(&a.buf, once...)
	if tok, err := a.dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return p, errNoObject
	}
	p.open = a.dec.InputOffset()
	for {
		name, err := a.dec.ReadToken()
		if err != nil {
			return p, err
		}
		if name.Kind() == '}' {
			return p, nil
		}
		if name.String() != "metadata" {
			if err := a.dec.SkipValue(); err != nil {
				return p, err
			}
			continue
		}
		if tok, err := a.dec.ReadToken(); err != nil || tok.Kind() != '{' {
			return p, errNoObject
		}
		p.first, p.any = a.dec.InputOffset(), true
		if err := a.metadata(&p); err != nil {
			return p, err
		}
		// What follows is read again only where there may be more metadata, that of templates mostly.
		rest := object[a.dec.InputOffset():]
		if (bytes.Contains(rest, []byte(`"metadata"`)) || bytes.Contains(rest, []byte(`\u`))) && !object.IsValid(once...) {
			return p, errTwice
		}
		return p, nil
	}
}

func (a *Annotator) metadata(p *place) error {
	for {
		name, err := a.dec.ReadToken()
		if err != nil {
			return err
		}
		if name.Kind() == '}' {
			return nil
		}
		p.some = true
		switch name.String() {
		case "namespace":
			if a.dec.PeekKind() != '"' {
				return errNoObject
			}
			if err := a.replace(a.inNamespace); err != nil {
				return err
			}
		case "resourceVersion":
			if a.dec.PeekKind() != '"' {
				return errNoObject
			}
			if err := a.replace(a.Version); err != nil {
				return err
			}
		case "name":
			if err := a.replace(a.Name); err != nil {
				return err
			}
		case "ownerReferences":
			if err := a.owners(); err != nil {
				return err
			}
		case "annotations":
			tok, err := a.dec.ReadToken()
			if err != nil {
				return err
			}
			switch end := a.dec.InputOffset(); tok.Kind() {
			case 'n':
				p.null = span{end - int64(len("null")), end}
			case '{':
				p.annotations = end
				if err := a.annotations(p); err != nil {
					return err
				}
			default:
				return errNoObject
			}
		default:
			if err := a.dec.SkipValue(); err != nil {
				return err
			}
		}
	}
}

func (a *Annotator) annotations(p *place) error {
	for n := 0; ; n++ {
		before := a.dec.InputOffset()
		name, err := a.dec.ReadToken()
		if err != nil {
			return err
		}
		if name.Kind() == '}' {
			return nil
		}
		mine := name.String() == SourceAnnotation
		if name.String() == LastApplied && a.Name != nil {
			err = a.replace(a.applied)
		} else {
			err = a.dec.SkipValue()
		}
		if err != nil {
			return err
		}
		if mine {
			p.old = span{before, a.dec.InputOffset()}
		}
		if n == 0 {
			p.comma = !mine
		}
	}
}

// replace reads a value, and writes what by gives in place of a string that is not empty.
func (a *Annotator) replace(by func(own string) string) error {
	if by == nil || a.dec.PeekKind() != '"' {
		return a.dec.SkipValue()
	}
	v, err := a.dec.ReadValue()
	if err != nil {
		return err
	}
	end := a.dec.InputOffset()
	at := span{end - int64(len(v)), end}
	text, err := jsontext.AppendUnquote(nil, v)
	own := string(text)
	if err != nil || own == "" {
		return nil //nolint:nilerr // bytes that are no text stay as they are
	}
	if said := by(own); said != own {
		quoted, err := jsontext.AppendQuote(nil, said)
		if err != nil {
			return err
		}
		a.edit(at, string(quoted))
	}
	return nil
}

func (a *Annotator) inNamespace(own string) string {
	if a.namespace = own; a.InNamespace != nil {
		return a.InNamespace(own)
	}
	return own
}

// owners replaces the names in ownerReferences.
func (a *Annotator) owners() error {
	if a.Name == nil || a.dec.PeekKind() != '[' {
		return a.dec.SkipValue()
	}
	if _, err := a.dec.ReadToken(); err != nil {
		return err
	}
	for a.dec.PeekKind() != ']' {
		if a.dec.PeekKind() != '{' {
			if err := a.dec.SkipValue(); err != nil {
				return err
			}
			continue
		}
		if _, err := a.dec.ReadToken(); err != nil {
			return err
		}
		for a.dec.PeekKind() != '}' {
			key, err := a.dec.ReadToken()
			if err != nil {
				return err
			}
			by := a.Name
			if key.String() != "name" {
				by = nil
			}
			if err := a.replace(by); err != nil {
				return err
			}
		}
		if _, err := a.dec.ReadToken(); err != nil {
			return err
		}
	}
	_, err := a.dec.ReadToken()
	return err
}

// applied replaces the names in what LastApplied holds. What is no object is not kubectl's, and stays.
func (a *Annotator) applied(text string) string {
	if a.inner == nil {
		a.inner = &Annotator{}
		a.inner.dec = jsontext.NewDecoder(&a.inner.buf, once...)
	}
	a.inner.Name, a.inner.InNamespace = a.Name, a.InNamespace
	out, err := a.inner.Append(nil, jsontext.Value(text))
	if err != nil {
		return text
	}
	return string(out)
}
