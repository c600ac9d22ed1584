package bridge

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/pipetest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

const listPath = "/clusters/m/api/v1/pods"

// hang starts a request on its own connection. The returned function waits for the response's status code.
func (hs *bridgeServer) hang(user, path string, header ...string) func() int {
	hs.t.Helper()
	conn, err := tls.Dial("tcp", hs.addr, hs.tls(user))
	if err != nil {
		hs.t.Fatal(err)
	}
	hs.t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, request(path, header...)); err != nil {
		hs.t.Fatal(err)
	}
	return func() int {
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			hs.t.Fatal(err)
		}
		return resp.StatusCode
	}
}

// TestLimitsOfCalls: no caller can use all requests of a bridge, and streams do not count as requests.
func TestLimitsOfCalls(t *testing.T) {
	answer := make(chan struct{})
	hs := serve(t, Limits{MaxCalls: 3, MaxCallsPerCaller: 2}, Drain{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			stays(w, r)
			return
		}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	})
	open := func(n float64) {
		t.Helper()
		waittest.Until(t, "the calls are counted", func() bool { return hs.metric("clusterpass_calls_open") == n })
	}
	var answers []func() int
	for i, user := range []string{"alice", "alice", "bob"} {
		if i == 2 {
			for range 3 { // streams have other limits, but start as requests
				hs.get("bob", watchPath)
			}
			open(2)
			resp, _ := hs.get("alice", listPath)
			if resp.Header.Get("Retry-After") != "5" {
				t.Errorf("Retry-After %q", resp.Header.Get("Retry-After"))
			}
			gatewaytest.WantStatus(t, resp, http.StatusTooManyRequests, "too_many_requests", "you have 2 calls in flight")
		}
		answers = append(answers, hs.hang(user, listPath))
		open(float64(i + 1))
	}
	resp, _ := hs.get("carol", listPath)
	gatewaytest.WantStatus(t, resp, http.StatusTooManyRequests, "too_many_requests", "the bridge has 3 calls in flight")
	if all, each := hs.metric("clusterpass_calls_refused_total", "limit=all"), hs.metric("clusterpass_calls_refused_total",
		"limit=caller"); all != 1 || each != 1 {
		t.Errorf("refused: %v for the limit of all, %v for that of one", all, each)
	}
	close(answer)
	for _, code := range answers {
		if got := code(); got != http.StatusOK {
			t.Errorf("answer %d", got)
		}
	}
	open(0)
}

// TestHangingClusterLeavesCallsForOthers: calls of many users to one cluster that hangs must not use up the calls that
// all clusters share.
func TestHangingClusterLeavesCallsForOthers(t *testing.T) {
	answer := make(chan struct{})
	hs := serve(t, Limits{MaxCalls: 3, MaxCallsPerMember: 2}, Drain{}, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	})
	hs.addMember("healthy", func(http.ResponseWriter, *http.Request) {})
	var answers []func() int
	for i, user := range []string{"alice", "bob"} {
		answers = append(answers, hs.hang(user, listPath))
		waittest.Until(t, "the call is counted", func() bool { return hs.metric("clusterpass_calls_open") == float64(i+1) })
	}
	resp, _ := hs.get("carol", listPath)
	if resp.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	gatewaytest.WantStatus(t, resp, http.StatusTooManyRequests, "too_many_requests", `cluster "m" has 2 calls in flight`)
	if resp, _ := hs.get("carol", "/clusters/healthy/api/v1/pods"); resp.StatusCode != http.StatusOK {
		t.Errorf("another cluster: %s", resp.Status)
	}
	if n := hs.metric("clusterpass_calls_refused_total", "limit=cluster"); n != 1 {
		t.Errorf("%v calls were refused", n)
	}
	close(answer)
	for _, code := range answers {
		if got := code(); got != http.StatusOK {
			t.Errorf("answer %d", got)
		}
	}
	waittest.Until(t, "the calls have ended", func() bool { return hs.metric("clusterpass_calls_open") == 0 })
	if resp, _ := hs.get("carol", listPath); resp.StatusCode != http.StatusOK {
		t.Errorf("after the calls: %s", resp.Status)
	}
}

