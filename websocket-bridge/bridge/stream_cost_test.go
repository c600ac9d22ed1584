package bridge

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/streaming/pkg/httpstream"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/text"
)

// countedListener counts the connections that it accepted and that are open.
type countedListener struct {
	net.Listener
	open atomic.Int64
}

func (l *countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.open.Add(1)
		c = &listenedConn{Conn: c, listener: l}
	}
	return c, err
}

type listenedConn struct {
	net.Conn
	listener *countedListener
	closed   atomic.Bool
}

func (c *listenedConn) Close() error {
	if !c.closed.Swap(true) {
		c.listener.open.Add(-1)
	}
	return c.Conn.Close()
}

// countedMember starts a member over TLS whose connections are counted.
func countedMember(tb testing.TB, h http.HandlerFunc) (kubeconfig []byte, connections func() int) {
	tb.Helper()
	srv := httptest.NewUnstartedServer(h)
	counted := &countedListener{Listener: srv.Listener}
	srv.Listener, srv.EnableHTTP2 = counted, true
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	srv.StartTLS()
	tb.Cleanup(srv.Close)
	return clustertest.ServerKubeconfig(srv, `{token: t}`), func() int { return int(counted.open.Load()) }
}

const servicePath = "/clusters/m/api/v1/namespaces/a/services/s/proxy/socket"

// TestStreamCost fails if an open stream needs more goroutines or connections than those of this version, or if one is
// left after the stream's end. The goroutines include those of the member.
func TestStreamCost(t *testing.T) {
	var refused atomic.Int64
	talkSPDY := spdyMember(&refused, func(_ map[string]httpstream.Stream, conn httpstream.Connection) {
		<-conn.CloseChan()
	})
	kinds := []struct {
		name, path string
		member     http.HandlerFunc
		header     []string // headers for an upgrade; nil for none
		protocol   string   // subprotocol of a websocket; "" for none
		goroutines int      // of each stream
		// connections is the number to the member for each stream, and shared that for all of them. The translation to SPDY
		// may keep the connection over which the member refused a websocket.
		connections, shared int
	}{
		{goroutines: 4, name: "watch", path: watchPath, member: stays, shared: 1},
		{goroutines: 4, name: "logs", path: logPath, member: stays, shared: 1},
		{goroutines: 3, name: "exec over SPDY", path: execPath, member: stays, header: upgrade, connections: 1},
		{goroutines: 3, name: "port-forward over SPDY", path: portsPath, member: stays, header: upgrade, connections: 1},
		{goroutines: 3, name: "exec over a websocket", path: execPath, member: talking(t, echoing),
			protocol: "v5.channel.k8s.io", connections: 1},
		{goroutines: 15, name: "exec over a websocket, translated to SPDY", path: translated, member: talkSPDY,
			protocol: "v4.channel.k8s.io", connections: 1, shared: 1},
		{goroutines: 3, name: "attach over a websocket", path: strings.Replace(execPath, "/exec", "/attach", 1),
			member: talking(t, echoing), protocol: "v5.channel.k8s.io", connections: 1},
		{goroutines: 3, name: "port-forward over a websocket", path: portsPath, member: talking(t, echoing),
			protocol: "v4.channel.k8s.io", connections: 1},
		{goroutines: 15, name: "port-forward over a websocket, translated to SPDY", path: portsPath, member: talkSPDY,
			protocol: "v4.channel.k8s.io", connections: 1, shared: 1},
		{goroutines: 3, name: "a websocket of a service", path: servicePath, member: talking(t, echoing),
			protocol: "v4.channel.k8s.io", connections: 1},
		{goroutines: 4, name: "logs as text", path: logPath, member: stays, protocol: text.Protocol, shared: 1},
		{goroutines: 4, name: "watch as text", path: watchPath, member: stays, protocol: text.Protocol, shared: 1},
	}
	const streams = 20
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			hs := serve(t, Limits{}, Drain{}, stays)
			kubeconfig, connections := countedMember(t, kind.member)
			hs.AddCluster("counted", kubeconfig,
				func(s *v1alpha1.ClusterSpec) { s.ServiceProxy = []string{"services/a/s"} })
			path := strings.Replace(kind.path, "/m/", "/counted/", 1)
			open := func() io.Closer {
				if kind.protocol != "" {
					conn, _, err := hs.dial("alice", path, nil, kind.protocol)
					if err != nil {
						t.Fatal(err)
					}
					return conn.NetConn()
				}
				resp, conn := hs.get("alice", path, kind.header...)
				if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusSwitchingProtocols {
					t.Fatal(resp.Status)
				}
				return conn
			}
			goroutines := runtime.NumGoroutine()
			var all []io.Closer
			for range streams {
				all = append(all, open())
			}
			waittest.Until(t, "the streams need at most the connections and goroutines of this version", func() bool {
				return hs.bridge.streams.Len() == streams && connections() <= streams*kind.connections+kind.shared &&
					runtime.NumGoroutine()-goroutines < streams*kind.goroutines+streams/2
			})
			for _, conn := range all {
				_ = conn.Close()
			}
			waittest.Until(t, "only shared connections are left", func() bool {
				return hs.bridge.streams.Len() == 0 && connections() <= kind.shared
			})
			waittest.Until(t, "no goroutine of a stream is left", func() bool {
				return runtime.NumGoroutine()-goroutines < streams/2 // those of shared connections stay
			})
		})
	}
}
