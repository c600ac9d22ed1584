// Package scan finds where the parts of JSON text end, without decoding them.
//
// Invariants:
//   - Scanner.Value accepts exactly the grammar of encoding/json: equal names and invalid UTF-8 are allowed.
//   - Reader returns UTF-8. It replaces invalid bytes with U+FFFD, as decoders do.
//   - Depth and the length of numbers have no limit. A Scanner uses one byte for each open array or object.
//   - A text may arrive in pieces of any size.
package scan

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
)

var (
	// ErrShort is the error for text that ends within a value. With more text the value may be well-formed.
	ErrShort = errors.New("it ends too early")
	// ErrSyntax is the error for text that is no JSON.
	ErrSyntax = errors.New("it is not JSON")
)

// Scanner finds the ends of values. Its zero value is ready to use. It is not safe for concurrent use.
type Scanner struct {
	Field string // name to find in each value that is an object; "" finds none
	Found Found  // describes the fields with that name in the last value

	next   state
	number numberState // the state of a number that is cut at the end of the text
	seen   int         // text[:seen] has been scanned
	open   []byte      // the closing brackets of all open arrays and objects, the innermost last
	name   int         // where the name of the value's current field begins
	value  int         // where the value of that field begins
}

// Found is the number of fields with the name, and the position of the last one's value.
type Found struct{ Times, At, End int }

// state is the part of the grammar that follows. In the states up to expectCommaOrEnd, white space may come first.
type state uint8

const (
	expectValue state = iota
	expectElementOrEnd
	expectName
	expectNameOrEnd
	expectColon
	expectCommaOrEnd
	inName
	inString
	inNumber
	valueEnded
)

const maxIdleDepth = 4 << 10 // bytes that a Scanner keeps after a deep value

// Reset prepares the scanner for another value.
func (s *Scanner) Reset() {
	s.Found = Found{}
	if cap(s.open) > maxIdleDepth {
		s.open = nil
	}
	s.next, s.seen, s.open = expectValue, 0, s.open[:0]
}

// Value returns the end of the value at the start of text. After ErrShort, call it with the same text and its
// continuation. Otherwise call Reset. A number at the end of the text may continue, so Value returns ErrShort.
func (s *Scanner) Value(text []byte) (end int, err error) {
	i, next := s.seen, s.next
	for i < len(text) {
		if text[i] <= ' ' && next <= expectCommaOrEnd {
			if after := Space(text, i); after > i {
				i = after
				continue
			}
		}
		switch next {
		case expectValue, expectElementOrEnd:
			i, next = s.valueStart(text, i, next)
		case expectName, expectNameOrEnd:
			i, next = s.field(text, i, next)
		case expectColon:
			if text[i] != ':' {
				return 0, ErrSyntax
			}
			i++
			next = expectValue
		case expectCommaOrEnd:
			closing := s.open[len(s.open)-1]
			switch text[i] {
			case closing:
				i, next = s.close(i)
			case ',':
				i++
				switch next = expectName; {
				case closing == ']':
					next = expectValue
				case i < len(text) && text[i] == '"':
					i, next = s.field(text, i, next)
				}
			default:
				return 0, ErrSyntax
			}
		default:
			i, next = s.rest(text, i, next)
		}
		if i < 0 {
			return s.stop(i, next)
		}
		if next != valueEnded {
			continue
		}
		switch len(s.open) {
		case 0:
			return i, nil
		case 1:
			s.recordField(text, i)
		}
		next = expectCommaOrEnd
	}
	return s.stop(incomplete(i), next)
}

// valueStart scans a string, a number, a literal, an opening bracket, or the closing bracket of an empty array. Like
// field and rest, it returns the end and the next state. If the part is cut or invalid, it returns a negative
// number and the state in which to continue.
func (s *Scanner) valueStart(text []byte, i int, next state) (int, state) {
	if len(s.open) == 1 && next == expectValue {
		s.value = i
	}
	switch text[i] {
	case '"':
		if i = stringEnd(text, i+1); i < 0 {
			return i, inString
		}
		return i, valueEnded
	case '{':
		s.open = append(s.open, '}')
		return i + 1, expectNameOrEnd
	case '[':
		s.open = append(s.open, ']')
		return i + 1, expectElementOrEnd
	case ']':
		if next != expectElementOrEnd {
			return invalid, next
		}
		return s.close(i)
	case 't', 'f', 'n':
		if i = literal(text, i); i < 0 {
			return i, next
		}
		return i, valueEnded
	}
	s.number = numberStart
	return s.rest(text, i, inNumber)
}

// field scans the name of a field. In compact text, it also scans the colon and the start of the value. Steps of Value
// for each of them would need more time.
func (s *Scanner) field(text []byte, i int, next state) (int, state) {
	if text[i] != '"' {
		if text[i] == '}' && next == expectNameOrEnd {
			return s.close(i)
		}
		return invalid, next
	}
	if len(s.open) == 1 {
		s.name = i
	}
	if i = stringEnd(text, i+1); i < 0 {
		return i, inName
	}
	if i+1 < len(text) && text[i] == ':' && text[i+1] > ' ' {
		return s.valueStart(text, i+1, expectValue)
	}
	return i, expectColon
}

