package bridge

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/text"
)

const (
	watchPath = "/clusters/m/api/v1/pods?watch=true"
	logPath   = "/m/api/v1/namespaces/a/pods/p/log?follow=true"
	execPath  = "/clusters/m/api/v1/namespaces/a/pods/p/exec?command=sh"
)

var upgrade = []string{"Connection: Upgrade", "Upgrade: SPDY/3.1"}

// stays sends one event and then keeps the response open. It echoes an upgraded connection.
func stays(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "" {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn,
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
		_, _ = io.Copy(conn, rw)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, "{}\n")
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func TestLimitsOfStreams(t *testing.T) {
	hs := serve(t, Limits{MaxStreams: 3, MaxPerCaller: 2}, Drain{}, stays)
	hs.get("alice", watchPath)
	_, exec := hs.get("alice", execPath, upgrade...)
	resp, _ := hs.get("alice", logPath)
	if resp.Header.Get("Retry-After") != "5" {
		t.Errorf("Retry-After %q", resp.Header.Get("Retry-After"))
	}
	gatewaytest.WantStatus(t, resp, 429, "too_many_requests", "you have 2 streams open")
	hs.get("bob", watchPath)
	resp, _ = hs.get("carol", watchPath)
	gatewaytest.WantStatus(t, resp, 429, "too_many_requests", "the bridge has 3 streams open")
	if got := hs.metric("clusterpass_streams_open", "kind=watch", "cluster=m"); got != 2 {
		t.Errorf("%v watches are open", got)
	}
	if got := hs.metric("clusterpass_stream_failures_total", "kind=logs", "reason=too_many_requests"); got != 1 {
		t.Errorf("%v refused", got)
	}
	// A request that is no stream has another limit.
	go func() { _ = exec.Close() }()
	waittest.Until(t, "the place of a closed stream is free", func() bool {
		resp, _ := hs.get("alice", logPath)
		return resp.StatusCode == 200
	})
}

func TestStreamsEnd(t *testing.T) {
	t.Parallel()                  // it mostly waits
	const short = 4 * time.Second // long enough for the stream to start: an earlier end looks like a cut
	tests := []struct {
		name   string
		limits Limits
		path   string
		header []string
		reason string
		want   error // at the client
	}{
		{"silent watch", Limits{IdleTimeout: short}, watchPath, nil, "idle_timeout", nil},
		{"silent log", Limits{IdleTimeout: short}, logPath, nil, "idle_timeout", io.ErrUnexpectedEOF},
		{"silent exec", Limits{IdleTimeout: short}, execPath, upgrade, "idle_timeout", nil},
		{"long watch", Limits{StreamTimeout: short}, watchPath, nil, "session_timeout", nil},
		{"long log", Limits{StreamTimeout: short}, logPath, nil, "session_timeout", io.ErrUnexpectedEOF},
		{"long exec", Limits{StreamTimeout: short}, execPath, upgrade, "session_timeout", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			hs := serve(t, tt.limits, Drain{}, stays)
			resp, conn := hs.get("alice", tt.path, tt.header...)
			for resp.StatusCode == http.StatusGatewayTimeout { // the time was over before the start
				resp, conn = hs.get("alice", tt.path, tt.header...)
			}
			var rest io.Reader = resp.Body
			if resp.StatusCode == http.StatusSwitchingProtocols {
				rest = conn
			}
			got, err := io.ReadAll(rest)
			if !errors.Is(err, tt.want) || len(got) > 0 && string(got) != "{}\n" {
				t.Errorf("%q, %v; want %v", got, err, tt.want)
			}
			waittest.Until(t, "the reason is counted", func() bool {
				return hs.metric("clusterpass_stream_failures_total", "reason="+tt.reason) > 0
			})
		})
	}
}

// TestStalledClient: a client that does not read blocks its member instead of filling memory, and is cut in the end.
func TestStalledClient(t *testing.T) {
	t.Parallel() // it mostly waits
	var sent atomic.Int64
	gone := make(chan struct{})
	hs := serve(t, Limits{StallTimeout: 10 * time.Second}, Drain{}, func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		line := strings.Repeat("x", 1<<16)
		for r.Context().Err() == nil {
			n, err := io.WriteString(w, line)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	resp, _ := hs.get("alice", logPath)
	<-gone
	if n := sent.Load(); n > 64<<20 {
		t.Errorf("the member could send %d bytes to a client that took none", n)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("what was cut looks whole")
	}
	waittest.Until(t, "the reason is counted", func() bool {
		return hs.metric("clusterpass_stream_failures_total", "kind=logs", "reason=stalled") == 1
	})
}

// TestDeadlinesStayWithTheirStream: later requests on the connection would fail without a reason.
func TestDeadlinesStayWithTheirStream(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	t.Parallel() // it mostly waits
	hs := serve(t, Limits{StallTimeout: 6 * time.Second}, Drain{}, func(w http.ResponseWriter, r *http.Request) {
		line := "{}\n"
		for strings.HasSuffix(r.URL.Path, "/log") && r.Context().Err() == nil {
			line = strings.Repeat("x", 1<<16)
			if _, err := io.WriteString(w, line); err != nil {
				return
			}
		}
		_, _ = io.WriteString(w, line)
	})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: hs.tls("alice"), MaxConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	for i, path := range []string{watchPath, "/m/api/v1/pods"} {
		resp, err := client.Get("https://" + hs.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "{}\n" {
			t.Errorf("%s: %q, %v", path, body, err)
		}
		_ = resp.Body.Close()
		if i == 0 { // A stream that starts now and stalls has a later deadline. So the watch's has passed, too.
			hs.get("alice", logPath)
			waittest.Until(t, "a later deadline has passed", func() bool {
				return hs.metric("clusterpass_stream_failures_total", "kind=logs", "reason=stalled") == 1
			})
		}
	}
}

func TestEndOfAStalledClient(t *testing.T) {
	t.Parallel() // it mostly waits
	gone := make(chan struct{})
	hs := serve(t, Limits{}, Drain{Timeout: time.Second}, func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		line := strings.Repeat("x", 1<<16)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, line); err != nil {
				return
			}
		}
	})
	hs.get("alice", logPath)
	hs.stop()
	<-gone
	waittest.Until(t, "the stream is closed", hs.isIdle)
}

func TestEndOfAStalledTextClient(t *testing.T) {
	t.Parallel() // it mostly waits
	gone := make(chan struct{})
	hs := serve(t, Limits{}, Drain{Timeout: time.Second}, talking(t, func(conn *websocket.Conn) {
		defer close(gone)
		for conn.WriteMessage(websocket.BinaryMessage, append([]byte{1}, strings.Repeat("x", 1<<15)...)) == nil {
		}
	}))
	hs.mustDial("alice", execPath, text.Protocol)
	hs.stop()
	<-gone
	waittest.Until(t, "the stream is closed", hs.isIdle)
}

func TestLargeHeader(t *testing.T) {
	hs := serve(t, Limits{MaxHeader: 8 << 10}, Drain{}, stays)
	resp, _ := hs.get("alice", watchPath, "X-Large: "+strings.Repeat("x", 20<<10))
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("answer %s", resp.Status)
	}
}
