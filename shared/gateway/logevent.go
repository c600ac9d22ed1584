package gateway

import (
	"cmp"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// finish ends the audit event and logs the request. It must be deferred: it converts a panic into an error if nothing
// was written yet, and repeats it as http.ErrAbortHandler otherwise.
func (g *Gateway) finish(w *recorder, r *http.Request, c *call) {
	panicked := recover()
	isFault := panicked != nil && panicked != http.ErrAbortHandler //nolint:errorlint // net/http compares it so
	if isFault {
		panicked = g.failPanic(w, r, c, panicked)
	}
	c.err = cmp.Or(c.err, c.ended)
	c.audit.Bytes(w.sent.Load(), w.bytesReceived())
	if isFault {
		c.audit.Panicked()
	} else {
		c.audit.Completed(w.code, c.err)
	}
	failure, level := failureAttrs(c, panicked != nil)
	if g.cfg.Function != nil {
		metrics, least := g.metricAttrs(g.staleReads() - c.staleReads)
		failure, level = append(metrics, failure...), max(level, least)
	}
	if g.cfg.Log.Enabled(r.Context(), level) {
		attrs := append(targetAttrs(w, r, c), callerAttrs(c)...)
		g.cfg.Log.LogAttrs(r.Context(), level, "request", append(attrs, failure...)...)
	}
	if panicked != nil {
		panic(panicked)
	}
}

// failPanic returns the value to panic with again, or nil if it wrote an error.
func (g *Gateway) failPanic(w *recorder, r *http.Request, c *call, panicked any) any {
	c.err = &status.Error{
		Reason: status.Internal, Message: "the gateway failed to handle the call; its log has the cause",
	}
	g.cfg.Log.Error("panic", "path", c.request.Route.Path, "panic", panicked, "stack", string(debug.Stack()))
	if w.code != 0 {
		return http.ErrAbortHandler
	}
	_ = errorWriter(r, c)(w, c.err)
	return nil
}

func targetAttrs(w *recorder, r *http.Request, c *call) []slog.Attr {
	res := c.request.Resource
	return []slog.Attr{
		slog.String("method", r.Method), slog.String("cluster", cmp.Or(c.request.Route.Cluster, c.reachedClusters)),
		slog.String("verb", res.Verb), slog.String("resource", resourceName(res)),
		slog.String("namespace", res.Namespace), slog.String("name", res.Name),
		slog.Int("code", w.code), slog.Int64("bytes", w.sent.Load()), slog.Duration("duration", time.Since(c.started)),
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

// failureAttrs also returns the least level of the event.
func failureAttrs(c *call, isAborted bool) (attrs []slog.Attr, least slog.Level) {
	least = slog.LevelInfo
	if c.err != nil {
		attrs = append(attrs, slog.String("reason", string(c.err.Reason)), slog.String("error", c.err.Message))
		if c.err.Err != nil && c.err.Code() >= http.StatusInternalServerError {
			attrs = append(attrs, slog.String("cause", c.err.Err.Error()))
			least = slog.LevelWarn
		}
	}
	if isAborted {
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
