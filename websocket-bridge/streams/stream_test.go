package streams

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/websocket-bridge/frames"
)

type hijackable struct {
	http.ResponseWriter
	conn net.Conn
}

func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.conn, nil, nil }

func open(t *testing.T, cfg Config, kind Kind) *Stream {
	t.Helper()
	s, err := New(cfg, prometheus.NewRegistry()).Open(t.Context(), Info{kind, "m", "alice"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(nil) })
	return s
}

func switched(t *testing.T, s *Stream, protocol string) (carried, client net.Conn) {
	t.Helper()
	client, near := net.Pipe()
	conn, _, err := http.NewResponseController(s.ResponseWriter(hijackable{httptest.NewRecorder(), near})).Hijack()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(); _ = near.Close() })
	return conn.(forward.Switcher).Switch(protocol, conn), client
}

// masked returns a client's control frame, with a mask of zeros.
func masked(opcode byte, payload string) string {
	return string([]byte{0x80 | opcode, 0x80 | byte(len(payload)), 0, 0, 0, 0}) + payload
}

func TestDataKeepsAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{IdleTimeout: time.Minute}, Exec)
		body := s.Body(io.NopCloser(strings.NewReader(strings.Repeat("x", 100))))
		out := s.ResponseWriter(httptest.NewRecorder())
		for i := range 100 {
			time.Sleep(59 * time.Second)
			if i%2 == 0 {
				_, _ = body.Read(make([]byte, 1))
			} else {
				_, _ = out.Write([]byte("x"))
			}
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if err := context.Cause(s.Context()); err != nil {
			t.Fatalf("ended while it was busy: %v", err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if err := context.Cause(s.Context()); !errors.Is(err, errIdle) {
			t.Errorf("ended for %v", err)
		}
	})
}

// TestPingsKeepNoStream: a silent websocket is pinged, and still counts as idle.
func TestPingsKeepNoStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{IdleTimeout: 55 * time.Second, PingPeriod: 10 * time.Second}, Exec)
		carried, client := switched(t, s, forward.WebSocket)
		var arrived strings.Builder
		go func() { _, _ = io.Copy(&arrived, carried) }()
		pings := 0
		go func() {
			ping := frames.Control(frames.Ping, pingPayload)
			for got := make([]byte, len(ping)); ; pings++ {
				if _, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, ping) {
					_, _ = io.Copy(io.Discard, client) // the close frame
					return
				}
				_, _ = io.WriteString(client, masked(frames.Pong, string(pingPayload))+masked(frames.Pong, "of the client"))
			}
		}()
		time.Sleep(54 * time.Second)
		synctest.Wait()
		if want := strings.Repeat(masked(frames.Pong, "of the client"), 5); pings != 5 || arrived.String() != want ||
			s.Context().Err() != nil {
			t.Errorf("%d pings; the member got %q; %v", pings, arrived.String(), s.Context().Err())
		}
		time.Sleep(time.Second + closeTimeout)
		synctest.Wait()
		if err := context.Cause(s.Context()); !errors.Is(err, errIdle) {
			t.Errorf("ended for %v", err)
		}
	})
}

// TestPingThatFails: a client that cannot be pinged is gone, even if its connection is not read.
func TestPingThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{PingPeriod: 10 * time.Second}, Exec)
		_, client := switched(t, s, forward.WebSocket)
		_ = client.Close()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if err := s.Context().Err(); err != nil {
			t.Fatalf("ended before: %v", err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if err := context.Cause(s.Context()); !errors.Is(err, context.Canceled) {
			t.Errorf("ended for %v", err)
		}
	})
}

// TestSPDYPingsKeepNoStream: SPDY pings pass in any pieces and do not reset the idle timeout.
func TestSPDYPingsKeepNoStream(t *testing.T) {
	const ping, data = "\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x01", "\x00\x00\x00\x01\x00\x00\x00\x03abc"
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Config{IdleTimeout: time.Minute}, Exec)
		carried, client := switched(t, s, forward.SPDY)
		var up, down strings.Builder
		go func() { _, _ = io.Copy(&up, carried) }()
		go func() { _, _ = io.Copy(&down, client) }()
		pings := func(n int) {
			for range n { // 5 s each
				_, _ = io.WriteString(client, ping[:5])
				_, _ = io.WriteString(carried, ping[:9])
				time.Sleep(5 * time.Second)
				_, _ = io.WriteString(client, ping[5:])
				_, _ = io.WriteString(carried, ping[9:])
			}
		}
		for _, side := range []io.Writer{client, carried} {
			pings(11)
			_, _ = io.WriteString(side, data)
		}
		time.Sleep(55 * time.Second)
		synctest.Wait()
		if err := context.Cause(s.Context()); err != nil {
			t.Fatalf("ended for %v, 55 s after data", err)
		}
		want := strings.Repeat(ping, 11)
		if up.String() != want+data+want || down.String() != want+want+data {
			t.Errorf("what passed is not what was sent: up %q, down %q", up.String(), down.String())
		}
		pings(1)
		synctest.Wait()
		if err := context.Cause(s.Context()); !errors.Is(err, errIdle) {
			t.Errorf("a minute with only pings ended for %v", err)
		}
	})
}

