// Package scan finds where the parts of JSON text end, without decoding them. It serves responses of hundreds of
// megabytes that mostly pass unchanged.
//
// Invariants:
//   - Scanner.Value accepts exactly the grammar of encoding/json, which Kubernetes decodes with: equal names and
//     invalid UTF-8 are allowed.
//   - Reader returns UTF-8. It replaces invalid bytes with U+FFFD, as decoders do.
//   - Depth and the length of numbers have no limit. A Scanner uses one byte for each open array or object, so the
//     text bounds its memory.
//   - A text may arrive in pieces of any size. Only names that are compared are scanned twice.
package scan

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
)

var (
	// ErrShort is for text that ends before what it holds. With more it may be well-formed.
	ErrShort = errors.New("it ends too early")
	// ErrSyntax is for text that is no JSON.
	ErrSyntax = errors.New("it is not JSON")
)

// Scanner finds the ends of values. The zero value is one. It is not safe for concurrent use.
type Scanner struct {
	// Field is looked for among the fields of each value that is an object; "" for none.
	Field string
	// Found is what was found of it in the last value.
	Found Found

	next  state
	digit digit  // of the number that a piece of the text ended in
	seen  int    // up to where the text was looked at
	open  []byte // what closes what is open, the innermost last
	name  int    // where the value's present field has its name
	value int    // and its value
}

// Found says how often a field is there, and where the value is of the last.
type Found struct{ Times, At, End int }

// state says what is next, after white space where that may be.
type state uint8

const (
	aValue state = iota
	anElement
	aName
	aField
	aColon
	aComma
	inName
	inString
	inNumber
)

// maxIdleDepth bounds the memory that a Scanner keeps after a deep value, in bytes.
const maxIdleDepth = 4 << 10

// Reset prepares the scanner for another value.
func (s *Scanner) Reset() {
	s.Found = Found{}
	if cap(s.open) > maxIdleDepth {
		s.open = nil
	}
	s.next, s.seen, s.open = aValue, 0, s.open[:0]
}

// Value returns the end of the value that text begins with. After ErrShort, call it with the same text and what
// follows; otherwise call Reset. A number at the end of the text may continue, so Value returns ErrShort.
func (s *Scanner) Value(text []byte) (end int, err error) {
	i, next := s.seen, s.next
	for i < len(text) {
		c := text[i]
		switch next {
		case aName, aField: // aField: or the object's end
			if c == '"' {
				if len(s.open) == 1 {
					s.name = i
				}
				if i = str(text, i+1); i < 0 {
					return s.stop(i, inName)
				}
				next = aColon
				continue
			}
			if c != '}' || next == aName {
				goto space
			}
			s.open = s.open[:len(s.open)-1]
			i++
		case aColon:
			if c != ':' {
				goto space
			}
			i++
			next = aValue
			continue
		case aValue, anElement: // anElement: or the array's end
			if len(s.open) == 1 && next == aValue {
				s.value = i
			}
			switch c {
			case '"':
				if i = str(text, i+1); i < 0 {
					return s.stop(i, inString)
				}
			case '{', '[':
				i++
				s.open = append(s.open, c+2) // "}" and "]"
				if next = aField; c == '[' {
					next = anElement
				}
				continue
			case ']':
				if next != anElement {
					return 0, ErrSyntax
				}
				s.open = s.open[:len(s.open)-1]
				i++
			case ' ', '\n', '\t', '\r':
				i++
				continue
			case 't', 'f', 'n':
				if i = literal(text, i); i < 0 {
					return s.stop(i, next)
				}
			default:
				s.digit = aSign
				next = inNumber
				continue
			}
		case aComma:
			switch c {
			case ',':
				i++
				if next = aName; s.open[len(s.open)-1] == ']' {
					next = aValue
				}
				continue
			case s.open[len(s.open)-1]:
				s.open = s.open[:len(s.open)-1]
				i++
			default:
				goto space
			}
		case inName:
			if i = str(text, i); i < 0 {
				return s.stop(i, inName)
			}
			next = aColon
			continue
		case inString:
			if i = str(text, i); i < 0 {
				return s.stop(i, inString)
			}
		case inNumber:
			if i = s.digit.end(text, i); i < 0 {
				return s.stop(i, inNumber)
			}
		}
		// A value has ended.
		switch len(s.open) {
		case 0:
			return i, nil
		case 1:
			s.see(text, i)
		}
		next = aComma
		continue
	space:
		after := Space(text, i)
		if after == i {
			return 0, ErrSyntax
		}
		i = after
	}
	return s.stop(^i, next)
}

