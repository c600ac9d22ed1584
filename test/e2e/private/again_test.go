package private_test

import (
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestPrivateClusterJoinedAgain: a former credential must become invalid, and running agents must load the new one.
func TestPrivateClusterJoinedAgain(t *testing.T) {
	tunnel := e2e.SharedTunnel(t)
	p := joinPrivate(t, "again")
	_, root := e2e.Caller(t)
	g := e2e.Kubectl{Kubeconfig: e2e.Shared(t).Kubeconfig, Context: "member2", Server: root + "/clusters/again"}
	a, mountedToken := p.startReadyAgent(), p.CredentialFile
	waittest.Until(t, "private cluster is reachable", func() bool { return g.Run(t, "get", "namespaces").Code == 0 })

	p.Join(t, "--replace", "--tunnel", tunnel)
	waittest.Until(t, "former agent is not ready", func() bool {
		code, _ := a.get("/readyz")
		return code == http.StatusServiceUnavailable
	})
	if code, _ := a.get("/healthz"); code != http.StatusOK {
		t.Errorf("an agent that is not connected is not healthy: %d", code)
	}
	value, err := os.ReadFile(p.CredentialFile)
	if err == nil {
		err = os.WriteFile(mountedToken, value, 0o600) // like an update of the mounted Secret
	}
	if err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "agent is ready with its new credential", func() bool {
		code, _ := a.get("/readyz")
		return code == http.StatusOK
	})
	waittest.Until(t, "private cluster is reachable again", func() bool { return g.Run(t, "get", "namespaces").Code == 0 })

	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-a.ended:
	case <-time.After(e2e.Patience):
		t.Fatal("the agent does not end")
	}
	if code := a.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the agent ended with %d", code)
	}
}
