package console

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/test/e2e"
)

// scribe is a pod that logs what is appended to its file log, and ends with exit status 3 when that contains "die".
const scribe = `
apiVersion: v1
kind: Pod
metadata: {name: scribe, labels: {app: scribe}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: any
    command: [sh, -c, 'echo "begin $$"; touch log; tail -n +1 -f log | sed -u /^die/q; exit 3']
`

// startScribes starts a scribe in each member, and returns their namespace.
func startScribes(t *testing.T, members ...string) string {
	t.Helper()
	ns := e2e.NewNamespace(t, members...)
	for _, m := range members {
		e2e.Direct(m).Apply(t, scribe, "-n", ns)
	}
	for _, m := range members {
		e2e.Direct(m).Must(t, "wait", "-n", ns, "--for=condition=Ready", "pod/scribe", "--timeout=4m")
	}
	return ns
}

// numbered returns a shell command that logs lines with numbers.
func numbered(from, to int) string {
	return fmt.Sprintf("for i in $(seq %d %d); do echo number $i; done >> log", from, to)
}

const hostileLine = `<img src=x onerror="hostile()"><script>hostile()</script> \033[31mred\033[0m \342\200\256`

// TestLogs fails if the console loses or repeats a line of a log after a lost connection, or runs a script in one.
func TestLogs(t *testing.T) {
	ns := startScribes(t, e2e.Members...)
	e2e.CreateRegistry(t, e2e.UniqueName(t), "{}", "{apiVersion: v1, kind: Pod}")
	dir := t.TempDir()
	s, line := startOnLine(t, "logs.mjs", "NAMESPACE="+ns, "DOWNLOADS="+dir)

	s.step("following")
	for _, m := range e2e.Members {
		onHost(t, m, ns, "scribe", numbered(1, 50))
	}
	onHost(t, "member2", ns, "scribe", "printf '"+hostileLine+`\n' >> log`)
	s.next("")
	s.step("cut")
	line.Close()
	onHost(t, "member1", ns, "scribe", numbered(51, 80))
	s.next("")
	s.step("lost")
	line.Open()
	s.next("")
	s.step("connected")
	onHost(t, "member1", ns, "scribe", numbered(81, 100))
	s.next("")
	s.end()

	saved, err := os.ReadFile(filepath.Join(dir, "logs.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var numbers []string
	prefix := " member1/" + ns + "/scribe/main number "
	for l := range strings.Lines(string(saved)) {
		if _, number, ok := strings.Cut(strings.TrimSpace(l), prefix); ok {
			numbers = append(numbers, number)
		}
	}
	want := make([]string, 0, 100)
	for i := range 100 {
		want = append(want, fmt.Sprint(i+1))
	}
	if got := strings.Join(numbers, " "); got != strings.Join(want, " ") {
		t.Errorf("lines after a lost connection: %s", got)
	}
	whole, err := os.ReadFile(filepath.Join(dir, "whole.log"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(whole), "\x1b[31mred") {
		t.Errorf("the download is not the log of the cluster: %q", whole)
	}
}

// TestLogsOfRestarts fails if the console hides that a container was started again, or loses its last lines.
func TestLogsOfRestarts(t *testing.T) {
	ns := startScribes(t, "member1")
	s, line := startOnLine(t, "restart.mjs", "NAMESPACE="+ns)
	s.step("following")
	onHost(t, "member1", ns, "scribe", "echo last words >> log; echo die >> log")
	s.next("")
	s.step("restarted")
	line.Close()
	onHost(t, "member1", ns, "scribe", "echo unheard words >> log; echo die again >> log")
	e2e.Direct("member1").Must(t, "wait", "-n", ns, "--for=jsonpath={.status.containerStatuses[0].restartCount}=2",
		"pod/scribe", "--timeout=4m")
	line.Open()
	s.next("")
	s.step("deleted")
	e2e.Direct("member1").Must(t, "delete", "pod", "-n", ns, "scribe")
	s.next("")
	s.end()
}

// TestLogContinuesAfterSignIn fails if a log seems to follow its container when the session has ended. It also fails if
// the log loses or repeats a line after another sign-in.
func TestLogContinuesAfterSignIn(t *testing.T) {
	ns := startScribes(t, "member1")
	env, first := []string{"NAMESPACE=" + ns}, e2e.UniqueName(t)
	for variable, name := range map[string]string{"FIRST": first, "SECOND": e2e.UniqueName(t)} {
		pass, err := json.Marshal(e2e.CreatePass(t, name, "--user", "ann", "--group", "system:masters", "--cluster",
			"member1", "--verb", "*"))
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, variable+"="+string(pass))
	}
	s := start(t, "again.mjs", e2e.Shared(t).Kubeconfig, env...)
	s.step("following")
	onHost(t, "member1", ns, "scribe", numbered(1, 4))
	if out, err := e2e.CLI(t, "", "pass", "revoke", first); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	s.next("")
	s.step("ended")
	onHost(t, "member1", ns, "scribe", numbered(5, 9))
	s.next("")
	s.end()
}