// stop leaves the text at what is next there, before which at is: see short.
func (s *Scanner) stop(at int, next state) (int, error) {
	if at == wrong {
		return 0, ErrSyntax
	}
	s.seen, s.next = short(at), next
	return 0, ErrShort
}

// see tells the value's field that has just ended.
func (s *Scanner) see(text []byte, end int) {
	if s.Field == "" || s.open[0] != '}' {
		return
	}
	if f := (Field{Name: text[s.name:str(text, s.name+1)]}); f.Is(s.Field) {
		s.Found = Found{s.Found.Times + 1, s.value, end}
	}
}

// wrong stands for the end of what has none, and a negative number for that of what is not all there: short gives from where to look again.
const wrong = math.MinInt

func short(i int) int { return ^i }

// Space returns where the white space ends that begins at text[at], if there is any.
func Space(text []byte, at int) int {
	for at < len(text) && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r') {
		at++
	}
	return at
}

// every is a byte, eight times.
const every = 0x0101010101010101

// str returns the end of a string of which the rest begins at i.
//
// Eight bytes at a time it looks for one that ends it, escapes the next or may not be there. With the bit 2 changed the quote, 0x22, is 0x20, and what
// may not be there stays below that: less than 0x21 is either, and nothing else. Subtraction leaves the highest bit in a byte that was less; those
// above the first such byte may have it wrongly, since it has borrowed from them.
func str(text []byte, i int) int {
	for {
		for ; i+8 <= len(text); i += 8 {
			w := binary.LittleEndian.Uint64(text[i:])
			low, escape := w^every*2, w^every*'\\'
			if found := ((low-every*(' '+1))&^low | (escape-every)&^escape) & (every << 7); found != 0 {
				i += bits.TrailingZeros64(found) / 8
				break
			}
		}
		for i < len(text) && text[i] >= ' ' && text[i] != '"' && text[i] != '\\' { // the last few
			i++
		}
		if i == len(text) {
			return short(i)
		}
		switch text[i] {
		case '"':
			return i + 1
		case '\\':
			if i = escape(text, i); i < 0 {
				return i
			}
		default:
			return wrong
		}
	}
}

// escape returns the end of what begins with a backslash at i.
func escape(text []byte, i int) int {
	if i+1 == len(text) {
		return short(i)
	}
	switch text[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		for j := i + 2; j < i+6; j++ {
			if j == len(text) {
				return short(i)
			}
			if c := text[j]; (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
				return wrong
			}
		}
		return i + 6
	}
	return wrong
}

// literal returns the end of true, false or null at i.
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
			return short(i)
		}
		if text[i+j] != want[j] {
			return wrong
		}
	}
	return i + len(want)
}

// digit is what comes next in a number. The names say what came before.
type digit uint8

const (
	aSign digit = iota // nothing, so a sign may follow
	aMinus
	aZero
	anInteger
	aPoint
	aFraction
	anE
	anESign
	anExponent
)

// end returns the end of a number whose rest begins at text[i]. At the end of the text, d says how to continue.
func (d *digit) end(text []byte, i int) int {
	for ; i < len(text); i++ {
		next := d.after(text[i])
		if next == aSign {
			switch *d {
			case aZero, anInteger, aFraction, anExponent:
				return i
			}
			return wrong
		}
		*d = next
	}
	return short(i)
}

// The states after a digit, a point and an e. Where nothing is given, the number does not continue.
var (
	afterDigit = [...]digit{
		aSign: anInteger, aMinus: anInteger, anInteger: anInteger, aPoint: aFraction, aFraction: aFraction,
		anE: anExponent, anESign: anExponent, anExponent: anExponent,
	}
	afterPoint = [...]digit{aZero: aPoint, anInteger: aPoint, anExponent: 0}
	afterE     = [...]digit{aZero: anE, anInteger: anE, aFraction: anE, anExponent: 0}
)

// after returns the state after the byte c; aSign if c does not continue the number.
func (d *digit) after(c byte) digit {
	switch before := *d; {
	case c == '0' && before <= aMinus:
		return aZero
	case '0' <= c && c <= '9':
		return afterDigit[before]
	case c == '.':
		return afterPoint[before]
	case c == 'e' || c == 'E':
		return afterE[before]
	case c == '-' && before == aSign:
		return aMinus
	case (c == '+' || c == '-') && before == anE:
		return anESign
	}
	return aSign
}
