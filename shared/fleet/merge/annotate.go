package merge

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// SourceAnnotation tells where an object came from. It is Karmada's.
const SourceAnnotation = "resource.karmada.io/cached-from-cluster"

// LastApplied is the annotation in which kubectl apply keeps an object, as text, with its name.
const LastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Annotator writes the source of objects into their annotations. It is not safe for concurrent use.
type Annotator struct {
	pair []byte // the annotation as it stands in JSON; nil for none
	// Version, if not nil, gives what is written in place of an object's own resourceVersion.
	Version func(own string) string
	// Name, if not nil, gives what is written in place of names: the object's own, also in LastApplied, and its owners', which are in the same
	// cluster.
	Name func(own string) string
	// References, if not nil, calls replace for each text beside metadata that may be written in another form.
	References func(object []byte, replace Replace) error
	// InNamespace, if not nil, gives what is written in place of an object's namespace.
	InNamespace func(own string) string
	namespace   string
	scanner     scan.Scanner
	edits       []edit
	inner       *Annotator // of LastApplied; nil until there was one
}

// Replace writes the result of by in place of the text at a field. Other values stay.
type Replace func(at scan.Field, by func(own string) string) error

// NewAnnotator returns an Annotator for the objects of one cluster.
func NewAnnotator(cluster string) *Annotator {
	pair, err := json.Marshal(map[string]string{SourceAnnotation: cluster})
	if err != nil {
		panic(err) // strings always marshal
	}
	return &Annotator{pair: pair[1 : len(pair)-1]}
}

// Namespace is that of the object before, "" without one.
func (a *Annotator) Namespace() string { return a.namespace }

// span is a part of an object's text.
type span struct{ from, to int }

// place is where the annotation goes.
type place struct {
	open, first int  // after the object's "{", after metadata's "{"
	some, any   bool // metadata has fields; there is metadata
	annotations int  // after annotations' "{"; 0 if there are none
	comma       bool // something follows there
	null        span // annotations: null
	old         span // an annotation of that name, with the comma before it
}

// edit replaces a part of an object by texts.
type edit struct {
	span
	texts [4]string
}

// Append appends an object, with the annotation, to dst. Every other byte stays as it is, but for the version and names.
func (a *Annotator) Append(dst []byte, o Object) ([]byte, error) {
	a.edits = a.edits[:0]
	object := o.Text
	p, err := a.find(object, o.Found)
	if err == nil && a.References != nil {
		err = a.References(object, func(at scan.Field, by func(own string) string) error {
			return a.replace(object, at, by)
		})
	}
	if err == nil && len(a.edits) > maxEdits {
		err = errMany
	}
	if err != nil {
		a.edits = nil
		return dst, err
	}
	if a.pair != nil {
		a.annotate(p, object)
	}
	slices.SortStableFunc(a.edits, func(x, y edit) int { return cmp.Compare(x.from, y.from) })
	at := 0
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
	if len(a.edits) > maxEdits { // Append fails
		return
	}
	e := edit{span: at}
	copy(e.texts[:], texts)
	a.edits = append(a.edits, e)
}

