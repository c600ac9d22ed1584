package gateway_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/pipetest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

func withShortTimeout(c *gateway.Config) { c.ClientTimeout = 2 * time.Second }

func TestLateBody(t *testing.T) {
	t.Parallel() // the test waits more than it computes
	h := newGateway(t, gatewaytest.Options{Configure: withShortTimeout})
	m := clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
	h.AddCluster("m", m.Kubeconfig("{token: members-token}"))
	conns := map[string]*tls.Conn{} // open at the same time, since each waits
	for name, request := range map[string]string{
		"none of a small one": "Content-Length: 100\n\n",
		"some of a small one": "Content-Length: 100\n\nabc",
		"some of a large one": "Content-Length: 3000000\n\nabc",
		// net/http would read the rest itself.
		"most of a large one":  "Content-Length: 300000\n\n" + strings.Repeat("x", 100_000),
		"some of unknown size": "Transfer-Encoding: chunked\n\n3\nabc\n",
	} {
		conn, err := tls.Dial("tcp", h.Listener.Addr().String(), h.ClientTLS)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(waittest.Patience))
		request = "PUT /clusters/m/api/v1/namespaces/a/pods/p HTTP/1.1\nHost: x\n" + request
		if _, err := io.WriteString(conn, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
			t.Fatal(err)
		}
		conns[name] = conn
	}
	for name, conn := range conns {
		t.Run(name, func(t *testing.T) {
			br := bufio.NewReader(conn)
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			gatewaytest.WantStatus(t, resp, http.StatusRequestTimeout, "request_timeout", "did not arrive in time")
			if _, err := br.ReadByte(); err == nil {
				t.Error("the connection stays open")
			}
		})
	}
}

func TestUnreadResponse(t *testing.T) {
	t.Parallel() // the test waits more than it computes
	h := newGateway(t, gatewaytest.Options{Configure: withShortTimeout})
	m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		size := 2
		if strings.HasSuffix(r.URL.Path, "/secrets") {
			size = 4 << 20
		}
		_, _ = io.WriteString(w, strings.Repeat("x", size))
	})
	h.AddCluster("m", m.Kubeconfig("{token: members-token}"))
	var closed sync.Map // the server's ends of connections
	ln := pipetest.Listen()
	srv := &http.Server{
		Handler: h.Config.Handler, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		ConnState: func(c net.Conn, s http.ConnState) {
			if s == http.StateClosed {
				closed.Store(c.(*tls.Conn).NetConn(), nil)
			}
		},
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(tls.NewListener(ln, h.TLS)) }()
	defer func() {
		_ = srv.Close()
		<-served
	}()
	conns := map[string]net.Conn{} // open at the same time, since each waits
	for name, path := range map[string]string{
		"a small answer": "/clusters/m/api/v1/pods",
		"a large answer": "/clusters/m/api/v1/secrets",
		"an error":       "/clusters/none/api/v1/pods",
		"the fleet":      "/fleet/api/v1/pods",
		"a document":     "/livez",
	} {
		ours, theirs := net.Pipe()
		defer func() { _ = ours.Close() }()
		ln.Hand(theirs)
		conns[name] = theirs
		cfg := h.ClientTLS.Clone()
		// In TLS 1.3, the server writes after the handshake.
		cfg.ServerName, cfg.MaxVersion = "example.com", tls.VersionTLS12
		if _, err := io.WriteString(tls.Client(ours, cfg), "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	for name, conn := range conns {
		t.Run(name, func(t *testing.T) {
			waittest.Until(t, "the gateway closes the connection", func() bool { _, ok := closed.Load(conn); return ok })
		})
	}
}
