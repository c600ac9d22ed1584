package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/clusterpass/clusterpass/shared/health"
	"github.com/clusterpass/clusterpass/shared/passes"
)

// Probe looks at the members every interval, until the returned function is called.
func Probe(ctx context.Context, p *health.Prober, interval time.Duration) (stop func()) {
	if interval == 0 {
		return func() {}
	}
	return background(ctx, func(ctx context.Context) { p.Run(ctx, interval) })
}

// Prune deletes passes that expired long ago, now and then, until the returned function is called.
func Prune(ctx context.Context, i *passes.Issuer, log *slog.Logger) (stop func()) {
	return background(ctx, func(ctx context.Context) {
		i.KeepPruned(ctx, func(err error) { log.Warn("expired passes cannot be deleted now", "error", err.Error()) })
	})
}

// background runs something until the returned function is called, or ctx ends.
func background(ctx context.Context, run func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx)
	}()
	return func() { cancel(); <-done }
}
