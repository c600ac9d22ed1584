package gateway

import (
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
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
				w := &countingWriter{ResponseWriter: c}
				w.deadlines, _ = newDeadlines(c, httptest.NewRequest(http.MethodGet, "/", nil), time.Minute)
				n, err := w.Write(make([]byte, size))
				if n != tt.want || c.Body.Len() != n || w.sent.Load() != int64(n) || (err == nil) != (n == size) {
					t.Errorf("%d bytes, of which the client got %d, and %v; want %d", n, c.Body.Len(), err, tt.want)
				}
			})
		})
	}
}

// deadlineRecorder is a client's connection that counts the deadlines that are set.
type deadlineRecorder struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
}

func (c *deadlineRecorder) SetWriteDeadline(t time.Time) error {
	c.deadlines = append(c.deadlines, t)
	return nil
}

// TestWriteDeadlines fails if a call over HTTP/2 set several deadlines, each of which wakes a goroutine. It also fails
// if there were none, because a client that reads nothing would then occupy a slot for ever.
func TestWriteDeadlines(t *testing.T) {
	const large = 4 * responseBuffer
	for name, tt := range map[string]struct {
		protocol int
		writes   []int
		pause    time.Duration // before each write
		isStream bool
		want     []time.Duration // deadlines since the start; 0 for none
	}{
		"HTTP/2, small":   {protocol: 2, writes: []int{100}, want: []time.Duration{time.Minute}},
		"HTTP/2, no body": {protocol: 2, want: []time.Duration{time.Minute}},
		"HTTP/2, at once": {protocol: 2, writes: []int{large, large}, want: []time.Duration{time.Minute}},
		"HTTP/2, slow": {protocol: 2, writes: []int{large, large}, pause: 10 * time.Second,
			want: []time.Duration{70 * time.Second, 80 * time.Second}},
		"HTTP/2, a stream": {protocol: 2, writes: []int{large}, isStream: true},
		"HTTP/1.1, small":  {protocol: 1, writes: []int{100}, want: []time.Duration{time.Minute}},
		"HTTP/1.1, late": {protocol: 1, writes: []int{100}, pause: 10 * time.Second,
			want: []time.Duration{time.Minute, 70 * time.Second}},
		"HTTP/1.1, a stream": {protocol: 1, writes: []int{large}, isStream: true,
			want: []time.Duration{time.Minute, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				c := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.ProtoMajor = tt.protocol
				w := &countingWriter{ResponseWriter: c}
				w.deadlines, _ = newDeadlines(c, r, time.Minute)
				if tt.isStream {
					w.deadlines.beginStream()
				}
				for _, n := range tt.writes {
					time.Sleep(tt.pause)
					_, _ = w.Write(make([]byte, n))
				}
				w.end()
				var got []time.Duration
				for _, d := range c.deadlines {
					if d.IsZero() {
						got = append(got, 0)
					} else {
						got = append(got, d.Sub(start))
					}
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("deadlines after %v, want %v", got, tt.want)
				}
			})
		})
	}
}
