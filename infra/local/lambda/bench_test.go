package lambda

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/clusterpass/clusterpass/infra/local/lambda/event"
	"github.com/clusterpass/clusterpass/shared/lambdahttp"
)

// BenchmarkInvoke measures a warm call with its events: in a process that is stopped between calls, in one that is not,
// and inline.
func BenchmarkInvoke(b *testing.B) {
	processes := func(cfg Config) Invoker {
		cfg.Name, cfg.Bootstrap = "bench", bootstrap
		f, err := NewFunction(cfg)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = f.Close(context.Background()) })
		return f
	}
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	for name, inv := range map[string]Invoker{
		"process":          processes(Config{}),
		"process, running": processes(Config{NeverStop: true}),
		"inline":           Inline{Function: lambdahttp.New(echo, lambdahttp.Options{Log: slog.New(slog.DiscardHandler)})},
	} {
		b.Run(name, func(b *testing.B) {
			payload, err := event.ALB{}.Event(httptest.NewRequest(http.MethodGet, "/echo", nil))
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := inv.Invoke(b.Context(), payload); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
