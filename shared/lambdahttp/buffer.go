package lambdahttp

import (
	"encoding/base64"
	"net/http"
)

// buffer is the sink for responses that are one JSON document of at most limit bytes.
type buffer struct {
	ev    *Event
	multi bool // the request had multi-value headers
	limit int
	head  []byte
	body  []byte
	size  sizer
}

func (b *buffer) expect(status int, header http.Header, length int64) error {
	if length > int64(b.limit) {
		return ErrTooLarge
	}
	least := int(length) // as text, each byte needs at least one byte
	if header.Get("Content-Encoding") != "" {
		least = base64.StdEncoding.EncodedLen(least)
	}
	b.head = appendHead(nil, b.ev, b.multi, status, header)
	if b.overhead()+least > b.limit {
		return ErrTooLarge
	}
	b.body = make([]byte, 0, length)
	return nil
}

func (b *buffer) begin(status int, header http.Header) error {
	b.head = appendHead(nil, b.ev, b.multi, status, header)
	b.size.binary = header.Get("Content-Encoding") != ""
	return b.check()
}

func (b *buffer) Write(p []byte) (int, error) {
	if len(b.body)+len(p) > b.limit { // before it is copied
		return 0, b.tooLarge()
	}
	b.body = append(b.body, p...)
	b.size.scan(b.body)
	return len(p), b.check()
}

func (b *buffer) flush() error { return nil }

func (b *buffer) end() error {
	if b.size.scanned < len(b.body) { // the body ends within a rune
		b.size.binary = true
	}
	return b.check()
}

func (b *buffer) check() error {
	if b.total() > b.limit {
		return b.tooLarge()
	}
	return nil
}

// total returns the minimum size of the response. After end it is the size, or one byte more.
func (b *buffer) total() int { return b.overhead() + b.size.least(b.body) }

// overhead returns the size of everything but the body.
func (b *buffer) overhead() int { return len(b.head) + len(textStart) + len(bodyEnd) }

func (b *buffer) tooLarge() error {
	b.body = nil
	return ErrTooLarge
}

func (b *buffer) json() []byte {
	return b.size.appendBody(append(make([]byte, 0, b.total()), b.head...), b.body)
}
