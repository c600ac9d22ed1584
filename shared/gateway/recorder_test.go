package gateway

import (
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// slowReader is a client that accepts rate bytes each second, in pieces of a kilobyte, until the write deadline.
type slowReader struct {
	*httptest.ResponseRecorder
	rate     int
	deadline time.Time
}

func (c *slowReader) SetWriteDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

func (c *slowReader) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		piece := min(1<<10, len(p)-n)
		accepted := time.Now().Add(time.Duration(piece) * time.Second / time.Duration(c.rate))
		if accepted.After(c.deadline) {
			<-time.After(time.Until(c.deadline))
			return n, os.ErrDeadlineExceeded
		}
		<-time.After(time.Until(accepted))
		_, _ = c.ResponseRecorder.Write(p[n : n+piece])
		n += piece
	}
	return len(p), nil
}

// A list that the fleet writes at once must not break off while a client on a slow line reads it.
func TestSlowReader(t *testing.T) {
	const size = 20 << 20
	for name, tt := range map[string]struct {
		rate int
		want int // accepted bytes
	}{
		"reads in time": {rate: 8 << 10, want: size},
		"too slow":      {rate: 1 << 10, want: 60 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &slowReader{ResponseRecorder: httptest.NewRecorder(), rate: tt.rate}
				w := &recorder{ResponseWriter: c}
				w.deadlines, _ = newDeadlines(c, nil, time.Minute)
				n, err := w.Write(make([]byte, size))
				if n != tt.want || c.Body.Len() != n || w.sent.Load() != int64(n) || (err == nil) != (n == size) {
					t.Errorf("%d bytes, of which the client got %d, and %v; want %d", n, c.Body.Len(), err, tt.want)
				}
			})
		})
	}
}