// TestLimitsOfStrangers: a client with a new token for each request must not use the slots of identified callers.
func TestLimitsOfStrangers(t *testing.T) {
	answer := make(chan struct{})
	hs := serve(t, Limits{MaxUnverified: 3, Unidentified: Unidentified{Source: limits.NoSource}}, Drain{}, stays)
	hs.addMember("open", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			stays(w, r)
			return
		}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
	}, func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Passthrough })
	const watch, list = "/clusters/open/api/v1/pods?watch=true", "/clusters/open/api/v1/pods"
	token := func(n string) string { return "Authorization: Bearer token-" + n }
	for _, n := range []string{"1", "2"} {
		if resp, _ := hs.get("", watch, token(n)); resp.StatusCode != http.StatusOK {
			t.Fatalf("watch: %s", resp.Status)
		}
	}
	code := hs.hang("", list, token("3"))
	waittest.Until(t, "the call is counted", func() bool { return hs.metric("clusterpass_calls_open") == 1 })
	for _, path := range []string{watch, list} {
		resp, _ := hs.get("", path, token("4"))
		gatewaytest.WantStatus(t, resp, http.StatusTooManyRequests, "too_many_requests",
			"tokens that only clusters can verify")
	}
	if n := hs.metric("clusterpass_calls_refused_total", "limit=unverified"); n != 2 {
		t.Errorf("%v refused", n)
	}
	if resp, _ := hs.get("alice", watchPath); resp.StatusCode != http.StatusOK {
		t.Errorf("a known caller: %s", resp.Status)
	}
	close(answer)
	if got := code(); got != http.StatusOK {
		t.Errorf("answer %d", got)
	}
	waittest.Until(t, "the place is free", func() bool {
		resp, _ := hs.get("", list, token("5"))
		return resp.StatusCode == http.StatusOK
	})
}

// TestUnreadStream: a client that does not read delays neither the start of its stream nor its end.
func TestUnreadStream(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, tt := range map[string]struct {
		limits Limits
		read   int // lines of the response to read
	}{
		"nothing is read":                {Limits{StallTimeout: 200 * time.Millisecond}, 0},
		"the head is read":               {Limits{StallTimeout: 10 * time.Second}, 1},
		"ended by the bridge":            {Limits{StreamTimeout: 200 * time.Millisecond}, 0},
		"ended by the bridge, long wait": {Limits{StreamTimeout: 200 * time.Millisecond, StallTimeout: time.Hour}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hs := serve(t, tt.limits, Drain{}, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "line\n")
			})
			ln, served, ended := pipetest.Listen(), make(chan struct{}), make(chan struct{})
			srv := tt.limits.HTTPServer(hs.handler)
			go func() {
				_ = srv.Serve(tls.NewListener(ln, hs.tlsServer))
				close(served)
			}()
			defer func() { _ = srv.Close(); <-served }()
			ours, theirs := net.Pipe()
			defer func() { _ = ours.Close() }()
			ln.Hand(notifyingConn{theirs, ended})
			cfg := hs.tls("alice")
			// With TLS 1.3 the server continues to write after the handshake.
			cfg.ServerName, cfg.MaxVersion = "example.com", tls.VersionTLS12
			conn := tls.Client(ours, cfg)
			if _, err := io.WriteString(conn, request(logPath)); err != nil {
				t.Fatal(err)
			}
			br := bufio.NewReaderSize(conn, 16)
			for range tt.read {
				if _, err := br.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case <-ended:
			case <-time.After(2 * time.Minute):
				t.Fatal("the bridge still waits for its client")
			}
			waittest.Until(t, "the stream is closed", hs.isIdle)
		})
	}
}

type notifyingConn struct {
	net.Conn
	ended chan struct{}
}

func (c notifyingConn) Close() error {
	defer close(c.ended)
	return c.Conn.Close()
}
