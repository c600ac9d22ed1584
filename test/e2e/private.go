package e2e

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/cluster"
)

// PrivateCluster is registered with mode Pull. The gateway reaches it only through its agents.
type PrivateCluster struct {
	Name    string
	Member  *cluster.Cluster
	Gateway string   // kubeconfig of the gateway
	Store   []string // flags of the gateway's store; empty for the shared gateway's

	// Join sets these for the agents.
	Manifest       string
	CredentialFile string // a path
}

// Join registers p until the test ends.
func (p *PrivateCluster) Join(t *testing.T, flags ...string) {
	t.Helper()
	args := append([]string{"cluster", "join", "--pull", p.Name, "--kubeconfig", p.Member.KubeconfigFile(), "--context",
		p.Member.Name(), "--gateway", p.Gateway}, p.Store...)
	out, err := SecretCLI(t, "", append(args, flags...)...)
	if err != nil {
		t.Fatalf("join: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := CLI(t, "", append([]string{"cluster", "remove", p.Name}, p.Store...)...); err != nil &&
			!strings.Contains(out, "there is no cluster") {
			t.Errorf("remove: %v\n%s", err, out)
		}
	})
	output, manifest, ok := strings.Cut(out, "# The agents of cluster")
	token := regexp.MustCompile(`(?m)^  token: (\S+)$`).FindStringSubmatch(manifest)
	if !ok || token == nil || !strings.Contains(output, fmt.Sprintf("cluster %q is registered", p.Name)) {
		t.Fatalf("join said: %s", output)
	}
	value, err := base64.StdEncoding.DecodeString(token[1])
	if err != nil {
		t.Fatal(err)
	}
	Secrets.Secret("the agents of "+p.Name, string(value))
	p.Manifest, p.CredentialFile = "#"+manifest, filepath.Join(t.TempDir(), "credential")
	if err := os.WriteFile(p.CredentialFile, value, 0o600); err != nil {
		t.Fatal(err)
	}
}

// AgentCommand returns the command of an agent of p, which is not started.
func (p *PrivateCluster) AgentCommand(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	gw, err := kubeconfig.Read(p.Gateway)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(AgentProgram(t))
	cmd.Env = append([]string{
		"CLUSTERPASS_GATEWAY=" + gw.URL, "CLUSTERPASS_GATEWAY_CA=" + string(gw.CA), "CLUSTERPASS_CLUSTER=" + p.Name,
		"CLUSTERPASS_CREDENTIAL=file:" + p.CredentialFile,
		"CLUSTERPASS_API_SERVER=" + strings.TrimPrefix(p.Member.Server(), "https://"), "CLUSTERPASS_ADMIN_LISTEN=127.0.0.1:0",
		"CLUSTERPASS_DRAIN_TIMEOUT=1s",
	}, env...)
	return cmd
}

// AgentProgram returns the path of the agent's program.
func AgentProgram(t *testing.T) string {
	t.Helper()
	return Program(t, "websocket-bridge/agent", "clusterpass-agent")
}

// SharedTunnel returns the URL of the tunnel port of the shared gateway.
func SharedTunnel(t *testing.T) string {
	t.Helper()
	return "https://" + WaitForLog(t, Shared(t).Log, `"the tunnel port is open","address":"([^"]+)"`)
}

// WaitForLog waits until a log matches a regular expression, and returns its first group.
func WaitForLog(t *testing.T, log *waittest.Buffer, expr string) string {
	t.Helper()
	re := regexp.MustCompile(expr)
	var found []string
	waittest.Until(t, "log line "+re.String(), func() bool {
		found = re.FindStringSubmatch(log.String())
		return found != nil
	})
	return found[1]
}
