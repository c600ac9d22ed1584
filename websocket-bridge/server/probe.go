package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/clusterpass/clusterpass/shared/health"
	"github.com/clusterpass/clusterpass/shared/passes"
)

// Probe probes the members every interval, until stop is called. An interval of 0 disables it.
func Probe(ctx context.Context, p *health.Prober, interval time.Duration) (stop func()) {
	if interval == 0 {
		return func() {}
	}
	return background(ctx, func(ctx context.Context) { p.Run(ctx, interval) })
}

// Maintain publishes the keys that verify passes, and deletes passes that expired long ago, at once and every hour. It
// runs until stop is called.
func Maintain(ctx context.Context, i *passes.Issuer, log *slog.Logger) (stop func()) {
	return background(ctx, func(ctx context.Context) {
		i.Maintain(ctx, func(err error) {
			log.Warn("keys cannot be published now, or expired passes deleted", "error", err.Error())
		})
	})
}

// background calls run in a goroutine. Its context ends with ctx or when stop is called.
func background(ctx context.Context, run func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx)
	}()
	return func() { cancel(); <-done }
}
