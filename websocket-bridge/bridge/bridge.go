package bridge

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/policy"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/websocket-bridge/dialect"
	"github.com/clusterpass/clusterpass/websocket-bridge/recorder"
	"github.com/clusterpass/clusterpass/websocket-bridge/streams"
	"github.com/clusterpass/clusterpass/websocket-bridge/text"
)

// Bridge serves streams and limits concurrent requests. It implements gateway.Streamer and gateway.Admission. It is
// safe for concurrent use.
type Bridge struct {
	Metrics *prometheus.Registry

	limits     Limits
	streams    *streams.Registry
	calls      *calls
	completed  *completed
	unverified *unverified
	caches     *caches
	dialects   *dialect.Translator
	text       *text.Endpoint
	recorder   *recorder.Recorder
	draining   atomic.Bool
}

// New returns a bridge.
func New(l Limits) *Bridge {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	b := &Bridge{
		Metrics: reg, limits: l,
		streams: streams.New(l.streams(), reg),
		calls:   newCalls(l, reg), completed: newCompleted(reg),
		caches:   &caches{},
		dialects: dialect.New(l.MaxMessage),
		recorder: recorder.New(reg),
	}
	b.unverified = newUnverified(l, b.calls.refuse)
	reg.MustRegister(b.caches)
	b.text = &text.Endpoint{MaxMessage: l.MaxMessage, Upgrades: b.dialects}
	return b
}

// RecordTo sets the Recorder for later sessions, and the Logger for failures of recordings. Before RecordTo is called,
// the bridge refuses sessions whose recording is required.
func (b *Bridge) RecordTo(r *recording.Recorder, log *slog.Logger) { b.recorder.RecordTo(r, log) }

// RegisterAuditMetrics adds the statistics of gw's audit log to the metrics.
func (b *Bridge) RegisterAuditMetrics(gw *gateway.Gateway) {
	counter := func(name, help string, count func(audit.Stats) uint64) {
		b.Metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return float64(count(gw.AuditStats())) }))
	}
	counter(auditLost, "Audit events that could not be delivered.", func(s audit.Stats) uint64 { return s.Lost })
	counter(auditRefused,
		"Calls that were refused because the audit queue or the caller's part of it was full.",
		func(s audit.Stats) uint64 { return s.Refused })
	counter("clusterpass_audit_overridden_total",
		"Calls that were served although the audit queue or the caller's part of it was full, by an operator's override.",
		func(s audit.Stats) uint64 { return s.Overridden })
	b.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "clusterpass_audit_events_waiting", Help: "Audit events that wait to be delivered.",
	}, func() float64 { return float64(gw.AuditStats().Waiting) }))
}

// Prometheus names of metrics that cloudWatchLine also sends to CloudWatch, under other names.
const (
	auditLost    = "clusterpass_audit_events_lost_total"
	auditRefused = "clusterpass_audit_refused_total"
)

// ForwardStream implements gateway.Streamer.
func (b *Bridge) ForwardStream(w http.ResponseWriter, r *http.Request, c *gateway.StreamCall) (err error) {
	return b.runStream(r, infoOf(c.Call), func(r *http.Request, s *streams.Stream) error {
		w := s.ResponseWriter(w)
		ws := s.ForWebSocket(w)
		switch {
		case c.Rule.Level != policy.None:
			return b.forwardRecorded(w, ws, r, c, s)
		case text.IsRequested(r):
			return b.text.Do(w, ws, r, c.Call)
		}
		return b.dialects.Do(w, ws, r, c.Call)
	})
}

func (b *Bridge) forwardRecorded(
	w, ws http.ResponseWriter, r *http.Request, c *gateway.StreamCall, s *streams.Stream,
) (err error) {
	session, err := b.recorder.Begin(r, c, s.End)
	if err != nil {
		return err
	}
	var upgrades text.Forwarder = b.dialects
	if session != nil {
		upgrades = session.Forwarder(upgrades)
		err = errAborted
		defer func() { err = session.Close(r.Context(), err) }() // also during a panic, which continues
	}
	if text.IsRequested(r) {
		e := text.Endpoint{MaxMessage: b.limits.MaxMessage, Upgrades: upgrades}
		err = e.Do(w, ws, r, c.Call)
	} else {
		err = upgrades.Do(w, ws, r, c.Call)
	}
	return err
}

