package agentserver

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/tunnel"
	"github.com/clusterpass/clusterpass/websocket-bridge/mux"
)

// Port is the tunnel port. It serves HTTP CONNECT to CLUSTER:443 over TLS for parts of the gateway.
type Port struct {
	agents *Agents
	srv    *http.Server
	ended  chan error
	cancel context.CancelFunc
}

// Listen serves the tunnel port on ln until Port.Close.
func (a *Agents) Listen(ln net.Listener) *Port {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Port{agents: a, ended: make(chan error, 1), cancel: cancel}
	p.srv = &http.Server{
		Handler: p, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(a.cfg.Log.Handler(), slog.LevelDebug), // mostly TLS handshakes
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}, GetCertificate: a.cfg.Verifier.TunnelCertificate,
		},
	}
	a.cfg.Log.Info("the tunnel port is open", "address", ln.Addr().String())
	go func() { p.ended <- p.srv.ServeTLS(ln, "", "") }()
	return p
}

// Close closes the port and all of its connections.
func (p *Port) Close() error {
	p.cancel()
	_ = p.srv.Close()
	if err := <-p.ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (p *Port) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.agents.carried.Add(1) // before authentication, so that a drain waits for it
	defer p.agents.carried.Add(-1)
	if err := p.connect(w, r); err != nil {
		if errors.Is(err, tunnel.ErrNone) {
			w.Header().Set(tunnel.NoneHeader, "1")
		}
		closeAfterResponse(w)
		status.Write(w, err)
	}
}

func (p *Port) connect(w http.ResponseWriter, r *http.Request) error {
	cluster, ok := strings.CutSuffix(r.Host, ":443")
	if r.Method != http.MethodConnect || !ok || route.ValidClusterName(cluster) != nil {
		return status.New(status.BadRequest, "", "want CONNECT to %s", tunnel.ConnectHost("CLUSTER"))
	}
	token, ok := strings.CutPrefix(r.Header.Get("Proxy-Authorization"), "Bearer ")
	if !ok {
		return status.New(status.Unauthenticated, "",
			"the request has no tunnel token: only parts of the gateway may connect here")
	}
	if err := p.agents.cfg.Verifier.VerifyTunnelToken(r.Context(), token, cluster); err != nil {
		p.agents.cfg.Log.Warn("a token at the tunnel port is invalid", "cluster", cluster, "remote", r.RemoteAddr, "error",
			err.Error())
		return err
	}
	to := tunnel.Destination{Cluster: cluster, Service: r.Header.Get(tunnel.ServiceHeader)}
	member, err := p.agents.dial(r.Context(), to, r.Header.Get(tunnel.HopHeader) == "")
	if err != nil {
		return err
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = member.Close()
		return status.From(err)
	}
	if buffered.Reader.Buffered() > 0 { // a client must wait for the response
		_, _ = member.Close(), conn.Close()
		return nil
	}
	defer context.AfterFunc(r.Context(), func() { _, _ = member.Close(), conn.Close() })()
	_ = conn.SetDeadline(time.Time{})
	if _, err := conn.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
		_, _ = member.Close(), conn.Close()
		return nil //nolint:nilerr // the client is gone
	}
	mux.Pipe(conn, member)
	return nil
}
