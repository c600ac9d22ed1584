package bridge

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/agentserver"
)

// TestCloudWatchLine: the alarms and the scaling of infra/aws use these metrics.
func TestCloudWatchLine(t *testing.T) {
	hs := serve(t, Limits{MaxStreams: 4}, Drain{Timeout: time.Second}, stays)
	for range 2 {
		hs.get("alice", watchPath)
	}
	now := time.UnixMilli(1_700_000_000_000)
	line, _, err := hs.bridge.cloudWatchLine("Clusterpass/test", now, totals{})
	if err != nil {
		t.Fatal(err)
	}
	wantStreamMetrics(t, line, now)
	for _, field := range []string{`"Agents":0`, `"TunnelStreams":0`} { // which the dashboard queries
		if !bytes.Contains(line, []byte(field)) {
			t.Errorf("%s has no %s", line, field)
		}
	}
	for range 3 {
		hs.get("alice", watchPath) // the third exceeds the limit
	}
	_, all, err := hs.bridge.cloudWatchLine("Clusterpass/test", now, totals{})
	if err != nil || all.failed != 1 {
		t.Errorf("%v, %v", all, err)
	}
	if bytes.Contains(line, []byte("StaleReads")) {
		t.Errorf("%s", line)
	}
	hs.bridge.CountCaches(func() map[string]cache.Stats { return map[string]cache.Stats{"secrets": {StaleHits: 5}} })
	line, _, err = hs.bridge.cloudWatchLine("Clusterpass/test", now, totals{stale: 2})
	if err != nil || !bytes.Contains(line, []byte(`"StaleReads":3,`)) ||
		!bytes.Contains(line, []byte(`{"Name":"StaleReads","Unit":"Count"}`)) {
		t.Errorf("%s, %v", line, err)
	}
}

func wantStreamMetrics(t *testing.T, line []byte, now time.Time) {
	t.Helper()
	type group struct {
		Namespace  string
		Dimensions [][]string
		Metrics    []struct{ Name, Unit string }
	}
	var got struct {
		AWS struct {
			Timestamp         int64
			CloudWatchMetrics []group
		} `json:"_aws"`
		OpenStreams, FailedStreams, StreamSaturation *float64
	}
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatal(err)
	}
	groups := got.AWS.CloudWatchMetrics
	if got.AWS.Timestamp != now.UnixMilli() || len(groups) != 1 || groups[0].Namespace != "Clusterpass/test" ||
		len(groups[0].Dimensions) != 1 || len(groups[0].Dimensions[0]) != 0 || len(groups[0].Metrics) != 3 {
		t.Errorf("%s", line)
	}
	for name, value := range map[string]struct {
		got  *float64
		want float64
	}{
		"OpenStreams": {got.OpenStreams, 2}, "FailedStreams": {got.FailedStreams, 0},
		"StreamSaturation": {got.StreamSaturation, 50},
	} {
		if value.got == nil || *value.got != value.want {
			t.Errorf("%s: want %v in %s", name, value.want, line)
		}
	}
}

func TestCloudWatchLineOfAudit(t *testing.T) {
	log := audit.New(audit.Config{
		To: failing{}, Queue: 1, FailClosed: true, Log: slog.New(slog.DiscardHandler),
	})
	for range 3 {
		q := log.Begin(httptest.NewRequest(http.MethodGet, "/", nil))
		_ = q.Admit(t.Context())
		q.User(audit.User{Username: "ann"}, "x509")
		q.Completed(http.StatusOK, nil)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = log.Close(ctx) // loses the event that waits
	b := New(Limits{})
	b.RegisterAuditMetrics(gateway.New(gateway.Config{Audit: log}))
	line, all, err := b.cloudWatchLine("Clusterpass/test", time.Now(), totals{})
	for _, want := range []string{
		`"AuditEventsLost":1,`, `"AuditCallsRefused":2,`, `{"Name":"AuditCallsRefused","Unit":"Count"}`,
	} {
		if err != nil || !bytes.Contains(line, []byte(want)) {
			t.Errorf("no %s in %s, %v", want, line, err)
		}
	}
	line, _, err = b.cloudWatchLine("Clusterpass/test", time.Now(), all)
	if err != nil || bytes.Contains(line, []byte("Audit")) {
		t.Errorf("%s, %v", line, err)
	}
}

// TestCloudWatchLineOfReusedCredentials: without this metric, AWS raises no alarm when a copy of a credential is used.
func TestCloudWatchLineOfReusedCredentials(t *testing.T) {
	b := New(Limits{})
	reuses := prometheus.NewCounter(prometheus.CounterOpts{Name: agentserver.ReusesMetric})
	b.Metrics.MustRegister(reuses)
	reuses.Inc()
	line, all, err := b.cloudWatchLine("Clusterpass/test", time.Now(), totals{})
	for _, want := range []string{`"AgentCredentialReuses":1,`, `{"Name":"AgentCredentialReuses","Unit":"Count"}`} {
		if err != nil || !bytes.Contains(line, []byte(want)) {
			t.Errorf("no %s in %s, %v", want, line, err)
		}
	}
	line, _, err = b.cloudWatchLine("Clusterpass/test", time.Now(), all)
	if err != nil || bytes.Contains(line, []byte("AgentCredential")) {
		t.Errorf("%s, %v", line, err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestCloudWatchLineOfTunnels(t *testing.T) {
	b := New(Limits{MaxStreams: 4, Recheck: time.Minute})
	parts, err := assembly.Open(t.Context(), assembly.Env{
		Store: stores.Address{Kind: "dir", Where: t.TempDir()}, URL: gatewayURL,
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	keys, token := enrol(t, parts.Stores)
	private := Private{MaxAgents: 1}.newAgents(b, parts)
	t.Cleanup(private.Close)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := private.Listen(ln)
	t.Cleanup(func() { _ = port.Close() })
	front := httptest.NewTLSServer(private.Handler(http.NotFoundHandler()))
	t.Cleanup(front.Close)
	runAgent(t, front.Listener.Addr().String(), token)
	says := func(want string) func() bool {
		return func() bool {
			line, _, err := b.cloudWatchLine("Clusterpass/test", time.Now(), totals{})
			return err == nil && bytes.Contains(line, []byte(want))
		}
	}
	conn := connect(t, keys, ln.Addr().String())
	// Attempts before the agent was connected may count for a moment.
	waittest.Until(t, "the connection is counted", says(`"OpenStreams":1,"StreamSaturation":25,`))
	_ = conn.Close()
	waittest.Until(t, "nothing is counted", says(`"OpenStreams":0,"StreamSaturation":0,`))
}

// TestSelfSigned: a load balancer that verifies no certificate reaches the bridge by TLS, with HTTP/1.1 only.
func TestSelfSigned(t *testing.T) {
	cfg := &Config{Listen: "127.0.0.1:0", SelfSigned: true}
	certificate, stop, err := cfg.openCertificate(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ln, err := cfg.listen(t.Context(), certificate)
	if err != nil {
		t.Fatal(err)
	}
	protocol := func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }
	srv := Limits{}.HTTPServer(http.HandlerFunc(protocol))
	served := make(chan error)
	go func() { served <- srv.Serve(ln) }()
	client := &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // like the load balancer
	}}
	resp, err := client.Get("https://" + ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || string(b) != "HTTP/1.1" {
		t.Errorf("%q, %v", b, err)
	}
	_ = srv.Close()
	<-served
}
