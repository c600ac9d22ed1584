package scan

import (
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// A fast response is read in large pieces, because HTTP/2 acknowledges each. The many idle watches need small buffers.
const (
	maxReadSize = 64 << 10
	minReadSize = 4 << 10
)

// ErrTooLarge is the error for text beyond the Reader's limit.
var ErrTooLarge = errors.New("it is too large")

// Reader reads a stream of JSON values. After an error it returns nothing more. It is not safe for concurrent use.
type Reader struct {
	Scanner Scanner // its Found describes the last value

	r    io.Reader
	most int // bytes that one read asks for, unless a value is longer
	text []byte
	at   int   // text[at:] is not yet returned
	left int64 // the number of bytes that may still be read
	full bool  // the last read filled the buffer
	last error // the error of the last read
	err  error
}

// NewReader returns a Reader of at most limit bytes from r.
func NewReader(r io.Reader, limit int64) *Reader {
	return &Reader{r: r, most: maxReadSize, left: limit}
}

// LimitReads makes each read ask for at most this number of bytes, unless a value is longer. Many readers of one
// response then need less memory.
func (r *Reader) LimitReads(bytes int) { r.most = bytes }

// Limit replaces the limit by this number of bytes from the current position.
func (r *Reader) Limit(bytes int64) { r.left = bytes - int64(len(r.text)-r.at) }

// Err returns the first error: io.EOF at the end of the text, io.ErrUnexpectedEOF within a value, ErrSyntax,
// ErrTooLarge, or an error of the underlying reader.
func (r *Reader) Err() error { return r.err }

// Peek returns the next byte that is no white space, or 0 at the end of the text.
func (r *Reader) Peek() byte {
	for r.err == nil {
		if r.at = Space(r.text, r.at); r.at < len(r.text) {
			return r.text[r.at]
		}
		r.more()
	}
	return 0
}

// Expect skips white space and one byte. If that byte is not want, it sets ErrSyntax.
func (r *Reader) Expect(want byte) {
	if c := r.Peek(); r.err == nil && c != want {
		r.err = ErrSyntax
	}
	r.at++
}

// Value returns the next value, in UTF-8. It is valid until the next call.
func (r *Reader) Value() []byte {
	r.Peek()
	r.Scanner.Reset()
	for ; r.err == nil; r.more() {
		end, err := r.Scanner.Value(r.text[r.at:])
		if err == nil {
			v := r.text[r.at : r.at+end]
			r.at += end
			return r.repairValue(v)
		}
		if errors.Is(err, ErrSyntax) {
			r.err = err
		}
	}
	if errors.Is(r.err, io.EOF) && r.at < len(r.text) {
		r.err = io.ErrUnexpectedEOF
	}
	return nil
}

// repairValue returns a value in UTF-8. It adjusts Scanner.Found to the repaired text.
func (r *Reader) repairValue(v []byte) []byte {
	out := Repair(v)
	if len(out) != len(v) {
		r.Scanner.Reset()
		if _, err := r.Scanner.Value(append(out, ' ')); err != nil { // a number ends with the space
			r.err = err
		}
	}
	return out
}

// ExpectValue returns the next value. If its first byte is not want, it sets ErrSyntax.
func (r *Reader) ExpectValue(want byte) []byte {
	if c := r.Peek(); r.err == nil && c != want {
		r.err = ErrSyntax
	}
	return r.Value()
}

// FieldName returns the name of the next field and skips the colon after it.
func (r *Reader) FieldName() string {
	quoted := r.ExpectValue('"')
	if r.err != nil {
		return ""
	}
	name, _ := jsontext.AppendUnquote(nil, quoted) // names that callers compare with are valid UTF-8
	r.Expect(':')
	return string(name)
}

func (r *Reader) more() {
	switch {
	case r.err != nil:
	case r.last != nil:
		if r.err = r.last; r.at == len(r.text) { // the reader may outlive its text
			r.text, r.at = nil, 0
		}
	case r.left <= 0:
		r.err = ErrTooLarge
	default:
		r.read()
	}
}

func (r *Reader) read() {
	rest, size := r.text[r.at:], cap(r.text)
	switch {
	case len(rest) == size, r.full && size < r.most:
		size = max(minReadSize, 2*size)
	case !r.full && len(rest) == 0, size > 8*maxReadSize && len(rest) < maxReadSize: // release a large buffer
		size = max(minReadSize, 2*len(rest))
	}
	switch {
	case size != cap(r.text):
		r.text, r.at = append(make([]byte, 0, size), rest...), 0
	case r.at > 0: // otherwise a large value in many pieces would be moved for each
		r.text, r.at = r.text[:copy(r.text, rest)], 0
	}
	free := r.text[len(r.text):size]
	free = free[:min(int64(len(free)), r.left)]
	n, err := r.r.Read(free)
	r.text, r.left, r.full, r.last = r.text[:len(r.text)+n], r.left-int64(n), n == len(free), err
}
