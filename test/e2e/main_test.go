// Package e2e drives the whole house as users do: real kubectl, real clusters, functions run as Lambda runs them.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/test/cluster"
	bridge "github.com/clusterpass/clusterpass/websocket-bridge/server"
)

// recheck is how often the gateway looks whether streams may still be open.
const recheck = 300 * time.Millisecond

var (
	clusters *cluster.Set
	main     *house
)

// options: a kube-apiserver whose aggregator does not route to endpoints takes Services with external names, and so reaches a gateway
// on loopback.
var options = cluster.Options{Clusters: []string{"member1", "member2"}, APIServerArgs: []string{"--enable-aggregator-routing=false"}}

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.NewTextHandler(printed, nil)))
	code := cluster.Main(m, options, func(s *cluster.Set) {
		clusters = s
		for _, c := range s.Clusters() {
			made.Document("the administrator of "+c.Name(), c.Kubeconfig())
		}
	})
	if main != nil {
		main.note()
		main.stop()
		if err := <-main.stopped; err != nil {
			fmt.Fprintln(os.Stderr, "the gateway ended:", err)
			code = 1
		}
		if found := audited(main); found != "" {
			fmt.Fprintln(os.Stderr, "the audit log:", found)
			code = 1
		}
		if err := os.RemoveAll(main.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if text := printed.String(); text != "" || main != nil {
		if found := leaks(text); len(found) > 0 {
			fmt.Fprintln(os.Stderr, "what was printed shows the secrets of:", found)
			code = 1
		}
	}
	os.Exit(code)
}

// audited reads the audit log that functions and bridge wrote together, and has it looked through for secrets as well. It returns what is
// wrong with it, or "".
func audited(h *house) string {
	data, err := os.ReadFile(filepath.Join(h.dir, "audit.log"))
	if err != nil {
		return err.Error()
	}
	_, _ = printed.Write(data)
	stages := map[audit.Stage]int{}
	for line := range strings.Lines(string(data)) {
		var e audit.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.AuditID == "" {
			return fmt.Sprintf("%v: %s", err, line)
		}
		stages[e.Stage]++
	}
	// The gateway has ended, and so has every call and stream.
	if stages[audit.ResponseComplete] < stages[audit.ResponseStarted] || stages[audit.ResponseComplete] == 0 || stages[audit.Panic] > 0 {
		return fmt.Sprintf("events by stage: %v", stages)
	}
	return ""
}

// house is a gateway with both clusters registered.
type house struct {
	dir       string
	pass      string        // the owner's kubeconfig
	functions string        // the directory of the built functions
	log       *lockedBuffer // printed has it, too
	stop      context.CancelFunc
	stopped   chan error
}

// gateway returns the gateway that the tests of this package share.
func gateway(t *testing.T) *house {
	t.Helper()
	if main == nil {
		dir, err := os.MkdirTemp("", "clusterpass-e2e-")
		if err != nil {
			t.Fatal(err)
		}
		main = start(t, dir, server.Process)
	}
	return main
}

// start runs a gateway until it is stopped. configure may change its configuration.
func start(t *testing.T, dir string, mode server.Mode, configure ...func(*server.Config)) *house {
	t.Helper()
	h := &house{dir: dir, pass: filepath.Join(dir, "pass"), functions: filepath.Join(dir, "functions"), log: &lockedBuffer{}, stopped: make(chan error, 1)}
	for _, name := range []string{"control", "fleet", "proxy"} {
		program(t, filepath.Join(h.functions, name, "bootstrap"), "functions/"+name+"/bootstrap", "-tags", "lambda.norpc")
	}
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	cfg := &server.Config{
		Listen: "127.0.0.1:0", TunnelListen: "127.0.0.1:0", Hosts: []string{gatewayService}, Data: filepath.Join(dir, "data"), Functions: mode, FunctionsDir: h.functions,
		Kubeconfig: h.pass, Register: clusters.KubeconfigFile(), DrainTimeout: time.Second,
		Limits: bridge.Limits{Recheck: recheck, ProbeInterval: 2 * time.Second}, Audit: filepath.Join(dir, "audit.log"),
	}
	cfg.FleetDeadline = 25 * time.Second // less than a function's; a member that is slow here is not what these tests are about
	front, err := frontProxy()
	if err == nil {
		err = cfg.Authentication.Decode(front)
	}
	if err != nil {
		t.Fatal(err)
	}
	out := io.MultiWriter(h.log, printed)
	cfg.LogTo = out
	for _, fn := range configure {
		fn(cfg)
	}
	ready := make(chan struct{})
	go func() { h.stopped <- server.Run(ctx, cfg, out, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-h.stopped:
		t.Fatalf("the gateway ended: %v\n%s", err, h.log)
	case <-time.After(3 * time.Minute):
		t.Fatalf("the gateway does not start:\n%s", h.log)
	}
	h.note()
	return h
}

// program builds a command of ours, with the flags of the Makefile, so that nothing is compiled once more.
func program(t *testing.T, to, command string, flags ...string) {
	t.Helper()
	args := append([]string{"build", "-trimpath", "-ldflags", "-s -w"}, flags...)
	build := exec.CommandContext(t.Context(), "go", append(args, "-o", to, "github.com/clusterpass/clusterpass/"+command)...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
}

// kubectl runs kubectl through the gateway, or past it.
type kubectl struct {
	kubeconfig, context string
	server              string // in place of the context's; "" for that
	stdin               io.Reader
	env                 []string
}

func direct(cluster string) kubectl {
	return kubectl{kubeconfig: clusters.KubeconfigFile(), context: cluster}
}

func through(t *testing.T, cluster string) kubectl {
	return kubectl{kubeconfig: gateway(t).pass, context: cluster}
}

type result struct {
	stdout, stderr string
	code           int
}

func (k kubectl) run(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute) // clean-ups run too
	defer cancel()
	cmd := exec.CommandContext(ctx, clusters.BuiltKubectl(), k.flags(t, args)...)
	cmd.Env = append(append(os.Environ(), "KUBECACHEDIR="+t.TempDir()), k.env...)
	cmd.Stdin = k.stdin
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, io.MultiWriter(&errOut, printed)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
	}
	return result{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}
}

// flags puts before args whom kubectl calls. The paths of --raw are from the root of the host here, as they were for every kubectl before
// 1.34, which puts the path of the context's server before them.
func (k kubectl) flags(t *testing.T, args []string) []string {
	t.Helper()
	flags, server := []string{"--kubeconfig", k.kubeconfig, "--context", k.context}, k.server
	if slices.Contains(args, "--raw") && args[0] != "config" {
		if server == "" {
			kc, err := clientcmd.LoadFromFile(k.kubeconfig)
			if err != nil {
				t.Fatal(err)
			}
			server = kc.Clusters[kc.Contexts[k.context].Cluster].Server
		}
		u, err := url.Parse(server)
		if err != nil {
			t.Fatal(err)
		}
		u.Path = ""
		server = u.String()
	}
	if server != "" {
		flags = append(flags, "--server", server)
	}
	return append(flags, args...)
}

// must is run for commands that succeed.
func (k kubectl) must(t *testing.T, args ...string) string {
	t.Helper()
	r := k.run(t, args...)
	if r.code != 0 {
		t.Fatalf("kubectl %s: exit %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

func (r result) String() string {
	return fmt.Sprintf("exit %d\n--- stdout\n%s--- stderr\n%s", r.code, r.stdout, r.stderr)
}