func (s *Scanner) rest(text []byte, i int, next state) (int, state) {
	if next == inNumber {
		i = s.number.end(text, i)
	} else {
		i = stringEnd(text, i)
	}
	switch {
	case i < 0:
		return i, next
	case next == inName:
		return i, expectColon
	}
	return i, valueEnded
}

func (s *Scanner) close(i int) (int, state) {
	s.open = s.open[:len(s.open)-1]
	return i + 1, valueEnded
}

// stop stores where and in which state to continue. at is the result of incomplete, or invalid.
func (s *Scanner) stop(at int, next state) (int, error) {
	if at == invalid {
		return 0, ErrSyntax
	}
	s.seen, s.next = incomplete(at), next
	return 0, ErrShort
}

func (s *Scanner) recordField(text []byte, end int) {
	if s.Field == "" || s.open[0] != '}' {
		return
	}
	if f := (Field{Name: text[s.name:stringEnd(text, s.name+1)]}); f.Is(s.Field) {
		s.Found = Found{s.Found.Times + 1, s.value, end}
	}
}

const invalid = math.MinInt // returned instead of an end if the text is not JSON

// incomplete encodes i as a negative number: the text ended within a value, and scanning continues at i. It is its own
// inverse.
func incomplete(i int) int { return ^i }

// Space returns the end of the white space at text[at], or at if there is none.
func Space(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r') {
		at++
	}
	return at
}

const everyByte = 0x0101010101010101 // multiplied by a byte, eight of that byte

// stringEnd returns the end of the string whose rest begins at i. It examines eight bytes at a time for a quote, a
// backslash or a control character. With bit 1 inverted, the quote 0x22 becomes 0x20, and control characters stay
// below. Subtraction of 0x21 sets the highest bit of these, as subtraction of 1 does for a backslash that became 0.
// Bytes of 0x80 and more are masked out. A borrow begins only at a byte that matches. So the lowest marked one matches.
func stringEnd(text []byte, i int) int {
	for {
		for ; i+8 <= len(text); i += 8 {
			w := binary.LittleEndian.Uint64(text[i : i+8])
			low, escape := w^everyByte*2-everyByte*(' '+1), w^everyByte*'\\'-everyByte
			if found := (low | escape) &^ w & (everyByte << 7); found != 0 {
				if i += bits.TrailingZeros64(found) / 8; text[i] == '"' {
					return i + 1
				}
				break
			}
		}
		for i < len(text) && text[i] >= ' ' && text[i] != '"' && text[i] != '\\' { // fewer than eight bytes are left
			i++
		}
		if i == len(text) {
			return incomplete(i)
		}
		switch text[i] {
		case '"':
			return i + 1
		case '\\':
			if i = escape(text, i); i < 0 {
				return i
			}
		default:
			return invalid
		}
	}
}

func escape(text []byte, i int) int {
	if i+1 == len(text) {
		return incomplete(i)
	}
	switch text[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		for j := i + 2; j < i+6; j++ {
			if j == len(text) {
				return incomplete(i)
			}
			if c := text[j]; (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
				return invalid
			}
		}
		return i + 6
	}
	return invalid
}

func literal(text []byte, i int) int {
	want := "null"
	switch text[i] {
	case 't':
		want = "true"
	case 'f':
		want = "false"
	}
	for j := range len(want) {
		if i+j == len(text) {
			return incomplete(i)
		}
		if text[i+j] != want[j] {
			return invalid
		}
	}
	return i + len(want)
}

// numberState is the state within a number, named after the last character.
type numberState uint8

const (
	// numberStart means that there is no character yet. As a result of after, the number does not continue.
	numberStart numberState = iota
	aMinus
	aZero
	anInteger
	aPoint
	aFraction
	anE
	anESign
	anExponent
)

// end returns the end of a number whose rest begins at text[i]. If the text ends first, n is the state to continue in.
func (n *numberState) end(text []byte, i int) int {
	for ; i < len(text); i++ {
		next := n.after(text[i])
		if next == numberStart {
			switch *n {
			case aZero, anInteger, aFraction, anExponent:
				return i
			}
			return invalid
		}
		*n = next
	}
	return incomplete(i)
}

// The states after a digit, a point and an e. A missing entry is numberStart: the number does not continue. Each array
// has an entry for anExponent, the last state, so that every state is an index.
var (
	afterDigit = [...]numberState{
		numberStart: anInteger, aMinus: anInteger, anInteger: anInteger, aPoint: aFraction, aFraction: aFraction,
		anE: anExponent, anESign: anExponent, anExponent: anExponent,
	}
	afterPoint = [...]numberState{aZero: aPoint, anInteger: aPoint, anExponent: numberStart}
	afterE     = [...]numberState{aZero: anE, anInteger: anE, aFraction: anE, anExponent: numberStart}
)

// after returns numberStart if c does not continue the number.
func (n *numberState) after(c byte) numberState {
	switch before := *n; {
	case c == '0' && before <= aMinus:
		return aZero
	case '0' <= c && c <= '9':
		return afterDigit[before]
	case c == '.':
		return afterPoint[before]
	case c == 'e' || c == 'E':
		return afterE[before]
	case c == '-' && before == numberStart:
		return aMinus
	case (c == '+' || c == '-') && before == anE:
		return anESign
	}
	return numberStart
}
