// Package server is the bridge. It runs the handlers of all functions without a function's limits, and it serves
// streams.
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/health"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/kmssigner"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/stores"
)

// Run serves until ctx ends, and then drains.
func Run(ctx context.Context, cfg *Config) (err error) {
	peer := identity.TLSPeer
	if cfg.MTLSHeader != "" {
		peer = identity.ALBPeer(cfg.MTLSHeader, func(*http.Request) bool { return true })
	}
	cfg.Limits.Source = cmp.Or(cfg.Limits.Source, limits.ForwardedSource) // a load balancer connects to LISTEN
	b := New(cfg.Limits)
	env := cfg.Env
	env.Streams, env.Admission, env.Recheck, env.Source = b, b, cfg.Limits.Recheck, cfg.Limits.Source
	env.Fleet, env.API = cfg.Settings.Fleet, cfg.Options.API(cfg.URL, cfg.ControlPlane, cfg.Authentication)
	st, err := stores.Open(ctx, cfg.Store)
	if err != nil {
		return err
	}
	var logTo io.Writer = os.Stderr
	if cfg.LogTo != nil {
		logTo = cfg.LogTo
	}
	log := slog.New(slog.NewJSONHandler(logTo, &slog.HandlerOptions{Level: cfg.LogLevel}))
	private := cfg.Agents(b, cfg.Store, st, string(cfg.URL), cfg.Limits.Recheck, log)
	defer private.Close()
	env.Tunnel = private
	closePort, err := ListenTunnel(ctx, private, cfg.TunnelListen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closePort()) }()
	gw, members, err := env.Open(ctx, peer, nil)
	if err != nil {
		return err
	}
	defer members.Close()
	defer func() { err = errors.Join(err, CloseGateway(gw)) }()
	b.CountAudit(gw)
	private.RecordTo(gw.AuditLog())
	b.CountCaches(gw.CacheStats)
	signer, err := kmssigner.Open(ctx, cfg.PassKMSKey)
	if err != nil {
		return err
	}
	defer Maintain(ctx, &passes.Issuer{Objects: st.Objects, Secrets: st.Secrets, Signer: signer}, log)()
	defer Probe(ctx, &health.Prober{Objects: st.Objects, Members: members, Log: log}, cfg.ProbeInterval)()
	ln, err := cfg.listen(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = ln.Close() }()
	admin, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.AdminListen)
	if err != nil {
		return fmt.Errorf("CLUSTERPASS_ADMIN_LISTEN: %w", err)
	}
	adminSrv := cfg.HTTPServer(b.Admin(append(storeChecks(st.Secrets, st.Objects), listenerCheck(ln.Addr()))...))
	log.Info("listening", "address", ln.Addr().String(), "admin", admin.Addr().String())
	adminEnded := make(chan error, 1)
	go func() { adminEnded <- adminSrv.Serve(admin) }()

	if cfg.CloudWatch != "" {
		printing, stop := context.WithCancel(context.WithoutCancel(ctx)) // until the drain ends
		defer stop()
		go b.cloudWatch(printing, os.Stdout, cfg.CloudWatch)
	}
	srv := cfg.HTTPServer(private.Handler(gw))
	srv.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug) // mostly TLS handshakes
	defer context.AfterFunc(ctx, func() { private.Drain(context.WithoutCancel(ctx)) })()
	err = b.Serve(ctx, srv, func() error { return srv.Serve(ln) }, Drain{
		Delay: cfg.DrainDelay, Timeout: cfg.DrainTimeout, Others: private.Wait,
	})
	_ = adminSrv.Close() // last, so that probes can follow the drain
	if adminErr := <-adminEnded; !errors.Is(adminErr, http.ErrServerClosed) {
		err = errors.Join(err, adminErr)
	}
	return err
}

// listen opens CLUSTERPASS_LISTEN.
func (c *Config) listen(ctx context.Context) (net.Listener, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("CLUSTERPASS_LISTEN: %w", err)
	}
	if !c.SelfSigned {
		return ln, nil
	}
	cert, err := pki.SelfSigned("clusterpass-bridge")
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return tls.NewListener(ln, &tls.Config{
		// required for upgrades
		Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}), nil
}

// auditTimeout is the deadline for writing audit events at the end.
const auditTimeout = 5 * time.Second

// CloseGateway writes the audit events of completed requests and closes gw.
func CloseGateway(gw *gateway.Gateway) error {
	ctx, cancel := context.WithTimeout(context.Background(), auditTimeout) // all other contexts have ended
	defer cancel()
	return gw.Close(ctx)
}
