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

// Maintain publishes the keys that verify passes, and deletes passes that expired long ago. It does so now and every
// hour, until the returned function is called.
func Maintain(ctx context.Context, i *passes.Issuer, log *slog.Logger) (stop func()) {
	return background(ctx, func(ctx context.Context) {
		i.Maintain(ctx, func(err error) {
			log.Warn("keys cannot be published now, or expired passes deleted", "error", err.Error())
		})
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
