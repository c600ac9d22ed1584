package gateway

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// finish ends the audit event and logs the request. It must be deferred. After a panic, it writes an error if the
// response has not begun, or else panics with http.ErrAbortHandler. It repeats a panic of http.ErrAbortHandler.
func (g *Gateway) finish(w *countingWriter, r *http.Request, c *call) {
	panicked := recover()
	isFault := panicked != nil && panicked != http.ErrAbortHandler //nolint:errorlint // net/http compares it so
	if isFault {
		panicked = g.failPanic(w, r, c, panicked)
	}
	c.err = cmp.Or(c.err, c.endReason)
	c.audit.Bytes(w.sent.Load(), w.bytesReceived())
	if isFault {
		c.audit.Panicked()
	} else {
		c.audit.Completed(w.code, c.err)
	}
	g.observe(c, panicked != nil)
	g.logRequest(r, w, c, panicked != nil)
	if panicked != nil {
		panic(panicked)
	}
}

// failPanic returns the value to panic with again, or nil if it wrote an error.
func (g *Gateway) failPanic(w *countingWriter, r *http.Request, c *call, panicked any) any {
	c.err = &status.Error{
		Reason: status.Internal, Message: "the gateway failed to handle the call; its log has the cause",
	}
	path := limits.Cut(c.request.Route.Path, maxLogged)
	g.cfg.Log.Error("panic", "path", path, "panic", panicked, "stack", string(debug.Stack()))
	if w.code != 0 {
		return http.ErrAbortHandler
	}
	_ = errorWriter(r, c)(w, c.err)
	return nil
}

// ownFailures are the reasons of errors that no member causes.
var ownFailures = []status.Reason{
	status.Internal, status.StoreUnavailable, status.IssuerUnavailable, status.AuditUnavailable, status.Unrecorded,
}

// logRequest logs one event for the request. Beyond a rate, unidentified callers have one event for many requests.
func (g *Gateway) logRequest(r *http.Request, w *countingWriter, c *call, isAborted bool) {
	g.logSummary(limits.CombineEvery)
	isIdentified := c.isIdentified(w.code)
	if c.err != nil && c.err.Code() >= http.StatusInternalServerError &&
		(isIdentified || slices.Contains(ownFailures, c.err.Reason)) {
		g.failed.Add(1)
	}
	failure, level := failureAttrs(c, isIdentified, isAborted)
	if !isIdentified && g.cfg.Log.Enabled(r.Context(), level) {
		combined := logEvent{level, append(targetAttrs(r, w, c), failure...)}
		if !g.unidentified.Allows(combined, limits.SourceFrom(r.Context()).String(), time.Now()) {
			return
		}
	}
	if g.cfg.Function != nil {
		metrics, least := g.metricAttrs()
		failure, level = append(metrics, failure...), max(level, least)
	}
	if g.cfg.Log.Enabled(r.Context(), level) {
		attrs := append(targetAttrs(r, w, c),
			slog.Int64("bytes", w.sent.Load()), slog.Duration("duration", time.Since(c.started)))
		attrs = append(append(attrs, callerAttrs(c)...), failure...)
		g.cfg.Log.LogAttrs(r.Context(), level, "request", attrs...)
	}
}

// logEvent is the part of an unidentified caller's event that a summary repeats.
type logEvent struct {
	level slog.Level
	attrs []slog.Attr
}

// logSummary logs one event for all requests that had no event of their own, unless the first of these requests is
// younger than minAge. The event has the attributes of that first request.
func (g *Gateway) logSummary(minAge time.Duration) {
	s := g.unidentified.Summary(time.Now(), minAge)
	if s == nil {
		return
	}
	attrs := append(s.First.attrs, slog.Int("requests", s.Count), slog.Any("sources", s.Sources))
	g.cfg.Log.LogAttrs(context.Background(), s.First.level, "request", attrs...)
}

// maxLogged is the maximum number of bytes of each part of the URL in the log. Names in Kubernetes are shorter.
const maxLogged = limits.MaxUnidentified

func targetAttrs(r *http.Request, w *countingWriter, c *call) []slog.Attr {
	res := c.request.Resource
	text := func(key, value string) slog.Attr { return slog.String(key, limits.Cut(value, maxLogged)) }
	return []slog.Attr{
		text("method", r.Method), slog.String("cluster", cmp.Or(c.request.Route.Cluster, c.reachedClusters)),
		text("verb", res.Verb), text("resource", resourceName(res)),
		text("namespace", res.Namespace), text("name", res.Name), slog.Int("code", w.code),
	}
}

func callerAttrs(c *call) []slog.Attr {
	if c.user == nil {
		return nil
	}
	attrs := []slog.Attr{slog.String("user", c.user.Name)}
	if c.user.Impersonator != "" {
		attrs = append(attrs, slog.String("impersonator", c.user.Impersonator))
	}
	return attrs
}

// failureAttrs returns the attributes that describe a failure, and the minimum level of the event.
func failureAttrs(c *call, isIdentified, isAborted bool) (attrs []slog.Attr, least slog.Level) {
	least = slog.LevelInfo
	text := slog.String
	if !isIdentified {
		text = func(key, value string) slog.Attr { return slog.String(key, limits.Cut(value, limits.MaxUnidentified)) }
	}
	switch {
	case c.err != nil:
		attrs = append(attrs, slog.String("reason", string(c.err.Reason)), text("error", c.err.Message))
		if c.err.Err != nil && c.err.Code() >= http.StatusInternalServerError {
			attrs = append(attrs, text("cause", c.err.Err.Error()))
			least = slog.LevelWarn
		}
	case isAborted:
		attrs = append(attrs, slog.String("reason", string(status.Aborted)))
	}
	return attrs, least
}

func resourceName(r route.Resource) string {
	name := r.Resource
	if r.Subresource != "" {
		name += "/" + r.Subresource
	}
	if r.APIGroup != "" {
		name += "." + r.APIGroup
	}
	return name
}
