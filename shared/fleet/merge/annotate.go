package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// SourceAnnotation names the cluster of an object. Karmada defined it.
const SourceAnnotation = "resource.karmada.io/cached-from-cluster"

// LastApplied is the annotation in which kubectl apply stores the applied object as text, with its name.
const LastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Rewriter returns the values that the client gets in place of the member's. own is the member's value. naming.Answer
// implements it.
type Rewriter interface {
	Name(own string) string        // the name of the object or an owner, also in LastApplied
	InNamespace(own string) string // the namespace, also in LastApplied
	Version(own string) string     // the resourceVersion
	// ReplaceReferences calls replace for each field outside metadata whose value may change, in the order of the text.
	ReplaceReferences(object []byte, replace Replace) error
}

// Annotator writes the source of objects into their annotations. It is not safe for concurrent use.
type Annotator struct {
	pair      []byte   // the annotation in JSON; nil for the object in LastApplied
	field     []byte   // the field annotations with pair alone, and a comma
	rewriter  Rewriter // nil replaces nothing
	namespace string
	scanner   scan.Scanner
	inner     *Annotator // for LastApplied; nil until the first one
	// renamed has an object with its references replaced. replace is renameReference, bound once.
	renamed copier
	replace Replace
}

// Replace replaces the string at a field with the result of translate. Other values stay.
type Replace func(at scan.Field, translate func(own string) string)

// NewAnnotator returns an Annotator for the objects of one cluster. rewriter may be nil.
func NewAnnotator(cluster string, rewriter Rewriter) *Annotator {
	pair, err := json.Marshal(map[string]string{SourceAnnotation: cluster})
	if err != nil {
		panic(err) // strings always marshal
	}
	return newAnnotator(pair[1:len(pair)-1], rewriter)
}

func newAnnotator(pair []byte, rewriter Rewriter) *Annotator {
	a := &Annotator{pair: pair, field: fmt.Appendf(nil, `"annotations":{%s},`, pair), rewriter: rewriter}
	a.replace = a.renameReference
	return a
}

// Namespace returns the namespace of the last object, before its replacement. It is "" for an object without one.
func (a *Annotator) Namespace() string { return a.namespace }

// ForgetNamespace makes Namespace return "", until the next object.
func (a *Annotator) ForgetNamespace() { a.namespace = "" }

// copier copies text to dst with replacements. It reads the text once, so that only the result needs memory.
type copier struct {
	dst, text []byte
	at        int // text[:at] is copied
}

func (c *copier) upTo(i int) {
	c.dst = append(c.dst, c.text[c.at:i]...)
	c.at = i
}

func (c *copier) replace(from, to int, parts ...string) {
	c.upTo(from)
	for _, part := range parts {
		c.dst = append(c.dst, part...)
	}
	c.at = to
}

func commaIf(hasMore bool) string {
	if hasMore {
		return ","
	}
	return ""
}

// Append appends an object to dst with the annotation and the replacements. All other bytes stay. It returns an error
// if the text is not an object, its metadata is invalid, or one of the fields to replace is a duplicate.
func (a *Annotator) Append(dst []byte, o Object) ([]byte, error) {
	a.ForgetNamespace()
	o, err := a.withReferences(o)
	if err != nil {
		return dst, err
	}
	before := len(dst)
	c := &copier{dst: dst, text: o.Text}
	if err := a.rewriteObject(c, o.Found); err != nil {
		return dst[:before], err
	}
	c.upTo(len(c.text))
	return c.dst, nil
}

func (a *Annotator) withReferences(o Object) (Object, error) {
	if a.rewriter == nil {
		return o, nil
	}
	c := &a.renamed
	*c = copier{text: o.Text}
	err := a.rewriter.ReplaceReferences(o.Text, a.replace)
	if err != nil || c.at == 0 {
		return o, err
	}
	c.upTo(len(c.text))
	return ObjectOf(c.dst)
}

func (a *Annotator) renameReference(at scan.Field, translate func(own string) string) {
	a.rename(&a.renamed, at, translate)
}

var (
	errInvalidMetadata = errors.New("an object has no readable metadata")
	// Decoders differ in which of two equal fields counts, so that the object could name another cluster.
	errTwice = errors.New("an object has a duplicate field")
)

