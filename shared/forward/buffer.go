package forward

import "sync"

const (
	// smallBuffer is the size in bytes of the buffer of an idle stream. Thousands of streams may be idle.
	smallBuffer = 1 << 10
	// firstLarge is the maximum size of the first read into a large buffer. Each full read doubles it. A read over
	// HTTP/1.1 waits for as much as it may, but the client should not wait for 64 KiB before its first bytes.
	firstLarge = 8 << 10
	// A read below shrinkBelow bytes, the size of a full TLS record, releases the large buffer.
	shrinkBelow = 16 << 10
)

var smallBuffers = sync.Pool{New: func() any { b := make([]byte, smallBuffer); return &b }}

// buffer is the read buffer of one direction. It grows when a read fills it, and shrinks when a read is short.
type buffer struct {
	small, large *[]byte
	size         int // maximum size of the next read into large; it never shrinks
}

func newBuffer() *buffer { return &buffer{small: smallBuffers.Get().(*[]byte), size: firstLarge} }

func (b *buffer) space() []byte {
	if b.large != nil {
		return (*b.large)[:b.size]
	}
	return *b.small
}

// recordRead resizes the buffer after a read of n bytes. The slice returned by space must not be used afterwards.
func (b *buffer) recordRead(n int) {
	switch {
	case b.large == nil && n == smallBuffer:
		b.large = buffers.Get().(*[]byte)
	case b.large == nil:
	case n == b.size:
		b.size = min(2*b.size, len(*b.large))
	case n < shrinkBelow:
		buffers.Put(b.large)
		b.large = nil
	}
}

func (b *buffer) release() {
	b.recordRead(0)
	smallBuffers.Put(b.small)
}
