package members

import "context"

// maxDecoding is the maximum number of large bodies and objects that are decoded at the same time, since each may use
// 130 MiB. That number keeps a core busy. Bodies of at most smallBody bytes need no slot.
const (
	maxDecoding = 4
	smallBody   = 16 << 10
)

// AcquireDecodeSlot blocks until n bytes may be decoded. Call release when the decoded value is no longer referenced.
// It fails if the caller has gone.
func (c *Client) AcquireDecodeSlot(n int) (release func(), err error) {
	if n <= smallBody {
		return func() {}, nil
	}
	select {
	case c.decoding <- struct{}{}:
		return func() { <-c.decoding }, nil
	case <-c.Context().Done():
		return nil, context.Cause(c.Context())
	}
}
