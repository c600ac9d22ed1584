package lambdahttp

import (
	"bytes"
	"net/http"
	"testing"
)

// BenchmarkInvoke measures the adapter alone, with a response near the ALB's limit, as text and as base64.
func BenchmarkInvoke(b *testing.B) {
	for name, body := range map[string][]byte{
		"empty":  nil,
		"text":   bytes.Repeat([]byte(`{"name":"pod-0123456789","phase":"Running"},`), 17000),
		"binary": bytes.Repeat([]byte("\x00\xff0123456789"), 60000),
	} {
		b.Run(name, func(b *testing.B) {
			f := New(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				for rest := body; len(rest) > 0; rest = rest[min(32<<10, len(rest)):] {
					if _, err := w.Write(rest[:min(32<<10, len(rest))]); err != nil {
						b.Error(err)
					}
				}
			}), Options{})
			event := payload(b, "alb-multi")
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.Invoke(b.Context(), event); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
