package forward

import "sync"

const (
	// smallBuffer is the size in bytes of what a stream waits in: thousands of streams are open and silent.
	smallBuffer = 4 << 10
	// littleRead is less than frames and TLS records hold while much comes.
	littleRead = 16 << 10
)

var smallBuffers = sync.Pool{New: func() any { b := make([]byte, smallBuffer); return &b }}

// buffer is what one direction of a call reads into: small until a read fills it, then large until a read brings little.
type buffer struct{ small, large *[]byte }

func newBuffer() *buffer { return &buffer{small: smallBuffers.Get().(*[]byte)} }

// space is where the next read goes.
func (b *buffer) space() []byte {
	if b.large != nil {
		return *b.large
	}
	return *b.small
}

// took says how much the last read brought, once that is not needed any more.
func (b *buffer) took(n int) {
	switch {
	case b.large == nil && n == smallBuffer:
		b.large = buffers.Get().(*[]byte)
	case b.large != nil && n < littleRead:
		buffers.Put(b.large)
		b.large = nil
	}
}

// release gives the space back.
func (b *buffer) release() {
	b.took(0)
	smallBuffers.Put(b.small)
}
