package console

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestClusterGoesDownAndComesBack fails if the view does not show that a cluster is down, why, and what to do. It also
// fails if the view does not show that the cluster is back.
func TestClusterGoesDownAndComesBack(t *testing.T) {
	member := e2e.Clusters.Cluster("member2")
	s := startAsOwner(t, "clusters.mjs")
	s.step("live")
	if err := member.Kill(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	s.next("")
	s.step("down")
	if err := member.Restart(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	s.next("")
	s.end()
}

// markup calls hostile() if a browser shows it as HTML.
const markup = `<img src=x onerror="hostile()"><svg onload=hostile()></svg><script>hostile()</script>`

// TestHostileStatusIsText fails if a member could run a script in the console by what it answers to a probe. The script
// would have the rights of the visitor in every cluster.
func TestHostileStatusIsText(t *testing.T) {
	version, err := json.Marshal(map[string]string{"gitVersion": markup, "major": "1", "minor": "36"})
	if err != nil {
		t.Fatal(err)
	}
	evil := clustertest.NewStreamingMember(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(version)
	})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, evil.Kubeconfig(`{token: unused}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := e2e.CLI(t, "", "cluster", "add", "evil", "--kubeconfig", file, "--skip-check", "--identity",
		"impersonate"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = e2e.CLI(t, "", "cluster", "remove", "evil") })
	s := startAsOwner(t, "hostile-status.mjs", "MARKUP="+markup)
	s.end()
}

// TestAgentsAreCounted fails if a user does not see how many agents connect to a private cluster.
func TestAgentsAreCounted(t *testing.T) {
	p := &e2e.PrivateCluster{
		Name: "branch", Member: e2e.Clusters.Cluster("member2"), Gateway: e2e.Shared(t).Kubeconfig,
	}
	p.Join(t, "--tunnel", e2e.SharedTunnel(t))
	s := startAsOwner(t, "agents.mjs")
	s.step("none")
	for range 2 {
		agent := p.AgentCommand(t)
		agent.Stderr = e2e.Printed
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = agent.Process.Kill(); _ = agent.Wait() })
	}
	s.next("")
	s.end()
}

// TestLostConnection fails if the page does not show that it is old while the gateway is unreachable, or does not
// continue afterwards.
func TestLostConnection(t *testing.T) {
	connections := &e2e.Connections{}
	addr := e2e.HostOf(t, e2e.Shared(t).Kubeconfig)
	port := e2e.ServeTCP(t, func(client net.Conn) {
		server, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		defer server.Close()
		connections.Add(client)
		connections.Add(server)
		go func() {
			_, _ = io.Copy(server, client)
			_ = server.Close()
		}()
		_, _ = io.Copy(client, server)
	})
	s := startAsOwner(t, "lost.mjs", "VIA=https://127.0.0.1:"+strconv.Itoa(port))
	s.step("live")
	connections.Close()
	s.next("")
	s.step("lost")
	connections.Open()
	s.next("")
	s.end()
}

// TestGatewayShowsMetrics fails if the view of the gateway shows no calls, or if someone without the right sees them.
func TestGatewayShowsMetrics(t *testing.T) {
	client, root := e2e.Caller(t)
	waittest.Until(t, "the metrics count a request", func() bool {
		resp, err := client.Get(root + "/bridge/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %v %s", resp.Status, err, body)
		}
		return strings.Contains(string(body), `clusterpass_call_duration_seconds_bucket{target="gateway",le="1"}`)
	})
	e2e.Grant(t, "member1", "reader")
	for kubeconfig, want := range map[string]string{
		e2e.CertificateKubeconfig(t, "reader"): "403 ",
		limitedPass(t, "--cluster", "member1"): "403 the metrics were refused: the pass is limited to clusters",
		limitedPass(t, "--verb", "create"):     "403 ",
	} {
		if got := e2e.StatusOf(t, kubeconfig, "/bridge/metrics", nil); !strings.HasPrefix(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	s := startAsOwner(t, "gateway.mjs")
	s.end()
}

func limitedPass(t *testing.T, args ...string) (kubeconfig string) {
	t.Helper()
	return e2e.WriteFile(t, e2e.CreatePass(t, e2e.UniqueName(t),
		append([]string{"--user", "owner", "--group", "system:masters"}, args...)...))
}
