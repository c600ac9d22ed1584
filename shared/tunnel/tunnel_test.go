package tunnel_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/tunnel"
	"github.com/clusterpass/clusterpass/shared/version"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A connection starts right after the response's header, regardless of an announced body (RFC 9110, 9.3.6).
func TestAnnouncedBody(t *testing.T) {
	for _, announced := range []string{"Content-Length: 5", "Transfer-Encoding: chunked"} {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		go func() { // ends with the pipe
			if r, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
				if r.UserAgent() != version.UserAgent() {
					t.Errorf("CONNECT has the User-Agent %q", r.UserAgent())
				}
				_, _ = io.WriteString(far, "HTTP/1.1 200 Connection established\r\n"+announced+"\r\n\r\n")
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan error, 1)
		go func() {
			done <- tunnel.Ask(ctx, near, "prod:443", http.Header{}, func(*http.Response) error { return errors.New("refused") })
		}()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v", announced, err)
			}
		case <-ctx.Done():
			t.Fatalf("%s is waited for", announced)
		}
		go func() { _, _ = io.WriteString(far, "hello") }()
		var hello [5]byte
		if _, err := io.ReadFull(near, hello[:]); err != nil || string(hello[:]) != "hello" {
			t.Errorf("%s: then comes %q, %v", announced, hello, err)
		}
	}
}
