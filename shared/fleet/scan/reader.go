package scan

import (
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// pieceSize is how much is read at once, unless a value is larger. Each piece of an answer by HTTP/2 is acknowledged, which takes longer than to
// read it if it is small.
const pieceSize = 64 << 10

// ErrTooLarge is for a text that is over the Reader's limit.
var ErrTooLarge = errors.New("it is too large")

// Reader takes apart a text that comes in. After an error it gives nothing more. It is not safe for concurrent use.
type Reader struct {
	// Scanner finds the end of values, and says what it found of the last.
	Scanner Scanner

	r    io.Reader
	text []byte
	at   int   // of text, what is next
	left int64 // bytes that may be read
	last error // of r
	err  error
}

// NewReader returns a Reader that reads so many bytes of r at most, until Limit says otherwise.
func NewReader(r io.Reader, limit int64) *Reader { return &Reader{r: r, left: limit} }

// Limit has the Reader read so many more bytes at most.
func (r *Reader) Limit(bytes int64) { r.left = bytes }

// Err is what went wrong: io.EOF where the text has ended, io.ErrUnexpectedEOF within a value, ErrSyntax, ErrTooLarge, or what the text's reader says.
func (r *Reader) Err() error { return r.err }

// Peek returns the next byte that is no white space, 0 where none follows.
func (r *Reader) Peek() byte {
	for r.err == nil {
		if r.at = Space(r.text, r.at); r.at < len(r.text) {
			return r.text[r.at]
		}
		r.more()
	}
	return 0
}

// Take takes the next byte that is no white space, which must be that one.
func (r *Reader) Take(want byte) {
	if c := r.Peek(); r.err == nil && c != want {
		r.err = ErrSyntax
	}
	r.at++
}

// Value takes the next value. It is valid until more is taken.
func (r *Reader) Value() []byte {
	r.Peek()
	r.Scanner.Reset()
	for ; r.err == nil; r.more() {
		end, err := r.Scanner.Value(r.text[r.at:])
		if err == nil {
			v := r.text[r.at : r.at+end]
			r.at += end
			return v
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

// Beginning takes the next value, which must begin so.
func (r *Reader) Beginning(want byte) []byte {
	if c := r.Peek(); r.err == nil && c != want {
		r.err = ErrSyntax
	}
	return r.Value()
}

// Name takes the name of a field, and the colon after it.
func (r *Reader) Name() string {
	quoted := r.Beginning('"')
	if r.err != nil {
		return ""
	}
	name, _ := jsontext.AppendUnquote(nil, quoted) // bytes that are no text are none in a name that is looked for
	r.Take(':')
	return string(name)
}

// more reads more text.
func (r *Reader) more() {
	switch {
	case r.err != nil:
	case r.last != nil:
		r.err = r.last
	case r.left <= 0:
		r.err = ErrTooLarge
	default:
		r.read()
	}
}

func (r *Reader) read() {
	rest := r.text[r.at:]
	if size := cap(r.text); len(rest) == size || size > 8*pieceSize && len(rest) < pieceSize { // what a large value took is not kept
		r.text = make([]byte, 0, max(pieceSize, 2*len(rest)))
	}
	r.text, r.at = append(r.text[:0], rest...), 0
	free := r.text[len(r.text):cap(r.text)]
	n, err := r.r.Read(free[:min(int64(len(free)), r.left)])
	r.text, r.left, r.last = r.text[:len(r.text)+n], r.left-int64(n), err
}
