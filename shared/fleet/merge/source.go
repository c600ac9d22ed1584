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
	"strconv"
	"strings"

	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// MaxObject bounds one object of a list, and what precedes the objects, in bytes. (etcd takes 1.5 MB.)
const MaxObject = 16 << 20

// ErrTooLarge is for a list with something in it that is over MaxObject.
var ErrTooLarge = fmt.Errorf("an object is over %d MiB", MaxObject>>20)

// Metadata is a list's.
type Metadata struct {
	ResourceVersion    string `json:"resourceVersion,omitempty"`
	Continue           string `json:"continue,omitempty"`
	RemainingItemCount *int64 `json:"remainingItemCount,omitempty"`
}

// MaxContinue bounds a list's continue token, in bytes of JSON, since the client carries it in URLs. (kube-apiserver's own are under 1 KiB.)
const MaxContinue = 8 << 10

func (m *Metadata) bounded() error {
	if data, err := json.Marshal(m.Continue); err != nil || len(data) > MaxContinue {
		return errors.Join(err, fmt.Errorf("its continue token is over %d KiB", MaxContinue>>10))
	}
	return nil
}

// maxKind bounds what names a kind, in bytes of JSON, since it is kept for as long as a watch is. (The longest that Kubernetes takes is 63, and an
// apiVersion 317.)
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

// Source is one list, being read. It is not safe for concurrent use.
type Source struct {
	Cluster          string // whose list it is
	Kind, APIVersion string // "" as long as they have not come
	Columns          []Column
	Read             int // objects so far

	in       *scan.Reader
	metadata *Metadata
	inItems  bool
	hasItems bool
}

// Open reads a list up to its objects. kube-apiserver sends the list's metadata before them for its own kinds, and after them for those
// of CustomResourceDefinitions.
func Open(cluster string, r io.Reader) (*Source, error) {
	s := &Source{Cluster: cluster, in: scan.NewReader(r, MaxObject)}
	s.in.Scanner.Field = "metadata"
	s.in.Take('{')
	return s, s.fields(false)
}

// IsTable reports whether the list is a Table.
func (s *Source) IsTable() bool { return IsTable(s.Kind, s.APIVersion) || s.Columns != nil }

// Metadata is the list's metadata; nil as long as it has not come.
func (s *Source) Metadata() *Metadata { return s.metadata }

// Whole reports whether the list was read to its end, so that Read counts all of its objects.
func (s *Source) Whole() bool { return s.metadata != nil && !s.inItems }

// Next returns the list's next object, or row, which is valid until the next call; io.EOF after the whole list was read.
func (s *Source) Next() (Object, error) {
	if !s.inItems {
		return Object{}, io.EOF
	}
	s.in.Limit(MaxObject)
	if s.in.Peek() == ']' {
		s.in.Take(']')
		s.inItems = false
		if err := s.fields(true); err != nil {
			return Object{}, err
		}
		if s.inItems {
			return Object{}, s.broken(errors.New("it has a duplicate field items"))
		}
		return Object{}, io.EOF
	}
	if s.Read > 0 {
		s.in.Take(',')
	}
	v := s.in.Beginning('{')
	if s.in.Err() != nil {
		return Object{}, s.broken(s.in.Err())
	}
	s.Read++
	return Object{v, s.in.Scanner.Found}, nil
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

// fields reads the list's own fields, up to its objects or its end; some says that others came before.
func (s *Source) fields(some bool) error {
	for ; ; some = true {
		if s.in.Peek() == '}' {
			s.in.Take('}')
			return s.end()
		}
		if some {
			s.in.Take(',')
		}
		key := s.in.Name()
		if first := s.in.Peek(); key == "items" || key == "rows" {
			switch {
			case s.in.Err() != nil:
			case key == "rows" && s.Columns == nil:
				return s.broken(errors.New("a table's rows came before its columns"))
			case first == '[':
				s.in.Take('[')
				s.inItems, s.hasItems = true, true
				return nil
			case first != 'n': // null: none
				return s.broken(errors.New("its items are not an array"))
			}
			s.hasItems = true
		}
		v, err := s.in.Value(), s.in.Err()
		if err != nil {
			return s.broken(err)
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
			err = s.metadata.bounded()
		case "columnDefinitions":
			s.Columns, err = Columns(v)
		}
		if err != nil {
			return s.broken(err)
		}
	}
}

// end returns an error unless the list is whole. A CustomResourceDefinition may give its lists any kind.
func (s *Source) end() error {
	if s.in.Peek(); s.in.Err() == nil {
		return s.broken(errors.New("something follows it"))
	} else if s.in.Err() != io.EOF { //nolint:errorlint // a reader's own, which ends it, is that one
		return s.broken(s.in.Err())
	}
	if s.metadata == nil || !s.hasItems && !s.IsTable() && !strings.HasSuffix(s.Kind, "List") {
		return s.broken(errors.New("it is not a list"))
	}
	return nil
}

func (s *Source) broken(err error) error {
	switch {
	case errors.Is(err, io.EOF): // which would say that the list is whole
		err = io.ErrUnexpectedEOF
	case errors.Is(err, scan.ErrTooLarge):
		err = ErrTooLarge
	}
	return fmt.Errorf("the list of cluster %q cannot be read: %w", s.Cluster, err)
}
