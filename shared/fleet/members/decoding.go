package members

import "context"

// At most maxDecoding bodies over smallBody are decoded at once, since each may use 130 MiB.
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
