package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/cluster/build"
	"github.com/clusterpass/clusterpass/test/cluster/ownership"
)

// TestKwokctl: kwokctl must work with the programs that were built.
func TestKwokctl(t *testing.T) {
	programs, err := build.Ensure(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	// A run directory leaves nothing behind, even if this test is killed. kwokctl chooses free ports by trying, so only
	// one may run.
	var run *ownership.RunDir
	waittest.UntilNoError(t, "no other test runs kwokctl", func(context.Context) (err error) {
		run, err = ownership.Create("kwokctl")
		return err
	})
	t.Cleanup(func() {
		if err := errors.Join(ownership.KillMarked(run.Path), run.Remove()); err != nil {
			t.Error(err)
		}
	})
	config := fmt.Sprintf(`apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokctlConfiguration
options:
  runtime: binary
  bindAddress: 127.0.0.1
  etcdBinary: %[1]s/etcd
  kubeApiserverBinary: %[1]s/kube-apiserver
  kubeControllerManagerBinary: %[1]s/kube-controller-manager
  kubeSchedulerBinary: %[1]s/kube-scheduler
  kwokControllerBinary: %[1]s/kwok
  kubectlBinary: %[2]s
`, programs.Dir, programs.Kubectl)
	if err := os.WriteFile(filepath.Join(run.Path, "kwok.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	command := func(program string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), ownership.Mark(run.Path), "KWOK_WORKDIR="+run.Path,
			"HOME="+run.Path, "KUBECONFIG="+filepath.Join(run.Path, "kubeconfig"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	kwokctl := programs.Path(build.Kwokctl)

	command(kwokctl, "create", "cluster", "--name=test", "--wait=5m")
	_, version, _ := strings.Cut(strings.TrimSpace(command(programs.Path(build.APIServer), "--version")), " ")
	if out := command(programs.Kubectl, "get", "--raw", "/version"); !strings.Contains(out,
		fmt.Sprintf(`"gitVersion": %q`, version)) {
		t.Errorf("the cluster says that its version is\n%s\nwant %s", out, version)
	}
	command(kwokctl, "scale", "node", "--name=test", "--replicas=2")
	command(programs.Kubectl, "wait", "node", "--all", "--for=condition=Ready", "--timeout=5m")

	command(kwokctl, "delete", "cluster", "--name=test")
	if left, err := filepath.Glob(filepath.Join(run.Path, "clusters", "*")); err != nil || len(left) > 0 {
		t.Errorf("the deleted cluster left %v (%v)", left, err)
	}
	waittest.UntilNoError(t, "its processes are gone", func(context.Context) error {
		pids, err := ownership.Marked(run.Path)
		if err == nil && len(pids) > 0 {
			err = fmt.Errorf("%v are there", pids)
		}
		return err
	})
}