// TestUnknownEventsAreCut fails if a watch looks complete although it may have ended within an event.
func TestUnknownEventsAreCut(t *testing.T) {
	for contentType, isComplete := range map[string]bool{"application/json": true, "application/yaml": false} {
		t.Run(contentType, func(t *testing.T) {
			s := open(t, Config{}, Watch)
			w := s.ResponseWriter(httptest.NewRecorder())
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(http.StatusOK)
			_, _ = io.WriteString(w, "{}\n")
			s.End(errTooLong)
			<-s.Context().Done()
			err := context.Cause(s.Context())
			if !errors.Is(err, errTooLong) || errors.Is(err, forward.ErrFinished) != isComplete {
				t.Errorf("ended for %v, complete is not %v", err, isComplete)
			}
		})
	}
}

// stalledConn is the connection of a client that no longer reads. Its buffer is not full, so only a flush fails.
type stalledConn struct{ http.ResponseWriter }

func (stalledConn) SetWriteDeadline(time.Time) error { return nil }

func (stalledConn) FlushError() error { return os.ErrDeadlineExceeded }

func TestStallInAFlush(t *testing.T) {
	s := open(t, Config{StallTimeout: time.Minute}, Logs)
	w := s.ResponseWriter(stalledConn{httptest.NewRecorder()})
	if _, err := io.WriteString(w, "a line"); err != nil {
		t.Fatal(err)
	}
	if err := http.NewResponseController(w).Flush(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the flush returned %v", err)
	}
	if err := s.Close(nil); !errors.Is(err, errStalled) {
		t.Errorf("the stream ended for %v", err)
	}
}

// pipeWriter is the connection of a client that reads only what the test reads from the other end of the pipe.
type pipeWriter struct {
	http.ResponseWriter
	net.Conn
}

func (w pipeWriter) Write(p []byte) (int, error) { return w.Conn.Write(p) }

// TestBlockedWatchEndsInTime: a client that stops reading must not delay the shutdown of the bridge by more than
// finishTime.
func TestBlockedWatchEndsInTime(t *testing.T) {
	for name, readsAfter := range map[string]time.Duration{
		"in the middle of an event": 0, "in the next piece of the event": finishTime - time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := open(t, Config{StallTimeout: time.Minute}, Watch)
				near, client := net.Pipe()
				defer func() { _, _ = near.Close(), client.Close() }()
				w := s.ResponseWriter(pipeWriter{httptest.NewRecorder(), near})
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusOK)
				var result error
				done := make(chan struct{})
				go func() {
					defer close(done)
					for result == nil {
						_, result = io.WriteString(w, "{")
					}
				}()
				synctest.Wait()
				began := time.Now()
				s.End(errTooLong)
				if readsAfter > 0 {
					time.Sleep(readsAfter)
					_, _ = io.ReadFull(client, make([]byte, 1))
				}
				<-done
				if took := time.Since(began); took != finishTime || !errors.Is(result, os.ErrDeadlineExceeded) {
					t.Errorf("the last write returned %v after %s", result, took)
				}
				if cause := context.Cause(s.Context()); !errors.Is(cause, errTooLong) {
					t.Errorf("the context ended for %v", cause)
				}
				if err := s.Close(result); !errors.Is(err, errTooLong) {
					t.Errorf("the stream ended for %v", err)
				}
			})
		})
	}
}

// TestFarewell: the close frame follows the current frame, and nothing follows the close frame. A second one, after the
// member's own, would violate RFC 6455, section 5.5.1.
func TestFarewell(t *testing.T) {
	farewell := string(frames.Control(frames.Close, append([]byte{0x03, 0xE9}, "the session reached its time limit"...)))
	for name, tt := range map[string]struct{ before, after, want string }{
		"between two frames":          {"\x82\x03abc", "", "\x82\x03abc" + farewell},
		"in the middle of one":        {"\x82\x03a", "bc\x82\x01x", "\x82\x03abc" + farewell},
		"in the middle of a head":     {"\x82", "\x03abc\x82\x01x", "\x82\x03abc" + farewell},
		"in the member's close frame": {"\x88\x02\x03", "\xe8\x82\x01x", "\x88\x02\x03\xe8"},
		"in the head of that frame":   {"\x88", "\x02\x03\xe8\x82\x01x", "\x88\x02\x03\xe8"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := open(t, Config{}, Exec)
				carried, client := switched(t, s, forward.WebSocket)
				var got strings.Builder
				go func() { _, _ = io.Copy(&got, client) }()
				_, _ = io.WriteString(carried, tt.before)
				go s.End(errTooLong)
				synctest.Wait()
				if n, err := io.WriteString(carried, tt.after); err != nil || n != len(tt.after) {
					t.Errorf("%d bytes, %v", n, err)
				}
				synctest.Wait()
				if got.String() != tt.want {
					t.Errorf("the client got %q, want %q", got.String(), tt.want)
				}
				if s.Context().Err() != nil {
					t.Error("the client has no time to answer")
				}
				time.Sleep(closeTimeout)
				synctest.Wait()
				if err := context.Cause(s.Context()); !errors.Is(err, errTooLong) {
					t.Errorf("ended for %v", err)
				}
			})
		})
	}
	t.Run("a frame that does not end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, Config{}, Exec)
			carried, client := switched(t, s, forward.WebSocket)
			go func() { _, _ = io.Copy(io.Discard, client) }()
			_, _ = io.WriteString(carried, "\x82\x03a")
			s.End(errTooLong)
			time.Sleep(finishTime)
			synctest.Wait()
			if err := context.Cause(s.Context()); !errors.Is(err, errTooLong) {
				t.Errorf("ended for %v", err)
			}
		})
	})
}
