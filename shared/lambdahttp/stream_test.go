package lambdahttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// parseStream splits a stream like API Gateway.
func parseStream(t *testing.T, b []byte) answer {
	t.Helper()
	head, body, ok := bytes.Cut(b, make([]byte, 8))
	if !ok {
		t.Fatalf("no delimiter in %q", b)
	}
	var a answer
	dec := json.NewDecoder(bytes.NewReader(head))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&a); err != nil {
		t.Fatalf("%v in %q", err, head)
	}
	a.body = string(body)
	return a
}

func TestStream(t *testing.T) {
	step := make(chan struct{})
	f := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Warning", "299 - a")
		w.Header().Add("Warning", "299 - b")
		w.WriteHeader(http.StatusAccepted)
		for _, s := range []string{"one", "\x00\x00\x00\x00\x00\x00\x00\x00", "three"} {
			_, _ = io.WriteString(w, s)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			<-step
		}
	}), Options{Stream: true})
	s, err := f.InvokeStream(t.Context(), payload(t, "rest"))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.ContentType(); got != "application/vnd.awslambda.http-integration-response" {
		t.Errorf("content type %s", got)
	}
	// Flushed data arrives while the handler waits.
	var all []byte
	for _, want := range []string{"one", "\x00\x00\x00\x00\x00\x00\x00\x00", "three"} {
		for !bytes.HasSuffix(all, []byte(want)) {
			p := make([]byte, 100)
			n, err := s.Read(p)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, p[:n]...)
		}
		step <- struct{}{}
	}
	if n, err := s.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the end is %d, %v", n, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	got := parseStream(t, all)
	if got.StatusCode != 202 || len(got.MultiValueHeaders["Warning"]) != 2 ||
		got.body != "one\x00\x00\x00\x00\x00\x00\x00\x00three" {
		t.Errorf("got %+v", got)
	}
}

// TestStreamIsUnlimited: a stream has no limit, and other events keep theirs.
func TestStreamIsUnlimited(t *testing.T) {
	const size = 20 << 20
	f := New(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("x"), size))
	}), Options{Stream: true, MaxResponse: 1000})
	for event, want := range map[string]int{"rest": 200, "alb-multi": 413, "http": 413} {
		s, err := f.InvokeStream(t.Context(), payload(t, event))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(s)
		if err != nil {
			t.Error(err)
		}
		_ = s.Close()
		if event == "rest" {
			if got := parseStream(t, b); got.StatusCode != want || len(got.body) != size {
				t.Errorf("got %d, %d bytes", got.StatusCode, len(got.body))
			}
		} else if got := decode(t, b); got.StatusCode != want || s.ContentType() != "application/json" {
			t.Errorf("%s: got %d as %s", event, got.StatusCode, s.ContentType())
		}
	}
}

// TestBrokenStreams: a response that is cut off ends with an error, and one that never started becomes a Status.
func TestBrokenStreams(t *testing.T) {
	for name, tt := range map[string]struct {
		handler  http.HandlerFunc
		wantCode int // 0 means an error
	}{
		"abort at once":      {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 502},
		"panic at once":      {func(http.ResponseWriter, *http.Request) { panic("boom") }, 500},
		"panic with headers": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); panic("boom") }, 500},
		"timeout":            {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 504},
		"upgrade":            {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(101) }, 502},
		"abort later": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "some")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, 0},
		"panic later": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "some"); panic("boom") }, 0},
		"short": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			_, _ = io.WriteString(w, "some")
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if tt.wantCode == 504 {
				ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
			}
			defer cancel()
			f := New(tt.handler, Options{Stream: true, Log: slog.New(slog.DiscardHandler)})
			s, err := f.InvokeStream(ctx, payload(t, "rest"))
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(s)
			_ = s.Close()
			if tt.wantCode == 0 {
				if err == nil {
					t.Errorf("a broken answer ended well: %q", b)
				}
				if err != nil && strings.Contains(err.Error(), "boom") {
					t.Errorf("the panic is in the error: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := parseStream(t, b)
			if statusOf(t, got); got.StatusCode != tt.wantCode {
				t.Errorf("got %d, want %d", got.StatusCode, tt.wantCode)
			}
		})
	}
}

// TestStreamClosed: Close stops a running handler and waits for it.
func TestStreamClosed(t *testing.T) {
	ended := false
	f := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended = true }()
		for {
			if _, err := w.Write(make([]byte, 1000)); err != nil {
				<-r.Context().Done()
				return
			}
		}
	}), Options{Stream: true})
	s, err := f.InvokeStream(t.Context(), payload(t, "rest"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil || !ended {
		t.Errorf("close: %v, the handler has ended: %t", err, ended)
	}
}
