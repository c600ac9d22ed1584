package kubelet_test

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/waittest"
	corev1 "k8s.io/api/core/v1"
)

func TestLogs(t *testing.T) {
	t.Parallel()
	name := makePod(t, script("echo one; echo two >&2; sleep 8; echo three; printf four"),
		restart(corev1.RestartPolicyNever))
	waitPod(t, name, "ends", over)
	all := "one\ntwo\nthree\nfour"
	if a, b := must(t, "logs", name), "two\none\nthree\nfour"; a != all && a != b { // the order of the streams is random
		t.Errorf("all: %q", a)
	}
	// The time of a log line, rounded down to seconds as by kubectl. The first lines are seconds older.
	third := regexp.MustCompile(`(?m)^(\S+)\.\d+Z three$`).FindStringSubmatch(must(t, "logs", name, "--timestamps"))
	if third == nil {
		t.Fatal("no line has a time")
	}
	tests := map[string]struct {
		args []string
		want string
	}{
		"tail":       {[]string{"--tail=2"}, `^three\nfour$`},
		"since":      {[]string{"--since-time=" + third[1] + "Z"}, `^three\nfour$`},
		"limit":      {[]string{"--limit-bytes=5"}, `^(one\nt|two\no)$`},
		"follow":     {[]string{"-f", "--tail=1"}, `^four$`},
		"timestamps": {[]string{"--timestamps", "--tail=2"}, `^\d{4}-\d\d-\d\dT\S+Z three\n\d{4}-\d\d-\d\dT\S+Z four$`},
	}
	for name2, test := range tests {
		if got := must(t, append([]string{"logs", name}, test.args...)...); !regexp.MustCompile(test.want).MatchString(got) {
			t.Errorf("%s: %q, want %s", name2, got, test.want)
		}
	}
}

func TestLogsSince(t *testing.T) {
	t.Parallel()
	name := runPod(t, script("echo old; sleep 8; echo new; exec sleep 1000"))
	waittest.Until(t, "all is logged", func() bool { return must(t, "logs", name) == "old\nnew\n" })
	if got := must(t, "logs", name, "--since=2s"); got != "new\n" && got != "" { // nothing, on a slow machine
		t.Errorf("since 2s: %q", got)
	}
	if got := must(t, "logs", name, "--since=1h"); got != "old\nnew\n" {
		t.Errorf("since 1h: %q", got)
	}
}

func TestLogsFollow(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(t.TempDir(), "gate")
	name := runPod(t, restart(corev1.RestartPolicyNever),
		script("echo one; while [ ! -e "+gate+" ]; do sleep 0.05; done; echo two"))
	cmd := command(t, "logs", "-f", name)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(pipe)
	if line, err := lines.ReadString('\n'); line != "one\n" {
		t.Fatal(line, err)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(lines); string(rest) != "two\n" {
		t.Error(string(rest), err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestLogsPrevious(t *testing.T) {
	t.Parallel()
	once := filepath.Join(t.TempDir(), "once")
	name := makePod(t,
		script("if [ -e "+once+" ]; then echo second; exec sleep 1000; fi; touch "+once+"; echo first; exit 1"))
	if r := kubectl(t, nil, "logs", name, "-c", "no-such"); r.code == 0 {
		t.Error("there is a log of a container that does not exist")
	}
	waitPod(t, name, "was restarted", func(p *corev1.Pod) bool {
		return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 1
	})
	waittest.Until(t, "the second run logs", func() bool { return must(t, "logs", name) == "second\n" })
	if got := must(t, "logs", name, "--previous"); got != "first\n" {
		t.Errorf("previous: %q", got)
	}
	fresh := runPod(t, func(p *corev1.Pod) { p.Name += "-fresh" })
	if r := kubectl(t, nil, "logs", fresh, "--previous"); r.code == 0 ||
		!strings.Contains(r.stderr, `previous terminated container "main" in pod "`+fresh+`" not found`) {
		t.Errorf("previous of the first run: %+v", r)
	}
}
