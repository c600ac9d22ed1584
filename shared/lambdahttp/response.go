package lambdahttp

import (
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of the fronts, in bytes of the response's JSON.
const (
	// ALBLimit is the limit of an Application Load Balancer for a function. AWS documents "1 MB". This is the smaller
	// interpretation.
	ALBLimit = 1_000_000
	// LambdaLimit is Lambda's limit for a buffered response: 6 MiB.
	LambdaLimit = 6 << 20
)

// bodyEnd ends the envelope, whose last member is the body.
const (
	textStart   = `"isBase64Encoded":false,"body":"`
	base64Start = `"isBase64Encoded":true,"body":"`
	bodyEnd     = `"}`
)

// appendHead appends the envelope of a response up to the member with the body's encoding.
func appendHead(b []byte, ev *Event, multi bool, status int, header http.Header) []byte {
	b = append(b, `{"statusCode":`...)
	b = strconv.AppendInt(b, int64(status), 10)
	if ev.Kind == ALB {
		text := http.StatusText(status)
		if text == "" {
			text = "Status"
		}
		b = append(b, `,"statusDescription":"`...)
		b = strconv.AppendInt(b, int64(status), 10)
		b = append(b, ' ')
		b = append(b, text...)
		b = append(b, '"')
	}
	switch {
	case ev.Kind == HTTP:
		b = appendSingle(b, header, true)
		if cookies := header["Set-Cookie"]; len(cookies) > 0 {
			b = append(b, `,"cookies":`...)
			b = appendStrings(b, cookies)
		}
	case multi:
		b = append(b, `,"multiValueHeaders":`...)
		b = appendMulti(b, header)
	default:
		b = appendSingle(b, header, false)
	}
	return append(b, ',')
}

// appendMulti appends {"Name":["value",...],...}, sorted.
func appendMulti(b []byte, header http.Header) []byte {
	b = append(b, '{')
	for i, k := range slices.Sorted(maps.Keys(header)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, k)
		b = append(b, ':')
		b = appendStrings(b, header[k])
	}
	return append(b, '}')
}

// appendSingle appends "headers" with one value for each name. Several values are joined with commas, which is
// equivalent for every header but Set-Cookie. The HTTP API's format has a separate member for cookies. The ALB's
// single-value format can send only the last one.
func appendSingle(b []byte, header http.Header, cookiesApart bool) []byte {
	b = append(b, `,"headers":{`...)
	first := true
	for _, k := range slices.Sorted(maps.Keys(header)) {
		v := strings.Join(header[k], ", ")
		if k == "Set-Cookie" {
			if cookiesApart {
				continue
			}
			v = header[k][len(header[k])-1]
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = appendString(b, k)
		b = append(b, ':')
		b = appendString(b, v)
	}
	return append(b, '}')
}

func appendStrings(b []byte, list []string) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, s)
	}
	return append(b, ']')
}

// appendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	b = appendEscaped(b, strings.ToValidUTF8(s, "\uFFFD"))
	return append(b, '"')
}

// appendEscaped appends valid UTF-8 with JSON's escapes.
func appendEscaped[T string | []byte](b []byte, s T) []byte {
	const hex = "0123456789abcdef"
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(b, s[start:]...)
}

// sizer computes the size of a growing body in JSON.
type sizer struct {
	scanned int  // scanned bytes of the body; an incomplete rune is scanned later
	escapes int  // scanned bytes that need two bytes as JSON text
	binary  bool // the body is not text
}

// scan processes the bytes that were added to body since the last call.
func (s *sizer) scan(body []byte) {
	i, escapes := s.scanned, s.escapes
	for !s.binary && i < len(body) {
		c := body[i]
		switch {
		case c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\':
			i++
		case c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t':
			i, escapes = i+1, escapes+1
		case c < ' ':
			s.binary = true // an escape is possible, but the byte indicates binary data
		default:
			r, n := utf8.DecodeRune(body[i:])
			if r == utf8.RuneError && n == 1 {
				s.binary = utf8.FullRune(body[i:])
				s.scanned, s.escapes = i, escapes
				return
			}
			i += n
		}
	}
	s.scanned, s.escapes = i, escapes
}

// least returns the size of the smaller encoding of the present body. It never decreases while body grows.
func (s *sizer) least(body []byte) int {
	encoded := base64.StdEncoding.EncodedLen(len(body))
	if s.binary {
		return encoded
	}
	return min(encoded, s.scanned+s.escapes)
}

// appendBody appends the body and the end of the envelope. It encodes the body as text if that is possible and smaller,
// and otherwise as base64.
func (s *sizer) appendBody(b, body []byte) []byte {
	if !s.binary && s.scanned == len(body) && s.scanned+s.escapes <= base64.StdEncoding.EncodedLen(len(body)) {
		b = append(b, textStart...)
		b = appendEscaped(b, body)
	} else {
		b = append(b, base64Start...)
		b = base64.StdEncoding.AppendEncode(b, body)
	}
	return append(b, bodyEnd...)
}
