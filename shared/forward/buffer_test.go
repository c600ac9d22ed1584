package forward

import (
	"io"
	"slices"
	"testing"
)

// bursts is a body whose reads end with a burst of so many bytes, as those of TLS records and frames do.
type bursts struct {
	of   []int
	left int // bytes of the current burst
}

func (b *bursts) Read(p []byte) (int, error) {
	if b.left == 0 {
		if len(b.of) == 0 {
			return 0, io.EOF
		}
		b.left, b.of = b.of[0], b.of[1:]
	}
	n := min(len(p), b.left)
	b.left -= n
	return n, nil
}

type sizes []int

func (s *sizes) Write(p []byte) (int, error) {
	*s = append(*s, len(p))
	return len(p), nil
}

// TestCopyBodySizes fails if a client got nothing before the first 64 KiB of a list. It also fails if the records of a
// stream were written in more pieces than before.
func TestCopyBodySizes(t *testing.T) {
	const k = 1 << 10
	for name, tt := range map[string]struct{ bursts, want []int }{
		"list":    {[]int{200 * k}, []int{k, 8 * k, 16 * k, 32 * k, 64 * k, 64 * k, 15 * k}},
		"records": {slices.Repeat([]int{16 * k}, 3), []int{k, 8 * k, 7 * k, k, 15 * k, k, 15 * k}},
		"events":  {slices.Repeat([]int{20 * k}, 4), []int{k, 8 * k, 11 * k, k, 16 * k, 3 * k, k, 19 * k, 20 * k}},
		"small":   {[]int{500, 500, 500}, []int{500, 500, 500}},
	} {
		t.Run(name, func(t *testing.T) {
			var got sizes
			copyBody(t.Context(), &got, &bursts{of: tt.bursts}, func() {}, func() error { return nil })
			if !slices.Equal(got, tt.want) {
				t.Errorf("it writes pieces of %d bytes, want %d", got, tt.want)
			}
		})
	}
}

// TestBufferRelease fails if a stream kept a large buffer while it is idle, or after its end.
func TestBufferRelease(t *testing.T) {
	for name, release := range map[string]func(*buffer){
		"short read": func(b *buffer) { b.recordRead(shrinkBelow - 1) },
		"end":        (*buffer).release,
	} {
		b := newBuffer()
		for range 3 {
			b.recordRead(len(b.space()))
		}
		if b.recordRead(shrinkBelow); b.large == nil {
			t.Errorf("%s: a read of a full TLS record released the large buffer", name)
		}
		if release(b); b.large != nil {
			t.Errorf("%s: it keeps the large buffer", name)
		}
	}
}
