package bridge

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/assembly/apiconfig"
	"github.com/clusterpass/clusterpass/shared/assembly/fleetconfig"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/websocket-bridge/agentserver"
	"github.com/clusterpass/clusterpass/websocket-bridge/console"
)

// HandlerConfig configures a Handler.
type HandlerConfig struct {
	Fleet        fleetconfig.Settings
	API          apiconfig.Options
	Private      Private
	Recordings   Recordings
	SignIn       console.SignIn
	TunnelListen string // "" opens no tunnel port
	Peer         identity.Peer
}

// Handler serves the gateway with a bridge, the agents of private clusters, and the console.
type Handler struct {
	http.Handler
	Agents *agentserver.Agents

	closers []func() error // in the order of opening
}

// NewHandler opens the gateway with all its parts, and listens on the tunnel port. It starts the health probes and the
// maintenance of keys and passes, which end with ctx. When ctx ends, agents also connect to another bridge. Call Close
// when done.
func (b *Bridge) NewHandler(ctx context.Context, p *assembly.Parts, cfg HandlerConfig) (_ *Handler, err error) {
	h := &Handler{}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	if err := h.openAgents(ctx, b, p, cfg); err != nil {
		return nil, err
	}
	if err := h.openRecordings(ctx, b, p, cfg.Recordings); err != nil {
		return nil, err
	}
	members := p.NewMembers(h.Agents)
	h.onClose(members.Close)
	const probesOnGet = false // startBackground runs a Prober
	api, err := cfg.API.Open(ctx, p, members, cfg.Fleet, probesOnGet)
	if err != nil {
		return nil, err
	}
	api.Server.PublishKeys(ctx)
	gw, err := p.NewGateway(ctx, assembly.Options{
		Peer: cfg.Peer, Members: members, Fleet: api.Fleet, API: b.withMetrics(api.Server, p.Access), Streams: b,
		Admission: b, Observe: b.completed.observe,
		Source: b.limits.Source, Recheck: b.limits.Recheck, DiscoveryTimeout: cfg.Fleet.FleetDeadline,
	})
	if err != nil {
		return nil, err
	}
	h.closers = append(h.closers, func() error { return closeGateway(gw) })
	b.RegisterAuditMetrics(gw)
	b.CountCaches(gw.CacheStats)
	h.Agents.RecordTo(gw.AuditLog())
	if h.Handler, err = console.Handler(cfg.SignIn, h.Agents.Handler(gw)); err != nil {
		return nil, err
	}
	h.startBackground(ctx, b, p.Log, api)
	return h, nil
}

func (h *Handler) openAgents(ctx context.Context, b *Bridge, p *assembly.Parts, cfg HandlerConfig) error {
	h.Agents = cfg.Private.newAgents(b, p)
	h.onClose(h.Agents.Close)
	if cfg.TunnelListen != "" {
		closePort, err := listenTunnel(ctx, h.Agents, cfg.TunnelListen)
		if err != nil {
			return err
		}
		h.closers = append(h.closers, closePort)
	}
	stop := context.AfterFunc(ctx, func() { h.Agents.Drain(context.WithoutCancel(ctx)) })
	h.onClose(func() { stop() })
	return nil
}

func (h *Handler) startBackground(ctx context.Context, b *Bridge, log *slog.Logger, api *apiconfig.API) {
	h.onClose(background(ctx, func(ctx context.Context) {
		api.Issuer.Maintain(ctx, func(err error) {
			log.Warn("the maintenance of keys and passes failed", "error", err.Error())
		})
	}))
	if b.limits.ProbeInterval == 0 {
		return
	}
	api.Prober.Timeout = b.limits.ProbeTimeout
	h.onClose(background(ctx, func(ctx context.Context) { api.Prober.Run(ctx, b.limits.ProbeInterval) }))
}

func (h *Handler) onClose(closer func()) {
	h.closers = append(h.closers, func() error { closer(); return nil })
}

// Close ends all connections to agents and members, and writes the audit events of completed requests.
func (h *Handler) Close() error {
	var errs []error
	for _, closer := range slices.Backward(h.closers) {
		errs = append(errs, closer())
	}
	h.closers = nil
	return errors.Join(errs...)
}

// background calls run in a goroutine. stop cancels its context and waits for it.
func background(ctx context.Context, run func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx)
	}()
	return func() { cancel(); <-done }
}

const auditTimeout = 5 * time.Second

func closeGateway(gw *gateway.Gateway) error {
	ctx, cancel := context.WithTimeout(context.Background(), auditTimeout) // all other contexts have ended
	defer cancel()
	return gw.Close(ctx)
}
