package scan

import (
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// How much is read at once, unless a value is larger: the most where that comes, since each piece of an answer by HTTP/2 is acknowledged, which takes
// longer than to read it if it is small; and the least where nothing comes, since many watches wait.
const (
	mostAtOnce  = 64 << 10
	leastAtOnce = 4 << 10
)

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
	full bool  // r had as much as was asked for
	last error // of r
	err  error
}

// NewReader returns a Reader that takes so many bytes of r at most, until Limit says otherwise.
func NewReader(r io.Reader, limit int64) *Reader { return &Reader{r: r, left: limit} }

// Limit has the Reader take so many more bytes at most.
func (r *Reader) Limit(bytes int64) { r.left = bytes - int64(len(r.text)-r.at) }

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

// Value returns the next value, in UTF-8. It is valid until the next call.
func (r *Reader) Value() []byte {
	r.Peek()
	r.Scanner.Reset()
	for ; r.err == nil; r.more() {
		end, err := r.Scanner.Value(r.text[r.at:])
		if err == nil {
			v := r.text[r.at : r.at+end]
			r.at += end
			return r.repaired(v)
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

// repaired returns a value in UTF-8, for which Scanner.Found is true.
func (r *Reader) repaired(v []byte) []byte {
	out := Repair(v)
	if len(out) != len(v) {
		r.Scanner.Reset()
		if _, err := r.Scanner.Value(append(out, ' ')); err != nil { // a number ends with the space
			r.err = err
		}
	}
	return out
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
	rest, size := r.text[r.at:], cap(r.text)
	switch {
	case len(rest) == size, r.full && size < mostAtOnce:
		size = max(leastAtOnce, 2*size)
	case !r.full && len(rest) == 0, size > 8*mostAtOnce && len(rest) < mostAtOnce: // what was needed once is not kept
		size = max(leastAtOnce, 2*len(rest))
	}
	switch {
	case size != cap(r.text):
		r.text, r.at = append(make([]byte, 0, size), rest...), 0
	case r.at > 0: // what stands at the beginning already is not moved: a large value may come in many pieces
		r.text, r.at = r.text[:copy(r.text, rest)], 0
	}
	free := r.text[len(r.text):size]
	free = free[:min(int64(len(free)), r.left)]
	n, err := r.r.Read(free)
	r.text, r.left, r.full, r.last = r.text[:len(r.text)+n], r.left-int64(n), n == len(free), err
}
