package merge

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// BenchmarkListByJSONText annotates the list of BenchmarkList with jsontext, in a single pass. It decides whether the
// project keeps its own scanner (docs/decisions/0001-own-json-scanner.md).
func BenchmarkListByJSONText(b *testing.B) {
	list := podList(1000)
	b.SetBytes(int64(len(list)))
	var dst []byte
	for b.Loop() {
		p := singlePass{dec: jsontext.NewDecoder(strings.NewReader(list), jsontext.AllowDuplicateNames(true),
			jsontext.AllowInvalidUTF8(true))}
		p.dst = dst[:0]
		n, err := p.list()
		if dst = p.dst; n != 1000 || err != nil {
			b.Fatal(n, err)
		}
	}
}

// TestSinglePass checks that the subject of BenchmarkListByJSONText does the work of an Annotator.
func TestSinglePass(t *testing.T) {
	list := podList(1)
	p := singlePass{dec: jsontext.NewDecoder(strings.NewReader(list))}
	if n, err := p.list(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	s, err := Open("c", strings.NewReader(list))
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.Next()
	if err != nil {
		t.Fatal(err)
	}
	want, err := NewAnnotator("c", nil).Append(nil, o)
	if err != nil || string(p.dst) != string(want) {
		t.Errorf("got %s\nwant %s, %v", p.dst, want, err)
	}
}

type singlePass struct {
	dec *jsontext.Decoder
	dst []byte
}

func (p *singlePass) list() (n int, err error) {
	err = p.fields(func(name string) error {
		if name != "items" {
			return p.dec.SkipValue()
		}
		if _, err := p.dec.ReadToken(); err != nil {
			return err
		}
		for p.dec.PeekKind() == '[' || p.dec.PeekKind() == '{' {
			n++
			p.dst = append(p.dst[:0], '{')
			if err := p.object("", `"metadata":{"annotations":{`+sourceOfC+"}}"); err != nil {
				return err
			}
		}
		_, err := p.dec.ReadToken()
		return err
	})
	return n, err
}

const sourceOfC = `"` + SourceAnnotation + `":"c"`

var path = []string{"", "metadata", "annotations"}

// object inserts insert if the object lacks the next field of path.
func (p *singlePass) object(at, insert string) error {
	begin, found, hasFields := len(p.dst), false, false
	next := slices.Index(path, at) + 1
	if next == len(path) {
		p.dst, found = append(p.dst, sourceOfC...), true
		hasFields = true
	}
	err := p.fields(func(name string) error {
		if next == len(path) && name == SourceAnnotation {
			return p.dec.SkipValue()
		}
		if hasFields {
			p.dst = append(p.dst, ',')
		}
		hasFields = true
		p.dst, _ = jsontext.AppendQuote(p.dst, name)
		p.dst = append(p.dst, ':')
		if next < len(path) && name == path[next] && p.dec.PeekKind() == '{' {
			found = true
			p.dst = append(p.dst, '{')
			return p.object(name, `"annotations":{`+sourceOfC+"}")
		}
		v, err := p.dec.ReadValue()
		p.dst = append(p.dst, v...)
		return err
	})
	if !found {
		if hasFields {
			insert += ","
		}
		p.dst = slices.Insert(p.dst, begin, []byte(insert)...)
	}
	p.dst = append(p.dst, '}')
	return err
}

func (p *singlePass) fields(read func(name string) error) error {
	if t, err := p.dec.ReadToken(); err != nil || t.Kind() != '{' {
		return errors.Join(err, io.ErrUnexpectedEOF)
	}
	for p.dec.PeekKind() == '"' {
		name, err := p.dec.ReadToken()
		if err != nil {
			return err
		}
		if err := read(name.String()); err != nil {
			return err
		}
	}
	_, err := p.dec.ReadToken()
	return err
}