var errAborted = status.New(status.Aborted, "", "the response was cut off")

func infoOf(c *forward.Call) streams.Info {
	info := streams.Info{Kind: streams.KindOf(c.Request), Cluster: c.Member.Cluster.Name}
	if c.User != nil {
		info.User = identity.CallerKey(c.User.Name, "")
	} else {
		info.User = identity.CallerKey("", c.Bearer)
	}
	return info
}

// ServeWatch implements gateway.Streamer. Over a websocket, each event becomes a message.
func (b *Bridge) ServeWatch(w http.ResponseWriter, r *http.Request, user string, serve gateway.Handler) error {
	info := streams.Info{Kind: streams.Watch, User: identity.CallerKey(user, "")}
	return b.runStream(r, info, func(r *http.Request, s *streams.Stream) error {
		w := s.ResponseWriter(w)
		if !websocket.IsWebSocketUpgrade(r) {
			return serve(w, r)
		}
		protocol := text.Protocol
		if !text.IsRequested(r) {
			offered := websocket.Subprotocols(r)
			if len(offered) > 1 { // kube-apiserver also refuses several protocols
				return status.New(status.BadRequest, "", "the watch was refused: the request offers %d websocket protocols; "+
					"offer one or none", len(offered))
			}
			protocol = strings.Join(offered, "")
		}
		return text.Answer(w, s.ForWebSocket(w), r, serve, b.text.MaxMessage, protocol, text.Lines)
	})
}

func (b *Bridge) runStream(
	r *http.Request, info streams.Info, do func(*http.Request, *streams.Stream) error,
) (err error) {
	s, err := b.streams.Open(r.Context(), info)
	if err != nil {
		return err
	}
	returned := false
	defer func() {
		if returned {
			return
		}
		// The handler panicked, so the response is cut off. Close gets the cause of the stream's end, or errAborted if the
		// stream has not ended.
		if err = context.Cause(s.Context()); err == nil {
			err = errAborted
		}
		_ = s.Close(err)
	}()
	r = r.WithContext(s.Context())
	r.Body = s.Body(r.Body)
	err = do(r, s)
	returned = true
	return s.Close(err)
}

// Drain configures how a bridge shuts down.
type Drain struct {
	Delay   time.Duration // how long requests are accepted after /readyz and /healthz began to fail
	Timeout time.Duration // maximum duration of the drain, including Delay
	// WaitForTunnels blocks until the tunnel port has no connections, or ctx ends. Optional.
	WaitForTunnels func(ctx context.Context)
}

// Serve runs serve, such as srv.ListenAndServe, and returns its error. If ctx ends first, Serve drains the bridge:
//   - /readyz and /healthz fail. After drain.Delay, srv closes its listener.
//   - Watches end, so that clients resume elsewhere. Other streams may continue until shortly before drain.Timeout.
//   - At drain.Timeout, Serve closes the connections of requests that are not streams.
//
// After a drain, Serve returns nil, or the error of closing the listener.
func (b *Bridge) Serve(ctx context.Context, srv *http.Server, serve func() error, drain Drain) error {
	// Requests continue after ctx has ended.
	callsCtx, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	srv.BaseContext = func(net.Listener) context.Context { return callsCtx }
	failed := make(chan error, 1)
	go func() { failed <- serve() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	b.draining.Store(true)
	drainCtx, cancel := context.WithTimeout(callsCtx, drain.Timeout)
	defer cancel()
	// Streams other than watches end before drainCtx, which leaves time for their close frames.
	streamsCtx, cancel := context.WithTimeout(callsCtx, drain.Timeout-min(drain.Timeout/4, 5*time.Second))
	defer cancel()
	select {
	case err := <-failed:
		return err
	case <-time.After(drain.Delay):
	}
	drained := make(chan struct{})
	srv.RegisterOnShutdown(func() { // called after the listener is closed
		b.streams.Drain(drainCtx, streamsCtx)
		close(drained)
	})
	err := srv.Shutdown(drainCtx)
	<-drained // Shutdown ignores hijacked connections
	if drain.WaitForTunnels != nil {
		drain.WaitForTunnels(streamsCtx)
	}
	if err != nil {
		cut()
		err = srv.Close()
	}
	<-failed
	return err
}
