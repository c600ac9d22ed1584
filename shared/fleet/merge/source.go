// Package merge unites the lists of several clusters while they arrive.
//
// Invariants:
//   - A Source buffers one object at a time, as text. Memory does not grow with the list.
//   - Objects are not decoded into types. Lists make three changes to the text of an object: the source annotation is
//     set, a Rewriter may replace values, and U+FFFD replaces invalid UTF-8. For watches, Object.With also adds fields.
//   - The output is well-formed JSON, whatever the input is.
//   - A list that breaks off is an error, never a shorter list.
package merge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// MaxObject is the maximum size in bytes of one object of a list. It also limits the list's other fields, before and
// after the objects. etcd's own limit for an object is 1.5 MB.
const MaxObject = 16 << 20

// ErrTooLarge is the error for a list in which an object, or the other fields, are larger than MaxObject.
var ErrTooLarge = fmt.Errorf("an object, or the list's other fields, are over %d MiB", MaxObject>>20)

// Metadata is the metadata of a list.
type Metadata struct {
	ResourceVersion    string `json:"resourceVersion,omitempty"`
	Continue           string `json:"continue,omitempty"`
	RemainingItemCount *int64 `json:"remainingItemCount,omitempty"`
}

// MaxContinue limits a list's continue token, in bytes of JSON, because clients send it in URLs.
const MaxContinue = 8 << 10

func (m *Metadata) checkSize() error {
	if data, err := json.Marshal(m.Continue); err != nil || len(data) > MaxContinue {
		return errors.Join(err, fmt.Errorf("its continue token is over %d KiB", MaxContinue>>10))
	}
	return nil
}

// maxKind limits kind and apiVersion, in bytes of JSON, because a watch stores them. Kubernetes allows fewer.
const maxKind = 512

// IsTable reports whether an object of that kind is a Table. A custom resource may be called Table, too.
func IsTable(kind, apiVersion string) bool {
	return kind == "Table" && strings.HasPrefix(apiVersion, "meta.k8s.io/")
}

// Kind reads the value of kind or apiVersion.
func Kind(v []byte) (string, error) {
	if len(v) > maxKind {
		return "", fmt.Errorf("its kind or apiVersion is over %d bytes", maxKind)
	}
	var kind string
	err := json.Unmarshal(v, &kind)
	return kind, err
}

// Source reads one list. It is not safe for concurrent use.
type Source struct {
	Cluster          string // the cluster that sends the list
	Kind, APIVersion string // "" until they are read
	Columns          []Column
	Read             int // the number of objects read

	in       *scan.Reader
	metadata *Metadata
	inItems  bool
	hasItems bool
}

// Open reads a list up to its objects. API servers send the metadata of a list of custom resources after the objects.
func Open(cluster string, r io.Reader) (*Source, error) {
	s := &Source{Cluster: cluster, in: scan.NewReader(r, MaxObject)}
	s.in.Scanner.Field = "metadata"
	s.in.Expect('{')
	return s, s.fields(false)
}

// LimitReads limits the bytes that one read from the cluster requests. Reads of a longer object may request more.
func (s *Source) LimitReads(bytes int) { s.in.LimitReads(bytes) }

// IsTable reports whether the list is a Table.
func (s *Source) IsTable() bool { return IsTable(s.Kind, s.APIVersion) || s.Columns != nil }

// HasFormOf reports whether both lists have the same kind, as far as it is read, and are both Tables or both not.
func (s *Source) HasFormOf(other *Source) bool {
	sameKind := s.Kind == "" || other.Kind == "" || s.Kind == other.Kind && s.APIVersion == other.APIVersion
	return s.IsTable() == other.IsTable() && sameKind
}

// Metadata returns the list's metadata, or nil until it is read.
func (s *Source) Metadata() *Metadata { return s.metadata }

// Whole reports whether the list was read to its end, so that Read counts all of its objects.
func (s *Source) Whole() bool { return s.metadata != nil && !s.inItems }

// Next returns the next object or row, which is valid until the next call. It returns io.EOF after the whole list.
func (s *Source) Next() (Object, error) {
	if !s.inItems {
		return Object{}, io.EOF
	}
	s.in.Limit(MaxObject)
	if s.in.Peek() == ']' {
		s.in.Expect(']')
		s.inItems = false
		if err := s.fields(true); err != nil {
			return Object{}, err
		}
		if s.inItems {
			return Object{}, s.wrapError(errors.New("it has a duplicate field items"))
		}
		return Object{}, io.EOF
	}
	if s.Read > 0 {
		s.in.Expect(',')
	}
	v := s.in.ExpectValue('{')
	if s.in.Err() != nil {
		return Object{}, s.wrapError(s.in.Err())
	}
	s.Read++
	return Object{v, s.in.Scanner.Found}, nil
}

// Drain reads the rest of the list and adds its objects to Read.
func (s *Source) Drain() error {
	for {
		if _, err := s.Next(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// fields reads the fields of the list, up to the objects or to the end of the list. hasBefore is true after the first
// field.
func (s *Source) fields(hasBefore bool) error {
	for ; ; hasBefore = true {
		if s.in.Peek() == '}' {
			s.in.Expect('}')
			return s.end()
		}
		if hasBefore {
			s.in.Expect(',')
		}
		key := s.in.FieldName()
		if first := s.in.Peek(); key == "items" || key == "rows" {
			switch {
			case s.in.Err() != nil:
			case key == "rows" && s.Columns == nil:
				return s.wrapError(errors.New("a table's rows came before its columns"))
			case first == '[':
				s.in.Expect('[')
				s.inItems, s.hasItems = true, true
				return nil
			case first != 'n': // null is an empty list
				return s.wrapError(errors.New("its items are not an array"))
			}
			s.hasItems = true
		}
		v, err := s.in.Value(), s.in.Err()
		if err != nil {
			return s.wrapError(err)
		}
		switch key {
		case "kind":
			s.Kind, err = Kind(v)
		case "apiVersion":
			s.APIVersion, err = Kind(v)
		case "metadata":
			s.metadata = &Metadata{
				ResourceVersion: scan.Text(scan.Lookup(v, "resourceVersion")), Continue: scan.Text(scan.Lookup(v, "continue")),
			}
			if n, err := strconv.ParseInt(string(scan.Lookup(v, "remainingItemCount")), 10, 64); err == nil {
				s.metadata.RemainingItemCount = &n
			}
			err = s.metadata.checkSize()
		case "columnDefinitions":
			s.Columns, err = Columns(v)
		}
		if err != nil {
			return s.wrapError(err)
		}
	}
}

// end returns an error unless the list is complete. A list without the field items must be a Table, or have a kind that
// ends in List. With the field items, any kind is valid, because a CustomResourceDefinition chooses the kind of its
// lists.
func (s *Source) end() error {
	if s.in.Peek(); s.in.Err() == nil {
		return s.wrapError(errors.New("something follows it"))
	} else if s.in.Err() != io.EOF { //nolint:errorlint // scan.Reader returns io.EOF itself
		return s.wrapError(s.in.Err())
	}
	if s.metadata == nil || !s.hasItems && !s.IsTable() && !strings.HasSuffix(s.Kind, "List") {
		return s.wrapError(errors.New("it is not a list"))
	}
	return nil
}

// wrapError returns the error for a list that cannot be read. It never wraps io.EOF, which means a complete list.
func (s *Source) wrapError(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	case errors.Is(err, scan.ErrTooLarge):
		err = ErrTooLarge
	}
	return fmt.Errorf("the list of cluster %q cannot be read: %w", s.Cluster, err)
}
