package forward

import (
	"bytes"
	"slices"
	"testing"
)

type sizes []int

func (s *sizes) Write(p []byte) (int, error) {
	*s = append(*s, len(p))
	return len(p), nil
}

// TestLongResponseBeginsEarly fails if a client got nothing before the first 64 KiB of a list. A body over HTTP/1.1
// fills the buffer of a read.
func TestLongResponseBeginsEarly(t *testing.T) {
	body := bytes.NewReader(make([]byte, 200<<10))
	var got sizes
	copyBody(t.Context(), &got, body, func() {}, func() error { return nil })
	if want := (sizes{1 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 64 << 10, 15 << 10}); !slices.Equal(got, want) {
		t.Errorf("it writes pieces of %d bytes, want %d", got, want)
	}
}

// TestBufferShrinks fails if thousands of streams kept large buffers after a burst, or if one that is read to its end
// kept one.
func TestBufferShrinks(t *testing.T) {
	b := newBuffer()
	for range 5 {
		b.recordRead(len(b.space()))
	}
	if n := len(b.space()); n != 64<<10 {
		t.Errorf("after full reads, it has %d bytes", n)
	}
	b.recordRead(shrinkBelow)
	if n := len(b.space()); n != 64<<10 {
		t.Errorf("after a read of a TLS record, it has %d bytes", n)
	}
	b.recordRead(shrinkBelow - 1)
	if n := len(b.space()); n != smallBuffer || b.large != nil {
		t.Errorf("after a short read, it has %d bytes", n)
	}
}
