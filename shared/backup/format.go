package backup

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// A backup is JSON, one record a line. The first record is the header, and the last one the end.
const (
	formatName = "clusterpass-backup"
	// Version is the version of the format that this package writes and reads.
	Version = 1
	// maxLine is enough for a secret with all labels and for an object of maximum size, in base64.
	maxLine = 512 << 10
)

// Header identifies a backup.
type Header struct {
	Format  string    `json:"format"`
	Version int       `json:"version"`
	ID      string    `json:"id"` // of this backup
	Created time.Time `json:"created"`
	Program string    `json:"program"` // the version of the program that wrote it
	Store   string    `json:"store"`   // the address of the stores
}

// Counts are the numbers of records, including later records of the same object or secret.
type Counts struct {
	Objects int `json:"objects"` // written or deleted
	Secrets int `json:"secrets"`
}

// Record is one step of a restore. Exactly one field is set.
type Record struct {
	Object  *objects.Object // Key and Value to write
	Deleted string          // the key of an object that an earlier record wrote
	Secret  *secrets.Secret // Name, Labels and Value to write
}

// line is a record in the file.
type line struct {
	Header  *Header     `json:"header,omitempty"`
	Object  *objectLine `json:"object,omitempty"`
	Deleted string      `json:"deleted,omitempty"`
	Secret  *secretLine `json:"secret,omitempty"`
	End     *Counts     `json:"end,omitempty"`
}

type objectLine struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

type secretLine struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	Value  []byte            `json:"value"`
}

// Writer writes the records of a backup. It is not safe for concurrent use.
type Writer struct {
	out    *json.Encoder
	Counts Counts
}

// NewWriter writes the header to w. It sets the format and version of h.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	h.Format, h.Version = formatName, Version
	out := &Writer{out: json.NewEncoder(w)}
	return out, out.out.Encode(line{Header: &h})
}

// PutObject writes an object.
func (w *Writer) PutObject(key string, value []byte) error {
	w.Counts.Objects++
	return w.out.Encode(line{Object: &objectLine{key, value}})
}

// DeleteObject records that an object no longer exists.
func (w *Writer) DeleteObject(key string) error {
	w.Counts.Objects++
	return w.out.Encode(line{Deleted: key})
}

// PutSecret writes a secret.
func (w *Writer) PutSecret(name string, labels map[string]string, v secrets.Value) error {
	w.Counts.Secrets++
	return w.out.Encode(line{Secret: &secretLine{name, labels, v.Reveal()}})
}

// Close writes the end, without which a reader refuses the backup. It does not close the underlying writer.
func (w *Writer) Close() error { return w.out.Encode(line{End: &w.Counts}) }

// Read calls onRecord for every record of a backup, in order, and returns an error of onRecord unchanged. The other
// errors mean that the backup is damaged or of another version. They quote no value.
func Read(r io.Reader, onRecord func(Record) error) (Header, Counts, error) {
	lines := bufio.NewReaderSize(r, maxLine)
	h, err := readHeader(lines)
	if err != nil {
		return h, Counts{}, err
	}
	var counts Counts
	for {
		l, err := readLine(lines)
		if err != nil {
			return h, counts, damaged(err)
		}
		if l.End != nil {
			return h, counts, checkEnd(lines, *l.End, counts)
		}
		record, err := l.record(&counts)
		if err != nil {
			return h, counts, damaged(err)
		}
		if err := onRecord(record); err != nil {
			return h, counts, err
		}
	}
}

func readHeader(lines *bufio.Reader) (Header, error) {
	first, err := readLine(lines)
	if err != nil {
		return Header{}, damaged(err)
	}
	h := first.Header
	if h == nil || h.Format != formatName || h.ID == "" {
		return Header{}, damaged(errors.New("its first record is not the header of a backup"))
	}
	if h.Version != Version {
		return *h, fmt.Errorf("read the backup: its format has version %d, and this program reads version %d; use the "+
			"version of clusterpass that made it: %.64q", h.Version, Version, h.Program)
	}
	return *h, nil
}

func checkEnd(lines *bufio.Reader, want, got Counts) error {
	if got != want {
		return damaged(fmt.Errorf("it has %d objects and %d secrets, but should have %d and %d", got.Objects, got.Secrets,
			want.Objects, want.Secrets))
	}
	_, err := lines.ReadByte()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		err = errors.New("it continues after its end")
	}
	return damaged(err)
}

// readLine returns a line with exactly one field.
func readLine(r *bufio.Reader) (*line, error) {
	text, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("a record has more than %d bytes", maxLine)
	case errors.Is(err, io.EOF):
		return nil, errors.New("its end is missing")
	case err != nil:
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var l line
	if decoder.Decode(&l) != nil || decoder.More() {
		return nil, errors.New("a record cannot be decoded") // the decoder's error could quote a value
	}
	set := 0
	for _, isSet := range []bool{l.Header != nil, l.Object != nil, l.Deleted != "", l.Secret != nil, l.End != nil} {
		if isSet {
			set++
		}
	}
	if set != 1 {
		return nil, fmt.Errorf("a record has %d parts, want 1", set)
	}
	return &l, nil
}

// record validates what the stores would refuse, so that a restore does not fail halfway.
func (l *line) record(counts *Counts) (Record, error) {
	switch {
	case l.Object != nil:
		counts.Objects++
		o := objects.Object{Key: l.Object.Key, Value: l.Object.Value}
		if err := errors.Join(checkKey(o.Key), objects.ValidValue(o.Value)); err != nil {
			return Record{}, err
		}
		return Record{Object: &o}, nil
	case l.Deleted != "":
		counts.Objects++
		return Record{Deleted: l.Deleted}, checkKey(l.Deleted)
	case l.Secret != nil:
		counts.Secrets++
		s := &secrets.Secret{
			Meta: secrets.Meta{Name: l.Secret.Name, Labels: l.Secret.Labels}, Value: secrets.NewValue(l.Secret.Value),
		}
		err := errors.Join(secrets.ValidName(s.Name), secrets.ValidLabels(s.Labels), secrets.ValidValue(s.Value))
		if err != nil {
			return Record{}, err
		}
		return Record{Secret: s}, nil
	}
	return Record{}, errors.New("it has two headers")
}

func checkKey(key string) error {
	if err := objects.ValidKey(key); err != nil {
		return err
	}
	if !moves(key) {
		return fmt.Errorf("object %.128q is of a kind that this program does not know", key)
	}
	return nil
}
