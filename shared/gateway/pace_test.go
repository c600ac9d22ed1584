package gateway_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/pipetest"
)

func impatient(c *gateway.Config) { c.Patience = 2 * time.Second }

// TestLateBody holds: what was announced and does not come is not waited for, however much it is.
func TestLateBody(t *testing.T) {
	h := newHouseFresh(t, nil, cluster.Freshness{}, impatient)
	m := newMember(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
	h.add("m", m.kubeconfig("{token: members-token}"), nil)
	for name, request := range map[string]string{
		"none of a small one":  "Content-Length: 100\n\n",
		"some of a small one":  "Content-Length: 100\n\nabc",
		"some of a large one":  "Content-Length: 3000000\n\nabc",
		"most of a large one":  "Content-Length: 300000\n\n" + strings.Repeat("x", 100_000), // net/http would read the rest itself
		"some of nobody knows": "Transfer-Encoding: chunked\n\n3\nabc\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := tls.Dial("tcp", h.Listener.Addr().String(), h.tls)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
			if _, err := io.WriteString(conn, strings.ReplaceAll("PUT /clusters/m/api/v1/namespaces/a/pods/p HTTP/1.1\nHost: x\n"+request, "\n", "\r\n")); err != nil {
				t.Fatal(err)
			}
			br := bufio.NewReader(conn)
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			wantStatus(t, resp, http.StatusRequestTimeout, "request_timeout", "did not arrive in time")
			if _, err := br.ReadByte(); err == nil {
				t.Error("the connection goes on")
			}
		})
	}
}

// TestUnreadAnswer holds: who reads nothing does not hold the gateway up, neither while an answer is made nor when it is.
func TestUnreadAnswer(t *testing.T) {
	h := newHouseFresh(t, nil, cluster.Freshness{}, impatient)
	m := newMember(t, func(w http.ResponseWriter, r *http.Request) {
		size := 2
		if strings.HasSuffix(r.URL.Path, "/secrets") {
			size = 4 << 20
		}
		_, _ = io.WriteString(w, strings.Repeat("x", size))
	})
	h.add("m", m.kubeconfig("{token: members-token}"), nil)
	ln, closed := pipetest.Listen(), make(chan struct{}, 10)
	srv := &http.Server{
		Handler: h.Config.Handler, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed {
				closed <- struct{}{}
			}
		},
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(tls.NewListener(ln, h.TLS)) }()
	defer func() {
		_ = srv.Close()
		<-served
	}()
	for name, path := range map[string]string{
		"a small answer": "/clusters/m/api/v1/pods",
		"a large answer": "/clusters/m/api/v1/secrets",
		"an error":       "/clusters/none/api/v1/pods",
		"the fleet":      "/fleet/api/v1/pods",
		"a document":     "/livez",
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer func() { _ = ours.Close() }()
			ln.Hand(theirs)
			cfg := h.tls.Clone()
			cfg.ServerName, cfg.MaxVersion = "example.com", tls.VersionTLS12 // in 1.3 the server goes on to write when the handshake is done
			conn := tls.Client(ours, cfg)
			if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			select {
			case <-closed:
			case <-time.After(2 * time.Minute):
				t.Fatal("the gateway still waits for its client")
			}
		})
	}
}
