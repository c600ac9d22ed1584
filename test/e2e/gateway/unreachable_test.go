package gateway_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestUnreachableClusterIsExplained fails if kubectl printed "unknown" in place of the reason, or waited for minutes.
// It may print as many lines as for a server that refuses connections.
func TestUnreachableClusterIsExplained(t *testing.T) {
	lost := cluster.Start(t, cluster.Options{Clusters: []string{"lost"}, NoKubelet: true}).Cluster("lost")
	member2 := e2e.Clusters.Cluster("member2")
	refused := strings.TrimPrefix(clustertest.RefusingURL(t), "https://")
	hanging := "127.0.0.1:" + strconv.Itoa(e2e.ServeTCP(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }))
	e2e.Register(t, "lost", lost.Kubeconfig())
	registerUnchecked(t, "refused", "https://"+refused, lost.CA())
	registerUnchecked(t, "hanging", "https://"+hanging, lost.CA())
	registerUnchecked(t, "stranger", member2.Server(), lost.CA())
	for _, k := range atBothPrograms(t, "lost") {
		k.MustEventually(t, "get", "namespaces")
	}
	if err := lost.Kill(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	direct := e2e.Kubectl{Kubeconfig: lost.KubeconfigFile(), Context: "lost"}.Run(t, "get", "pods")
	lines := len(strings.Split(strings.TrimSpace(direct.Stderr), "\n"))
	for name, reason := range map[string]string{
		"lost":     `cluster "lost" is unreachable at ` + hostOf(lost),
		"refused":  `cluster "refused" is unreachable at ` + refused,
		"hanging":  `cluster "hanging" at ` + hanging + ` did not answer in time`,
		"stranger": `cluster "stranger" at ` + hostOf(member2) + ` shows a certificate that is not trusted`,
	} {
		t.Run(name, func(t *testing.T) {
			checkExplained(t, name, lines, reason)
			k := e2e.OwnAPI(t)
			r := k.Run(t, "get", "--raw", "/clusters/"+name+"/api/v1/pods") // no discovery, so a Status
			if r.Code != 1 || !strings.Contains(r.Stderr, "Error from server (ServiceUnavailable): "+reason) &&
				!strings.Contains(r.Stderr, "Error from server (Timeout): "+reason) {
				t.Errorf("want %s: %v", reason, r)
			}
		})
	}
	t.Run("paused", func(t *testing.T) {
		if err := lost.Restart(t.Context(), cluster.APIServer); err != nil {
			t.Fatal(err)
		}
		for _, k := range atBothPrograms(t, "lost") {
			k.MustEventually(t, "get", "namespaces")
		}
		if err := lost.Pause(t.Context(), cluster.APIServer); err != nil {
			t.Fatal(err)
		}
		// The text depends on what comes first: a deadline, the end of the connection, or the gateway's probe.
		checkExplained(t, "lost", lines, `cluster "lost" `, " not ", "answer")
	})
}

func checkExplained(t *testing.T, name string, lines int, texts ...string) {
	t.Helper()
	for program, k := range atBothPrograms(t, name) {
		began := time.Now()
		r := k.Run(t, "get", "pods") // ends after 5 minutes, with a signal
		t.Logf("%s: kubectl ends after %s", program, time.Since(began).Round(time.Millisecond))
		printed := strings.Split(strings.TrimSpace(r.Stderr), "\n")
		if r.Code != 1 || len(printed) != lines {
			t.Errorf("%s: exit %d with %d lines, want 1 with %d:\n%s", program, r.Code, len(printed), lines, r.Stderr)
		}
		for _, line := range printed {
			unquoted := strings.ReplaceAll(line, `\`, "") // kubectl quotes the text, and its log quotes that again
			for _, text := range texts {
				if !strings.Contains(unquoted, text) {
					t.Errorf("%s: no %s in: %s", program, text, line)
				}
			}
		}
	}
}

func hostOf(c *cluster.Cluster) string { return strings.TrimPrefix(c.Server(), "https://") }

// atBothPrograms returns kubectl at a cluster through the function and through the bridge.
func atBothPrograms(t *testing.T, name string) map[string]e2e.Kubectl {
	t.Helper()
	function := e2e.OwnAPI(t)
	bridge, root := function, "https://"+e2e.HostOf(t, function.Kubeconfig)
	function.Server, bridge.Server = root+"/clusters/"+name, root+"/bridge/clusters/"+name
	return map[string]e2e.Kubectl{"function": function, "bridge": bridge}
}

func registerUnchecked(t *testing.T, name, server string, ca []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, clustertest.Kubeconfig(server, ca, `{"token":"unused"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := e2e.CLI(t, "", "cluster", "add", name, "--kubeconfig", file, "--skip-check", "--identity",
		"impersonate"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = e2e.CLI(t, "", "cluster", "remove", name) })
}
