package gateway

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusterpass/clusterpass/shared/status"
)

// caller is a connection that receives the parts of a body at their times and honours a read deadline.
type caller struct {
	http.ResponseWriter
	parts    []part
	sent     time.Time
	deadline time.Time
}

// part is a part of a body, which arrives after a delay.
type part struct {
	size  int
	after time.Duration
}

func (c *caller) SetReadDeadline(t time.Time) error {
	c.deadline = t
	return nil
}

func (c *caller) Read(p []byte) (int, error) {
	if len(c.parts) == 0 {
		return 0, io.EOF
	}
	comes := c.sent.Add(c.parts[0].after)
	if !c.deadline.IsZero() && comes.After(c.deadline) {
		<-time.After(time.Until(c.deadline))
		return 0, os.ErrDeadlineExceeded
	}
	<-time.After(time.Until(comes))
	n := min(len(p), c.parts[0].size)
	if c.parts[0].size -= n; c.parts[0].size == 0 {
		c.parts, c.sent = c.parts[1:], comes
	}
	return n, nil
}

func (*caller) Close() error { return nil }

func repeat(n int, p part) []part {
	parts := make([]part, n)
	for i := range parts {
		parts[i] = p
	}
	return parts
}

// A slow member must not shorten the client's time.
func TestBodyTimeout(t *testing.T) {
	for name, tt := range map[string]struct {
		parts  []part
		idle   time.Duration // between reads
		stream bool
		ends   time.Duration // when the read fails; 0 for never
	}{
		"at once":                          {parts: repeat(1, part{1 << 20, 0})},
		"never":                            {parts: repeat(1, part{1, time.Hour}), ends: time.Minute},
		"drop by drop":                     {parts: repeat(100, part{10, time.Second}), ends: time.Minute},
		"a part that is small and in time": {parts: repeat(5, part{10, 10 * time.Second})},
		"much, slowly":                     {parts: repeat(600, part{32 << 10, 5 * time.Second})},
		"much, then drop by drop": {
			parts: append(repeat(8, part{32 << 10, 0}), repeat(200, part{10, time.Second})...), ends: time.Minute,
		},
		"much, for a slow member": {parts: repeat(20, part{128 << 10, 0}), idle: 10 * time.Minute},
		"a stream":                {parts: repeat(5, part{1, time.Hour}), stream: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				c := &caller{parts: tt.parts, sent: start}
				b := &body{
					ReadCloser: c, conn: http.NewResponseController(c), timeout: time.Minute, isLimited: true, remaining: time.Minute,
				}
				if tt.stream {
					b.limit(false, 0)
				}
				var err error
				for buf := make([]byte, 64<<10); err == nil; time.Sleep(tt.idle) {
					_, err = b.Read(buf)
				}
				late := status.From(err).Reason == status.RequestTimeout
				if late != (tt.ends > 0) || !late && !errors.Is(err, io.EOF) {
					t.Fatalf("%v after %s", err, time.Since(start))
				}
				if waited := time.Since(start); late && waited != tt.ends {
					t.Errorf("waited for %s, want %s", waited, tt.ends)
				}
				if !c.deadline.IsZero() {
					t.Error("a deadline stays on the connection")
				}
				b.end()
				if whole := !late; c.deadline.IsZero() != whole {
					t.Errorf("the deadline for the rest of the body is %v", c.deadline)
				}
			})
		})
	}
}

// A refused client must not occupy a connection by sending its body slowly. One that sends fast must get the response.
func TestRefusedBodyTimeout(t *testing.T) {
	for name, tt := range map[string]struct {
		parts []part
		ends  time.Duration // when refuse returns
	}{
		"at once":            {parts: repeat(1, part{maxRefusedBody, 0})},
		"never":              {parts: repeat(1, part{1, time.Hour}), ends: discardTimeout},
		"drop by drop":       {parts: repeat(100, part{10, 100 * time.Millisecond}), ends: discardTimeout},
		"much, and in time":  {parts: repeat(32, part{128 << 10, 400 * time.Millisecond}), ends: 12800 * time.Millisecond},
		"much, then nothing": {parts: []part{{progressSize, 0}, {1, time.Hour}}, ends: discardTimeout},
		"much, then drop by drop": {
			parts: append(repeat(1, part{progressSize, 0}), repeat(1000, part{10, time.Second / 2})...), ends: discardTimeout,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				c := &caller{ResponseWriter: httptest.NewRecorder(), parts: tt.parts, sent: start}
				r := httptest.NewRequest(http.MethodPost, "/clusters/m/api/v1/pods", nil)
				r.Body = c
				w := &countingWriter{ResponseWriter: c}
				w.deadlines, r.Body = newDeadlines(c, r, time.Minute)
				r.ContentLength = -1
				writeRefusal(w, r, status.New(status.Forbidden, "", "refused"), status.Write)
				if waited := time.Since(start); waited != tt.ends {
					t.Errorf("the body was read for %s, want %s", waited, tt.ends)
				}
			})
		})
	}
}
