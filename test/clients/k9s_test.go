package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/clusterpass/clusterpass/test/clients/programs"
	"github.com/clusterpass/clusterpass/test/clients/terminal"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// k9sConfig disables the search for newer versions of k9s, which needs the internet.
const k9sConfig = `
k9s:
  skipLatestRevCheck: true
`

// TestK9s: a person must list, describe, follow, enter and delete a pod in k9s.
func TestK9s(t *testing.T) {
	coverEverything(t)
	for _, p := range places {
		t.Run(p.context, func(t *testing.T) {
			ns := e2e.StreamPods(t, e2e.Members, "talker-a", "finite-a")
			useK9s(t, startK9s(t, p, ns+p.namespace), ns+p.namespace, "talker-a"+p.name)
			e2e.Direct("member1").Must(t, "wait", "-n", ns, "--for=delete", "pod/talker-a", "--timeout=4m")
			e2e.Direct("member2").Must(t, "get", "-n", ns, "pod", "talker-a")
		})
	}
}

func startK9s(t *testing.T, p place, ns string) *terminal.Terminal {
	t.Helper()
	dir, path := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(k9sConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	// k9s runs kubectl for a shell.
	if err := os.Symlink(e2e.Clusters.BuiltKubectl(), filepath.Join(path, "kubectl")); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "k9s.log")
	cmd := exec.CommandContext(t.Context(), built.Path(programs.K9s), "--context", p.context, "--namespace", ns,
		"--command", "pods", "--headless", "--splashless", "--write", "--logFile", log)
	cmd.Env = append(environment(t), "K9S_CONFIG_DIR="+dir, "PATH="+path+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Cleanup(func() {
		if text, err := os.ReadFile(log); t.Failed() {
			t.Logf("the log of k9s: %s %v", text, err)
		}
	})
	return terminal.Start(t, cmd)
}

func useK9s(t *testing.T, k9s *terminal.Terminal, ns, pod string) {
	t.Helper()
	k9s.WaitFor("pods("+ns+")", "finite-a", "Completed", pod, "Running")
	k9s.Type("/" + pod + terminal.Enter)
	k9s.WaitFor("pods("+ns+")[1] </"+pod+">", pod)

	k9s.Type("d")
	k9s.WaitFor("Describe("+ns+"/"+pod+")", "Status:           Running", "Restart Count:  0")
	k9s.Type(terminal.Escape)
	k9s.WaitFor("pods("+ns+")[1]", pod)

	k9s.Type("l")
	k9s.WaitFor("Logs(" + ns + "/" + pod + ":talker)")
	first := -1
	k9s.WaitUntil("follows the log", func(screen string) bool {
		last := lastLogged(screen)
		if first < 0 {
			first = last
		}
		return first >= 0 && last > first
	})
	k9s.Type(terminal.Escape)
	k9s.WaitFor("pods("+ns+")[1]", pod)

	k9s.Type("s")
	k9s.WaitFor("<<K9s-Shell>> Pod: " + ns + "/" + pod)
	k9s.Type("echo $((40+2))" + terminal.Enter)
	k9s.WaitFor("\n42\n")
	k9s.Type("exit" + terminal.Enter)
	k9s.WaitFor("pods("+ns+")[1]", pod)

	k9s.Type(terminal.CtrlD)
	k9s.WaitFor("<Delete>", "Delete pods "+ns+"/"+pod+"?")
	k9s.Type(terminal.Tab + terminal.Enter) // from Cancel to OK
	k9s.WaitFor("pods(" + ns + ")[0]")
}

var logLine = regexp.MustCompile(`(?m)^│ a (\d+) `)

// lastLogged returns the number in the last line of a log that the screen shows, or -1.
func lastLogged(screen string) int {
	lines := logLine.FindAllStringSubmatch(screen, -1)
	if lines == nil {
		return -1
	}
	n, _ := strconv.Atoi(lines[len(lines)-1][1]) // the expression permits digits only
	return n
}
