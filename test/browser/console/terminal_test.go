package console

import (
	"encoding/json"
	"testing"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestTerminal fails if a shell in the console does not echo, resize, paste or report its exit status. It also fails if
// output runs as a script, or if a lost connection looks like an ended command.
func TestTerminal(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell")
	s, line := startOnLine(t, "terminal.mjs", "NAMESPACE="+ns)
	s.step("typed")
	line.Cut()
	s.next("")
	s.end()
}

// TestTerminalByPass fails if a shell needs a client certificate, or if the token of the pass appears in a URL.
func TestTerminalByPass(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell")
	pass := e2e.CreatePass(t, e2e.UniqueName(t), "--user", "ann", "--group", "system:masters", "--cluster", "member1",
		"--verb", "*")
	quoted, err := json.Marshal(pass)
	if err != nil {
		t.Fatal(err)
	}
	start(t, "bearer.mjs", e2e.Shared(t).Kubeconfig, "PASS="+string(quoted), "NAMESPACE="+ns).end()
}

// TestDebugContainer fails if the console cannot debug a pod whose containers have no shell.
func TestDebugContainer(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell")
	s := startAsOwner(t, "debug.mjs", "NAMESPACE="+ns)
	s.end()
	const names = "jsonpath={.spec.ephemeralContainers[*].targetContainerName}/{.spec.ephemeralContainers[*].image}"
	waittest.Until(t, "pod has one debug container", func() bool {
		return e2e.Direct("member1").Must(t, "get", "pod", "-n", ns, "shell", "-o", names) == "shell/debug-image"
	})
}
