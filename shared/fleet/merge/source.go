// Package merge makes one list of several, as their bytes come in.
//
// Invariants:
//   - Of each list one object at a time is held, as text: nothing is decoded into types, nothing but what is said here is changed, and
//     memory does not grow with the list.
//   - What is passed on is well-formed JSON, whatever came in.
//   - A list that does not come to its end is an error, never a shorter list.
package merge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxObject bounds one object of a list, and what precedes the objects, in bytes. (etcd takes 1.5 MB.)
const MaxObject = 16 << 20

// ErrTooLarge is for a list with something in it that is over MaxObject.
var ErrTooLarge = fmt.Errorf("an object is over %d MiB", MaxObject>>20)

// Syntax is what is accepted of a member. Kubernetes' own decoders take the last of equal names, and any bytes in strings.
var Syntax = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// Metadata is a list's.
type Metadata struct {
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Continue        string `json:"continue,omitempty"`
}

// MaxContinue bounds a list's continue token, in bytes of JSON, since the client carries it in URLs. (kube-apiserver's own are under 1 KiB.)
const MaxContinue = 8 << 10

func (m *Metadata) bounded() error {
	if data, err := json.Marshal(m.Continue); err != nil || len(data) > MaxContinue {
		return errors.Join(err, fmt.Errorf("its continue token is over %d KiB", MaxContinue>>10))
	}
	return nil
}

// Source is one list, being read. It is not safe for concurrent use.
type Source struct {
	Cluster          string // whose list it is
	Kind, APIVersion string // "" as long as they have not come
	Columns          []Column
	Read             int // objects so far

	in       *bounded
	dec      *jsontext.Decoder
	metadata *Metadata
	inItems  bool
}

// Open reads a list up to its objects. kube-apiserver sends the list's metadata before them for its own kinds, and after them for those
// of CustomResourceDefinitions.
func Open(cluster string, r io.Reader) (*Source, error) {
	s := &Source{Cluster: cluster, in: &bounded{r: r, left: MaxObject}}
	s.dec = jsontext.NewDecoder(s.in, Syntax...)
	if tok, err := s.dec.ReadToken(); err != nil || tok.Kind() != '{' {
		return nil, s.broken(err)
	}
	return s, s.fields()
}

// IsTable reports whether the list is a Table.
func (s *Source) IsTable() bool { return s.Kind == "Table" || s.Columns != nil }

// Metadata is the list's metadata; nil as long as it has not come.
func (s *Source) Metadata() *Metadata { return s.metadata }

// Next returns the list's next object, or row, which is valid until the next call; io.EOF after the whole list was read.
func (s *Source) Next() (jsontext.Value, error) {
	if !s.inItems {
		return nil, io.EOF
	}
	s.in.left = MaxObject
	if kind := s.dec.PeekKind(); kind == ']' {
		if _, err := s.dec.ReadToken(); err != nil {
			return nil, s.broken(err)
		}
		s.inItems = false
		if err := s.fields(); err != nil {
			return nil, err
		}
		if s.inItems {
			return nil, s.broken(errors.New("it has items twice"))
		}
		return nil, io.EOF
	}
	v, err := s.dec.ReadValue()
	if err == nil && v.Kind() != '{' {
		err = errors.New("an object of the list is none")
	}
	if err != nil {
		return nil, s.broken(err)
	}
	s.Read++
	return v, nil
}

// Drain reads the rest, and counts it in Read.
func (s *Source) Drain() error {
	for {
		if _, err := s.Next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// fields reads the list's own fields, up to its objects or its end.
func (s *Source) fields() error {
	for {
		name, err := s.dec.ReadToken()
		if err != nil {
			return s.broken(err)
		}
		if name.Kind() == '}' {
			return s.end()
		}
		key := name.String()
		if key == "items" || key == "rows" {
			if key == "rows" && s.Columns == nil {
				return s.broken(errors.New("a table's rows came before its columns"))
			}
			tok, err := s.dec.ReadToken()
			if err != nil {
				return s.broken(err)
			}
			switch tok.Kind() {
			case 'n': // null: none
				continue
			case '[':
				s.inItems = true
				return nil
			}
			return s.broken(errors.New("its items are no array"))
		}
		v, err := s.dec.ReadValue()
		if err != nil {
			return s.broken(err)
		}
		switch key {
		case "kind":
			err = json.Unmarshal(v, &s.Kind)
		case "apiVersion":
			err = json.Unmarshal(v, &s.APIVersion)
		case "metadata":
			s.metadata = &Metadata{}
			if err = json.Unmarshal(v, s.metadata); err == nil {
				err = s.metadata.bounded()
			}
		case "columnDefinitions":
			s.Columns, err = Columns(v)
		}
		if err != nil {
			return s.broken(err)
		}
	}
}

// end holds the list to be whole.
func (s *Source) end() error {
	if _, err := s.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return s.broken(errors.New("something follows it"))
	}
	if s.metadata == nil || s.Kind != "Table" && !strings.HasSuffix(s.Kind, "List") {
		return s.broken(errors.New("it is no list"))
	}
	return nil
}

func (s *Source) broken(err error) error {
	if s.in.left <= 0 {
		err = ErrTooLarge
	}
	if err == nil {
		err = errors.New("it is no JSON object")
	}
	return fmt.Errorf("the list of cluster %q cannot be read: %w", s.Cluster, err)
}

// bounded fails once left bytes were read.
type bounded struct {
	r    io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, ErrTooLarge
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