func (a *Annotator) rewriteObject(c *copier, metadata scan.Found) error {
	first := scan.Space(c.text, 0) + 1
	switch {
	case first > len(c.text) || c.text[first-1] != '{':
		return errInvalidMetadata
	case metadata.Times > 1:
		return errTwice
	case metadata.Times == 0:
		if a.pair != nil {
			c.replace(first, first, `"metadata":{"annotations":{`, string(a.pair), "}}",
				commaIf(len(bytes.TrimSpace(c.text[first:])) > 1))
		}
		return nil
	case c.text[metadata.At] == 'n': // null
		if a.pair != nil {
			c.replace(metadata.At, metadata.End, `{"annotations":{`, string(a.pair), "}}")
		}
		return nil
	case c.text[metadata.At] != '{':
		return errInvalidMetadata
	}
	c.upTo(metadata.At + 1)
	begin := len(c.dst)
	annotated, hasFields, err := a.rewriteMetadata(c, metadata.At)
	if err == nil && !annotated && a.pair != nil {
		field := a.field
		if !hasFields {
			field = field[:len(field)-1]
		}
		c.dst = slices.Insert(c.dst, begin, field...)
	}
	return err
}

var metadataFields = []string{"namespace", "resourceVersion", "name", "ownerReferences", "annotations"}

func (a *Annotator) rewriteMetadata(c *copier, at int) (annotated, hasFields bool, err error) {
	var seen [5]bool
	for f := range a.scanner.Fields(c.text, at) {
		hasFields = true
		i := slices.IndexFunc(metadataFields, f.Is)
		if i < 0 {
			continue
		}
		if seen[i] {
			return annotated, hasFields, errTwice
		}
		seen[i] = true
		switch first := c.text[f.At]; metadataFields[i] {
		case "namespace":
			err = a.renameString(c, f, a.translateNamespace)
		case "resourceVersion":
			err = a.renameString(c, f, a.translateVersion)
		case "name":
			a.rename(c, f, a.translateName)
		case "ownerReferences":
			err = a.rewriteOwners(c, f.At)
		case "annotations":
			annotated = true
			switch first {
			case 'n':
				if a.pair != nil {
					c.replace(f.At, f.End, "{", string(a.pair), "}")
				}
			case '{':
				err = a.rewriteAnnotations(c, f.At)
			default:
				err = errInvalidMetadata
			}
		}
		if err != nil {
			return annotated, hasFields, err
		}
	}
	return annotated, hasFields, nil
}

// rewriteAnnotations writes the source first and removes an existing one.
func (a *Annotator) rewriteAnnotations(c *copier, at int) error {
	if a.pair != nil {
		c.replace(at+1, at+1, string(a.pair))
	}
	before, source, applied := at+1, false, false // before is the end of the previous annotation
	for f := range a.scanner.Fields(c.text, at) {
		isSource := a.pair != nil && f.Is(SourceAnnotation)
		if a.pair != nil && before == at+1 && !isSource {
			c.replace(before, before, ",")
		}
		switch {
		case isSource && source, applied && f.Is(LastApplied):
			return errTwice
		case isSource: // remove it with the comma before it
			source = true
			c.replace(before, f.End)
		case a.pair != nil && a.rewriter != nil && f.Is(LastApplied): // not within LastApplied, where pair is nil
			applied = true
			a.rename(c, f, a.rewriteApplied)
		}
		before = f.End
	}
	return nil
}

// renameString is like rename, but a value that is no string is an error.
func (a *Annotator) renameString(c *copier, f scan.Field, translate func(own string) string) error {
	if c.text[f.At] != '"' {
		return errInvalidMetadata
	}
	a.rename(c, f, translate)
	return nil
}

func (a *Annotator) rename(c *copier, f scan.Field, translate func(own string) string) {
	if c.text[f.At] != '"' {
		return
	}
	own := scan.Text(c.text[f.At:f.End])
	if own == "" {
		return
	}
	if name := translate(own); name != own {
		quoted, _ := jsontext.AppendQuote(nil, name) // it replaces invalid UTF-8
		c.replace(f.At, f.End, string(quoted))
	}
}

func (a *Annotator) translateNamespace(own string) string {
	if a.namespace = own; a.rewriter != nil {
		return a.rewriter.InNamespace(own)
	}
	return own
}

func (a *Annotator) translateName(own string) string {
	if a.rewriter != nil {
		return a.rewriter.Name(own)
	}
	return own
}

func (a *Annotator) translateVersion(own string) string {
	if a.rewriter != nil && a.pair != nil {
		return a.rewriter.Version(own)
	}
	return own
}

func (a *Annotator) rewriteOwners(c *copier, at int) error {
	if a.rewriter == nil {
		return nil
	}
	for owner := range a.scanner.Elements(c.text, at) {
		hasName := false
		for f := range a.scanner.Fields(c.text, owner) {
			if !f.Is("name") {
				continue
			}
			if hasName {
				return errTwice
			}
			hasName = true
			a.rename(c, f, a.rewriter.Name)
		}
	}
	return nil
}

// rewriteApplied replaces the names in the text of LastApplied, but not in a LastApplied within it: each level would
// double the text. Text that is no object stays, because kubectl did not write it.
func (a *Annotator) rewriteApplied(text string) string {
	if a.inner == nil {
		a.inner = newAnnotator(nil, a.rewriter)
	}
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
