// Package bridge runs the handlers of all functions without a function's limits, and serves streams.
package bridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/stores/kubernetes"
)

// Run serves until ctx ends, and then drains. It logs to logTo, or to standard error if logTo is nil.
func Run(ctx context.Context, cfg *Config, logTo io.Writer) (err error) {
	peer := identity.TLSPeer
	if cfg.MTLSHeader != "" {
		peer = identity.ALBPeer(cfg.MTLSHeader, func(*http.Request) bool { return true })
	}
	cfg.Source = cmp.Or(cfg.Source, limits.ForwardedSource) // a load balancer connects to LISTEN; see validateCertificate
	b := New(cfg.Limits)
	parts, err := assembly.Open(ctx, cfg.Env, logTo, kubernetes.Opener())
	if err != nil {
		return err
	}
	certificate, stop, err := cfg.openCertificate(ctx, parts)
	if err != nil {
		return err
	}
	defer stop()
	h, err := b.NewHandler(ctx, parts, HandlerConfig{
		Fleet: cfg.Settings, API: cfg.Options, Private: cfg.Private, Recordings: cfg.Recordings,
		SignIn: cfg.SignIn, TunnelListen: cfg.TunnelListen, Peer: peer,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	ln, err := cfg.listen(ctx, certificate)
	if err != nil {
		return err
	}
	defer func() { _ = ln.Close() }()
	closeAdmin, err := b.serveAdmin(ctx, cfg, parts, ln.Addr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAdmin()) }() // after the drain, so that probes can follow it

	if cfg.CloudWatch != "" {
		printing, stop := context.WithCancel(context.WithoutCancel(ctx)) // until the drain ends
		defer stop()
		go b.printCloudWatch(printing, os.Stdout, cfg.CloudWatch)
	}
	srv := cfg.HTTPServer(h)
	srv.ErrorLog = slog.NewLogLogger(parts.Log.Handler(), slog.LevelDebug) // mostly TLS handshakes
	return b.Serve(ctx, srv, func() error { return srv.Serve(ln) }, Drain{
		Delay: cfg.DrainDelay, Timeout: cfg.DrainTimeout, WaitForTunnels: h.Agents.Wait,
	})
}

// serveAdmin serves until closeAdmin is called. addr is the address of the bridge's own listener.
func (b *Bridge) serveAdmin(
	ctx context.Context, cfg *Config, p *assembly.Parts, addr net.Addr,
) (closeAdmin func() error, err error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.AdminListen)
	if err != nil {
		return nil, fmt.Errorf("CLUSTERPASS_ADMIN_LISTEN: %w", err)
	}
	checks := append(storeChecks(p.Stores.Secrets, p.Stores.Objects), listenerCheck(addr))
	srv := cfg.HTTPServer(b.Admin(checks...))
	p.Log.Info("listening", "address", addr.String(), "admin", ln.Addr().String())
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	return func() error {
		_ = srv.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, nil
}
