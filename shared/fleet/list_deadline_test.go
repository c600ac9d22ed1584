package fleet_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// stalledClient is a connection whose client reads the first bytes of a body only.
type stalledClient struct {
	http.ResponseWriter
	t              *testing.T
	accepted, sent int
	deadline       time.Time
}

func (c *stalledClient) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *stalledClient) SetWriteDeadline(t time.Time) error {
	c.deadline = t
	return http.NewResponseController(c.ResponseWriter).SetWriteDeadline(t)
}

func (c *stalledClient) Write(p []byte) (int, error) {
	if c.sent+len(p) <= c.accepted {
		c.sent += len(p)
		return c.ResponseWriter.Write(p)
	}
	if c.deadline.IsZero() {
		c.t.Errorf("after %d bytes, a write has no deadline", c.sent)
	} else {
		<-time.After(time.Until(c.deadline))
	}
	return 0, os.ErrDeadlineExceeded
}

// TestListWritesHaveDeadlines fails if a client that stops reading could block a goroutine for ever. After the last
// object, the compressor and net/http still write.
func TestListWritesHaveDeadlines(t *testing.T) {
	begun, ended := make(chan *stalledClient, 1), make(chan *stalledClient, 1)
	h, _ := newFleet(t, gatewaytest.Options{
		Configure: func(c *gateway.Config) {
			c.ClientTimeout = time.Second
		},
		Wrap: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c := <-begun
				c.ResponseWriter = w
				defer func() { ended <- c }()
				next.ServeHTTP(c, r)
			})
		},
	}, respond(http.StatusOK, podsLike(3*minCompressed)))
	list := func(t *testing.T, encoding string, accepted int) *stalledClient {
		t.Helper()
		begun <- &stalledClient{t: t, accepted: accepted}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+"/fleet/api/v1/pods", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Close = true // on a connection of an earlier request, the transport would send the request again
		req.Header.Set("Accept-Encoding", encoding)
		if resp, err := h.HTTPClient.Do(req); err == nil { // else the response broke off before its header was sent
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		c := <-ended
		if c.deadline.IsZero() {
			t.Error("net/http writes the end of the response without a deadline")
		}
		return c
	}
	for _, encoding := range []string{"identity", "gzip"} {
		size := list(t, encoding, math.MaxInt).sent
		for _, accepted := range []int{0, size - 1} {
			t.Run(fmt.Sprintf("%s, %d of %d bytes", encoding, accepted, size), func(t *testing.T) {
				if c := list(t, encoding, accepted); c.sent > accepted {
					t.Errorf("%d bytes were sent", c.sent)
				}
			})
		}
	}
}
