package bridge

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/metrictest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// bridgeServer is a bridge on TLS with one member, m. Its users are in the group system:masters.
type bridgeServer struct {
	*clustertest.Installation
	t         testing.TB
	bridge    *Bridge
	handler   http.Handler
	addr      string
	serverCA  *tls.Config // for clients without a certificate
	tlsServer *tls.Config
	stop      context.CancelFunc
	ended     chan error
}

func serve(t testing.TB, l Limits, drain Drain, h http.HandlerFunc) *bridgeServer {
	t.Helper()
	return serveFresh(t, l, drain, cluster.Freshness{}, h)
}

func serveFresh(
	t testing.TB, l Limits, drain Drain, fresh cluster.Freshness, h http.HandlerFunc,
	configure ...func(*Bridge, *gateway.Config),
) *bridgeServer {
	t.Helper()
	return serveWith(t, l, drain, gatewaytest.Options{Freshness: fresh}, h, configure...)
}

// serveWith replaces opts.Configure.
func serveWith(
	t testing.TB, l Limits, drain Drain, opts gatewaytest.Options, h http.HandlerFunc,
	configure ...func(*Bridge, *gateway.Config),
) *bridgeServer {
	t.Helper()
	if drain.Timeout == 0 {
		drain.Timeout = 5 * time.Second
	}
	hs := &bridgeServer{Installation: clustertest.NewInstallation(t), t: t, bridge: New(l), ended: make(chan error, 1)}
	hs.addMember("m", h)
	opts.Configure = func(c *gateway.Config) {
		c.Identity = identity.Chain{identity.X509{CA: identity.NewClientCA(hs.CA.Pool(), nil), Peer: identity.TLSPeer}}
		c.Fleet, c.Tokens, c.Recheck = nil, nil, 0
		c.Streams, c.Admission = hs.bridge, hs.bridge
		c.Origins = gateway.Origins{"https://console.example.com"}
		c.Source = l.Source
		for _, change := range configure {
			change(hs.bridge, c)
		}
	}
	hs.handler = gateway.New(gatewaytest.NewConfig(t, hs.Installation, opts))
	certificate := httptest.NewTLSServer(nil) // started only for its certificate
	hs.serverCA = certificate.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	hs.tlsServer = &tls.Config{
		Certificates: certificate.TLS.Certificates, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12,
	}
	certificate.Close()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", hs.tlsServer)
	if err != nil {
		t.Fatal(err)
	}
	hs.addr = ln.Addr().String()
	srv := l.HTTPServer(hs.handler)
	srv.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	ctx, stop := context.WithCancel(context.Background())
	hs.stop = stop
	go func() { hs.ended <- hs.bridge.Serve(ctx, srv, func() error { return srv.Serve(ln) }, drain) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-hs.ended:
			if err != nil {
				t.Errorf("the bridge ended: %v", err)
			}
		case <-time.After(waittest.Patience):
			t.Error("the bridge does not end")
		}
		waittest.Until(t, "no stream is left", hs.isIdle)
	})
	return hs
}

func (hs *bridgeServer) addMember(name string, h http.HandlerFunc, edits ...func(*v1alpha1.ClusterSpec)) {
	hs.t.Helper()
	hs.AddCluster(name, clustertest.NewStreamingMember(hs.t, h).Kubeconfig(`{token: members-token}`), edits...)
}

func (hs *bridgeServer) isIdle() bool { return hs.bridge.streams.Len() == 0 }

// tls returns the client configuration of a user, or of an anonymous client for "".
func (hs *bridgeServer) tls(user string) *tls.Config {
	hs.t.Helper()
	c := hs.serverCA.Clone()
	if user != "" {
		c.Certificates, c.NextProtos = []tls.Certificate{hs.ClientCertificate(user, access.Masters)}, nil
	}
	return c
}

func request(path string, header ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + strings.Join(append(header, ""), "\r\n") + "\r\n"
}

func (hs *bridgeServer) get(user, path string, header ...string) (*http.Response, *tls.Conn) {
	hs.t.Helper()
	resp, conn, _ := gatewaytest.SendRaw(hs.t, hs.addr, hs.tls(user), request(path, header...))
	return resp, conn
}

func (hs *bridgeServer) metric(name string, labels ...string) float64 {
	hs.t.Helper()
	return metrictest.Value(hs.t, hs.bridge.Metrics, name, labels...)
}

// isRunning reports whether a goroutine is in a function. The name has the form of a stack trace.
func isRunning(function string) bool {
	stacks := make([]byte, 1<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), function+"(")
}

// readSession reads an exec session to its end. It returns the content of the channels and the code of the close frame.
func readSession(t *testing.T, conn *websocket.Conn) (stdout, status string, code int) {
	t.Helper()
	for {
		_, m, err := conn.ReadMessage()
		var closed *websocket.CloseError
		if errors.As(err, &closed) {
			return stdout, status, closed.Code
		}
		if err != nil {
			t.Fatal(err)
		}
		switch m[0] {
		case 1:
			stdout += string(m[1:])
		case 3:
			status += string(m[1:])
		}
	}
}
