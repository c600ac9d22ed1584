package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/demo/picture"
	"github.com/clusterpass/clusterpass/test/e2e"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestFlags fails if the demo refuses a form of its flags that other programs accept.
func TestFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		stay bool
		file string
		err  string
	}{
		{nil, true, "", ""},
		{[]string{"--exit"}, false, "", ""},
		{[]string{"--exit=false"}, true, "", ""},
		{[]string{"--picture=a.svg"}, false, "a.svg", ""},
		{[]string{"--picture", "a.svg"}, false, "a.svg", ""},
		{[]string{"--picture"}, false, "", "flag needs an argument: --picture"},
		{[]string{"--fast"}, false, "", "unknown flag: --fast"},
		{[]string{"fast"}, false, "", `unknown argument "fast"`},
		{[]string{"-h"}, false, "", pflag.ErrHelp.Error()},
	} {
		stay, file, err := parse(tt.args)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != tt.err || err == nil && (stay != tt.stay || file != tt.file) {
			t.Errorf("%q: stay %t, file %q, error %q; want %t, %q, %q", tt.args, stay, file, text, tt.stay, tt.file, tt.err)
		}
	}
}

// checkHealth waits until the gateway of a demo that stays up has found both clusters ready. A user sees that by
// kubectl get clusters, and in the console.
func checkHealth(t *testing.T, clusterpass, output string) {
	t.Helper()
	store := regexp.MustCompile(`CLUSTERPASS_STORE=\S+`).FindString(output)
	waittest.Until(t, "both clusters are ready", func() bool {
		cmd := exec.CommandContext(t.Context(), clusterpass, "cluster", "list", "--output", "json")
		cmd.Env = append(os.Environ(), store)
		list, err := cmd.Output()
		return err == nil && bytes.Count(list, []byte(`"reason": "ClusterReady"`)) == 2
	})
}

// TestDemo: the demo is the first that a new user runs.
func TestDemo(t *testing.T) {
	var out waittest.Buffer
	e2e.Program(t, "test/cluster/cmd/clusters", "clusters")
	e2e.Program(t, "test/kubelet/cmd/process-kubelet", "process-kubelet")
	clusterpass := e2e.Program(t, "scripts/clusterpass", "clusterpass")
	o := options{out: &out, clusterpass: clusterpass, tools: filepath.Dir(clusterpass), stay: true}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o) }()
	t.Cleanup(stop)
	waittest.Until(t, "the demo stays up", func() bool {
		return len(ended) > 0 || strings.Contains(out.String(), "Next, with clusters of your own")
	})
	if len(ended) == 0 {
		checkHealth(t, clusterpass, out.String())
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	text := out.String()
	t.Log(text)
	commands := regexp.MustCompile(`(?m)^\$ (.*)$`).FindAllStringSubmatchIndex(text, -1)
	if len(commands) < 10 {
		t.Fatalf("the demo has %d commands, want 10 at least", len(commands))
	}
	if first := text[commands[0][2]:commands[0][3]]; first != "kubectl --context fleet get pods -A" {
		t.Errorf("the demo begins with %q", first)
	}
	if second := strings.Index(text, "cluster member2 is ready"); second < commands[0][1] {
		t.Error("the first output comes after the start of the second cluster")
	}
	for _, want := range []string{
		"web    member2", "doctor", "hello from web in member1", "late   member2", "Forbidden",
		"member2-node", // by the context of the cluster that joined while the gateway ran
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the demo does not show %q", want)
		}
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, want := range []string{"KUBECONFIG=~/.kube/config make up", "export KUBECONFIG=", "kubectl --context fleet "} {
		if line := strings.TrimSpace(lines[len(lines)-3+i]); !strings.HasPrefix(line, want) {
			t.Errorf("at the end is %q, want %q", line, want)
		}
	}
	time := regexp.MustCompile(`(?m)^# (first line after )?[0-9.]+ s, directly [0-9.]+ s( \+ [0-9.]+ s)?$`)
	for i, at := range commands {
		end := len(text)
		if i+1 < len(commands) {
			end = commands[i+1][0]
		}
		command, output := text[at[2]:at[3]], text[at[1]:end]
		if strings.HasPrefix(command, "kubectl") && !time.MatchString(output) {
			t.Errorf("%s: no time beside the direct one in\n%s", command, output)
		}
	}
	if _, err := picture.Draw(text); err != nil {
		t.Error(err)
	}
}
