package private_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestAgentByHand: the commands of docs/guide/private-clusters.md must connect an agent without a Deployment.
func TestAgentByHand(t *testing.T) {
	page, err := os.ReadFile("../../../docs/guide/private-clusters.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Run an agent by hand\n")
	section, _, _ = strings.Cut(section, "\n## ")
	read := regexp.MustCompile(`(?m)^sed .*$`).FindAllString(section, -1)
	start := regexp.MustCompile(`(?m)^clusterpass-agent (?:.*\\\n)*.*$`).FindString(section)
	if len(read) != 2 || start == "" {
		t.Fatalf("the page has the commands %q and %q", read, start)
	}
	p := joinPrivate(t, "byhand")
	gateway, err := kubeconfig.Read(p.Gateway)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err = os.Mkdir(filepath.Join(dir, "agent"), 0o700); err == nil {
		err = os.WriteFile(filepath.Join(dir, "agent", "manifest.yaml"), []byte(p.Manifest), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	start = strings.NewReplacer("branch", p.Name, "https://127.0.0.1:8443", gateway.URL).Replace(start)
	script := strings.Join(append(read, "exec "+start+" --admin-listen 127.0.0.1:0"), "\n")
	e2e.StartCommand(t, "clusterpass-agent", func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "sh", "-ec", script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "SERVER="+p.Member.Server(), "PATH="+filepath.Dir(e2e.AgentProgram(t))+":"+
			os.Getenv("PATH"))
		return cmd
	})
	_, root := e2e.Caller(t)
	g := e2e.Kubectl{Kubeconfig: p.Gateway, Context: "member2", Server: root + "/clusters/" + p.Name}
	waittest.Until(t, "the private cluster is reachable", func() bool { return g.Run(t, "get", "namespaces").Code == 0 })
}
