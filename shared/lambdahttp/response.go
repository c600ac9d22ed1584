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

// What the fronts take, in bytes of response JSON.
const (
	// ALBLimit is what an Application Load Balancer takes from a function. AWS says "1 MB"; this is the smaller reading.
	ALBLimit = 1_000_000
	// LambdaLimit is what Lambda itself takes in a buffered answer: 6 MiB.
	LambdaLimit = 6 << 20
)

// bodyEnd closes the envelope: the body is its last member.
const (
	textStart   = `"isBase64Encoded":false,"body":"`
	base64Start = `"isBase64Encoded":true,"body":"`
	bodyEnd     = `"}`
)

// appendHead appends the envelope of an answer up to the member that says how the body is encoded.
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

// appendSingle appends "headers" with one value a name: several are joined with a comma, which means the same for every
// header but Set-Cookie. Cookies have a member of their own in the HTTP API's format; in the ALB's single-value
// format only the last can be sent.
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

// appendString appends s quoted for JSON. Bytes that are not UTF-8 become U+FFFD, since JSON cannot hold them.
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

// sizer counts, while a body grows, how many bytes it takes in JSON.
type sizer struct {
	scanned int  // bytes of the body that were looked at; an unfinished rune is left for later
	escapes int  // of these, how many take two bytes as JSON text
	binary  bool // the body is no text
}

// scan looks at what was added to body since the last call.
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
			s.binary = true // could be escaped, in six bytes, but is a sign of binary data
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

// least is the size of the smaller encoding of what body holds so far. It never falls as body grows.
func (s *sizer) least(body []byte) int {
	encoded := base64.StdEncoding.EncodedLen(len(body))
	if s.binary {
		return encoded
	}
	return min(encoded, s.scanned+s.escapes)
}

// appendBody appends the body and the end of the envelope: as text if it is text and shorter so, else as base64.
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
