package forward

import "sync"

const (
	// smallBuffer is the size in bytes of the buffer of an idle stream. Thousands of streams may be idle.
	smallBuffer = 4 << 10
	// shrinkBelow is the size in bytes of a read below which a large buffer is given up. It exceeds a frame and a TLS
	// record.
	shrinkBelow = 16 << 10
)

var smallBuffers = sync.Pool{New: func() any { b := make([]byte, smallBuffer); return &b }}

// buffer is the read buffer of one direction. It grows when a read fills it, and shrinks when a read is short.
type buffer struct{ small, large *[]byte }

func newBuffer() *buffer { return &buffer{small: smallBuffers.Get().(*[]byte)} }

// space returns the slice for the next read.
func (b *buffer) space() []byte {
	if b.large != nil {
		return *b.large
	}
	return *b.small
}

// recordRead resizes the buffer after a read of n bytes. The slice returned by space must not be used afterwards.
func (b *buffer) recordRead(n int) {
	switch {
	case b.large == nil && n == smallBuffer:
		b.large = buffers.Get().(*[]byte)
	case b.large != nil && n < shrinkBelow:
		buffers.Put(b.large)
		b.large = nil
	}
}

// release returns the buffer to its pool.
func (b *buffer) release() {
	b.recordRead(0)
	smallBuffers.Put(b.small)
}