// annotate writes the annotation.
func (a *Annotator) annotate(p place, object []byte) {
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

// maxEdits bounds what is rewritten in one object, mostly the names of owners.
const maxEdits = 1000

var (
	errMany     = fmt.Errorf("an object has over %d owners", maxEdits)
	errNoObject = errors.New("an object has no readable metadata")
	errTwice    = errors.New("an object has a name twice")
)

// find reads object's metadata, and replaces the version and names in it. Nothing that is looked for may stand twice: what is written into the first
// would be hidden from who reads the last, and an object could say that another cluster's it is. API servers send no such.
func (a *Annotator) find(object []byte, at scan.Found) (p place, err error) {
	a.namespace = ""
	p.open = scan.Space(object, 0) + 1
	switch {
	case p.open > len(object) || object[p.open-1] != '{':
		return p, errNoObject
	case at.Times == 0:
		return p, nil
	case at.Times > 1:
		return p, errTwice
	case object[at.At] != '{':
		return p, errNoObject
	}
	p.first, p.any = at.At+1, true
	return p, a.metadata(&p, object, at.At)
}

// The fields of metadata that are looked for.
var known = []string{"namespace", "resourceVersion", "name", "ownerReferences", "annotations"}

// metadata reads the metadata that begins at object[at].
func (a *Annotator) metadata(p *place, object []byte, at int) error {
	var seen [5]bool
	for f := range a.scanner.Fields(object, at) {
		p.some = true
		i := slices.IndexFunc(known, f.Is)
		if i < 0 {
			continue
		}
		if seen[i] {
			return errTwice
		}
		seen[i] = true
		var err error
		switch kind := object[f.At]; known[i] {
		case "namespace":
			if kind != '"' {
				return errNoObject
			}
			err = a.replace(object, f, a.inNamespace)
		case "resourceVersion":
			if kind != '"' {
				return errNoObject
			}
			err = a.replace(object, f, a.Version)
		case "name":
			err = a.replace(object, f, a.Name)
		case "ownerReferences":
			err = a.owners(object, f.At)
		case "annotations":
			switch kind {
			case 'n':
				p.null = span{f.At, f.End}
			case '{':
				p.annotations = f.At + 1
				err = a.annotations(p, object, f.At)
			default:
				return errNoObject
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// annotations reads the annotations that begin at object[at].
func (a *Annotator) annotations(p *place, object []byte, at int) error {
	before, applied := at+1, false // before: where the annotation before ends
	for f := range a.scanner.Fields(object, at) {
		mine := f.Is(SourceAnnotation)
		if before == at+1 {
			p.comma = !mine // others have theirs before them
		}
		switch {
		case mine && p.old.to > 0, applied && f.Is(LastApplied):
			return errTwice
		case mine:
			p.old = span{before, f.End}
		case a.Name != nil && f.Is(LastApplied):
			applied = true
			if err := a.replace(object, f, a.applied); err != nil {
				return err
			}
		}
		before = f.End
	}
	return nil
}

// replace writes what by gives in place of a field's value that is a string, and not empty.
func (a *Annotator) replace(object []byte, f scan.Field, by func(own string) string) error {
	if by == nil || object[f.At] != '"' {
		return nil
	}
	text, err := jsontext.AppendUnquote(nil, object[f.At:f.End])
	own := string(text)
	if err != nil || own == "" {
		return nil //nolint:nilerr // bytes that are no text stay as they are
	}
	if said := by(own); said != own {
		quoted, err := jsontext.AppendQuote(nil, said)
		if err != nil {
			return err
		}
		a.edit(span{f.At, f.End}, string(quoted))
	}
	return nil
}

func (a *Annotator) inNamespace(own string) string {
	if a.namespace = own; a.InNamespace != nil {
		return a.InNamespace(own)
	}
	return own
}

// owners replaces the names in the ownerReferences that begin at object[at].
func (a *Annotator) owners(object []byte, at int) error {
	if a.Name == nil {
		return nil
	}
	for owner := range a.scanner.Elements(object, at) {
		named := false
		for f := range a.scanner.Fields(object, owner) {
			if !f.Is("name") {
				continue
			}
			if named {
				return errTwice
			}
			named = true
			if err := a.replace(object, f, a.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// applied replaces the names in what LastApplied holds. What is no object is not kubectl's, and stays.
func (a *Annotator) applied(text string) string {
	if a.inner == nil {
		a.inner = &Annotator{}
	}
	a.inner.Name, a.inner.InNamespace, a.inner.References = a.Name, a.InNamespace, a.References
	object, err := ObjectOf([]byte(text))
	if err != nil {
		return text
	}
	out, err := a.inner.Append(nil, object)
	if err != nil {
		return text
	}
	return string(out)
}
