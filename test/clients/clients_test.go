// Package clients runs the clients that people use, at pinned versions. Each works on a cluster itself, on the cluster
// through the gateway, and on the fleet. docs/reference/clients.md shows the results.
//
// make test-clients builds the programs, and installs the packages of the JavaScript client. It needs Node 20.10 or
// later with npm.
package clients

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/test/clients/programs"
	"github.com/clusterpass/clusterpass/test/e2e"
)

var built programs.Programs

func TestMain(m *testing.M) {
	var err error
	if built, err = programs.Ensure(context.Background(), os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "build the client programs:", err)
		os.Exit(1)
	}
	e2e.Main(m)
}

// place is a server as a client sees it. Each client works there with objects of member1. member2 has others with equal
// names.
type place struct {
	context         string // a context of the kubeconfig
	namespace, name string // suffixes that name the cluster
}

// suffix returns a text for DNS labels that differs between places.
func (p place) suffix() string { return strings.ReplaceAll(p.context, "@", "-by-name") }

var (
	direct  = place{context: "direct"} // without the gateway
	gateway = place{context: "member1"}
	fleet   = place{context: "fleet", namespace: "@member1"}
	names   = place{context: "fleet@", name: "@member1"}
	places  = []place{direct, gateway, fleet, names}
)

// coverEverything lets the fleet answer for all kinds of all clusters.
func coverEverything(t *testing.T) {
	t.Helper()
	e2e.CreateRegistry(t, e2e.UniqueName(t), "{}", `{apiVersion: "*", kind: "*"}`)
}

// kubeconfig returns the path of a kubeconfig with a context for each place.
func kubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(e2e.Shared(t).Dir, "clients")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	kc, err := clientcmd.LoadFromFile(e2e.Shared(t).Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := clientcmd.LoadFromFile(e2e.Clusters.KubeconfigFile())
	if err != nil {
		t.Fatal(err)
	}
	of := cluster.Contexts["member1"]
	kc.Clusters["direct"], kc.AuthInfos["direct"] = cluster.Clusters[of.Cluster], cluster.AuthInfos[of.AuthInfo]
	kc.Contexts["direct"] = &clientcmdapi.Context{Cluster: "direct", AuthInfo: "direct"}
	if err := clientcmd.WriteToFile(*kc, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// environment is that of a client with a home directory of its own.
func environment(t *testing.T) []string {
	t.Helper()
	home := t.TempDir()
	env := append(os.Environ(), "HOME="+home, "KUBECONFIG="+kubeconfig(t))
	for _, dir := range []string{"CONFIG", "CACHE", "DATA", "STATE"} {
		env = append(env, "XDG_"+dir+"_HOME="+filepath.Join(home, strings.ToLower(dir)))
	}
	return env
}

// run runs a client for 5 minutes at most.
func run(t *testing.T, env []string, bin string, args ...string) e2e.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, io.MultiWriter(&errOut, e2e.Printed)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a client may start others
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatalf("run %s: %v", bin, err)
	}
	return e2e.Result{Stdout: out.String(), Stderr: errOut.String(), Code: cmd.ProcessState.ExitCode()}
}

// must runs a client, which must succeed, and returns its standard output.
func must(t *testing.T, env []string, bin string, args ...string) string {
	t.Helper()
	r := run(t, env, bin, args...)
	if r.Code != 0 {
		t.Fatalf("%s %s: %v", filepath.Base(bin), strings.Join(args, " "), r)
	}
	return r.Stdout
}
