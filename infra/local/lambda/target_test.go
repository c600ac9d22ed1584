package lambda

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/infra/local/lambda/event"
	"github.com/clusterpass/clusterpass/shared/lambdahttp"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// TestTarget: HTTP requests must work the same with functions in processes and inline.
func TestTarget(t *testing.T) {
	inline := http.NewServeMux()
	inline.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		w.Header().Set("X-Uri", r.RequestURI)
		w.Header()["X-Given"] = r.Header["X-Given"]
		_, _ = io.Copy(w, r.Body)
	})
	inline.HandleFunc("/panic", func(http.ResponseWriter, *http.Request) { panic("boom") })
	inline.HandleFunc("/big", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 3<<20)) })
	invokers := map[string]Invoker{
		"process": newFunction(t, Config{}),
		"inline":  Inline{Function: lambdahttp.New(inline, lambdahttp.Options{Log: slog.New(slog.DiscardHandler)})},
	}
	for name, inv := range invokers {
		t.Run(name, func(t *testing.T) {
			var log waittest.Buffer
			srv := httptest.NewServer(Target{Invoker: inv, Front: event.ALB{TargetGroupARN: "arn:x"},
				Log: slog.New(slog.NewTextHandler(&log, nil))})
			defer srv.Close()
			do := func(method, uri string, body []byte, header http.Header) (*http.Response, []byte) {
				t.Helper()
				req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+uri, bytes.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header = header
				resp, err := srv.Client().Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				b, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				return resp, b
			}
			body := []byte("\x00\xff{\"a\":\"λ\"}")
			resp, got := do("POST", "/echo?a=%2F&a=b,c", body,
				http.Header{"X-Given": {"1, 2", "3"}, "Content-Type": {"application/x"}})
			if resp.StatusCode != 200 || !bytes.Equal(got, body) || resp.Header.Get("X-Uri") != "/echo?a=%2F&a=b,c" ||
				strings.Join(resp.Header["X-Given"], "|") != "1, 2|3" || resp.Header.Get("Content-Type") != "application/x" {
				t.Errorf("got %d %v %q", resp.StatusCode, resp.Header, got)
			}
			for _, tt := range []struct {
				method, uri string
				header      http.Header
				body        []byte
				want        int
				wantALB     bool // the page of the load balancer itself
			}{
				{"GET", "/panic", nil, nil, 500, false},
				{"GET", "/big?n=3000000", nil, nil, 413, false}, // the adapter knows the limit of an ALB
				{"GET", "/echo", http.Header{"Upgrade": {"websocket"}, "Connection": {"upgrade"}}, nil, 400, true},
				{"POST", "/echo", nil, make([]byte, 1<<20+1), 413, true},
			} {
				resp, got := do(tt.method, tt.uri, tt.body, tt.header)
				if isALB := resp.Header.Get("Server") == "awselb/2.0"; resp.StatusCode != tt.want || isALB != tt.wantALB {
					t.Errorf("%s %s: got %d %v %.200q", tt.method, tt.uri, resp.StatusCode, resp.Header, got)
				}
			}
			if name == "process" {
				resp, got := do("GET", "/exit", nil, nil)
				if resp.StatusCode != 502 || resp.Header.Get("Server") != "awselb/2.0" ||
					!strings.Contains(log.String(), "Runtime.ExitError") {
					t.Errorf("got %d %q, log %s", resp.StatusCode, got, log.String())
				}
			}
		})
	}
}

type funcInvoker func(context.Context, []byte) ([]byte, error)

func (f funcInvoker) Invoke(ctx context.Context, b []byte) ([]byte, error) { return f(ctx, b) }

func TestInline(t *testing.T) {
	answer := func(n int) Inline {
		return Inline{Function: funcInvoker(func(context.Context, []byte) ([]byte, error) { return make([]byte, n), nil })}
	}
	if _, err := answer(1).Invoke(t.Context(), make([]byte, RequestLimit+1)); !errors.Is(err, ErrRequestTooLarge) {
		t.Errorf("request: %v", err)
	}
	var fe *FunctionError
	if _, err := answer(ResponseLimit+1).Invoke(t.Context(), nil); !errors.As(err, &fe) {
		t.Errorf("response: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in := Inline{Timeout: time.Minute, Function: funcInvoker(func(ctx context.Context, _ []byte) ([]byte, error) {
		if end, ok := ctx.Deadline(); !ok || time.Until(end) > time.Minute || ctx.Err() != nil {
			t.Errorf("deadline %v %t, %v", end, ok, ctx.Err())
		}
		return nil, errors.New("no event")
	})}
	if _, err := in.Invoke(ctx, nil); !errors.As(err, &fe) {
		t.Errorf("error: %v", err)
	}
}
