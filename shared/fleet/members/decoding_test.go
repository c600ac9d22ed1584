package members

import (
	"context"
	"errors"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
)

// TestDecodeSlots fails if a few callers could fill the memory with large bodies, or if small bodies waited for them.
func TestDecodeSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := NewPool(Config{})
		clientOf := func(ctx context.Context) *Client {
			return pool.Client(Caller{Request: httptest.NewRequestWithContext(ctx, "POST", "/", nil)})
		}
		client := clientOf(t.Context())
		begun, end := make(chan struct{}, 3*maxDecoding), make(chan struct{})
		var all sync.WaitGroup
		for range 3 * maxDecoding {
			all.Go(func() {
				release, err := client.AcquireDecodeSlot(smallBody + 1)
				if err != nil {
					t.Error(err)
					return
				}
				defer release()
				begun <- struct{}{}
				<-end
			})
		}
		synctest.Wait()
		if len(begun) != maxDecoding {
			t.Errorf("%d bodies are decoded, want %d", len(begun), maxDecoding)
		}
		if _, err := client.AcquireDecodeSlot(smallBody); err != nil {
			t.Errorf("a small body: %v", err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := clientOf(gone).AcquireDecodeSlot(smallBody + 1); !errors.Is(err, context.Canceled) {
			t.Errorf("a client that has gone: %v", err)
		}
		close(end)
		all.Wait()
	})
}
