package e2e

import (
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"
)

// TestPrivateClusterJoinedAgain holds: joining again ends the agents that there were, until they find the credential that it makes; and an
// agent that is told to end does so in good order.
func TestPrivateClusterJoinedAgain(t *testing.T) {
	tunnel := "https://" + logged(t, gateway(t).log, `"the tunnel port is open","address":"([^"]+)"`)
	p := joinPrivate(t, "again")
	_, root := caller(t)
	g := kubectl{kubeconfig: gateway(t).pass, context: "member2", server: root + "/clusters/again"}
	a, kept := p.agent(), p.token
	eventually(t, func() bool { return g.run(t, "get", "namespaces").code == 0 })

	p.join("--replace", "--tunnel", tunnel)
	eventually(t, func() bool { code, _ := a.get("/readyz"); return code == http.StatusServiceUnavailable })
	if code, _ := a.get("/healthz"); code != http.StatusOK {
		t.Errorf("an agent that is not connected is not healthy: %d", code)
	}
	value, err := os.ReadFile(p.token)
	if err == nil {
		err = os.WriteFile(kept, value, 0o600) // as applying the manifest does
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { code, _ := a.get("/readyz"); return code == http.StatusOK })
	eventually(t, func() bool { return g.run(t, "get", "namespaces").code == 0 })

	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-a.ended:
	case <-time.After(patience):
		t.Fatal("the agent does not end")
	}
	if code := a.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the agent ended with %d", code)
	}
}
