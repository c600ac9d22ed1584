package kubelet_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/waittest"
	corev1 "k8s.io/api/core/v1"
)

// stubborn ignores the signal to end. It writes the process IDs of itself and its child.
func stubborn(file string) string {
	return "trap '' TERM; setsid sh -c 'echo $$ >> " + file + "; while :; do sleep 0.1; done' & echo $$ >> " + file +
		"; while :; do sleep 0.1; done"
}

func pids(t *testing.T, file string, n int) []int {
	t.Helper()
	var found []int
	waittest.Until(t, "the container writes its processes' ids", func() bool {
		found = nil
		for lines := bufio.NewScanner(strings.NewReader(readFile(file))); lines.Scan(); {
			pid, err := strconv.Atoi(lines.Text())
			if err != nil {
				return false
			}
			found = append(found, pid)
		}
		return len(found) >= n
	})
	return found
}

func waitGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		waittest.Until(t, fmt.Sprintf("process %d is gone", pid), func() bool {
			return syscall.Kill(pid, 0) == syscall.ESRCH
		})
	}
}

// TestKubeletRestarts: containers end with their kubelet, and the next kubelet reports that.
func TestKubeletRestarts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	forEver := runPod(t, script(stubborn(file)), func(p *corev1.Pod) { p.Name += "-always" })
	onlyOnce := runPod(t, script("exec sleep 1000"), restart(corev1.RestartPolicyNever), func(p *corev1.Pod) {
		p.Name += "-never"
	})
	ended := makePod(t, script("exit 0"), restart(corev1.RestartPolicyNever), func(p *corev1.Pod) {
		p.Name += "-ended"
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "none", Command: []string{"true"}}}
	})
	endedBefore := waitPod(t, ended, "ends", over)
	before := pids(t, file, 2)

	if err := world.node.stop(); err != nil {
		t.Fatal(err)
	}
	waitGone(t, before)
	if err := world.node.start(); err != nil {
		t.Fatal(err)
	}
	p := waitPod(t, forEver, "runs again", func(p *corev1.Pod) bool {
		return ready(p) && p.Status.ContainerStatuses[0].RestartCount == 1
	})
	if last := p.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil ||
		last.Reason != "ContainerStatusUnknown" {
		t.Errorf("the end of the first run: %+v", last)
	}
	if p := waitPod(t, onlyOnce, "ends", over); p.Status.Phase != corev1.PodFailed {
		t.Errorf("phase %s, want Failed", p.Status.Phase)
	}
	if now := getPod(t, ended); now.ResourceVersion != endedBefore.ResourceVersion {
		t.Errorf("a pod that had ended was touched: %+v", now.Status)
	}
	must(t, "delete", "pod", ended, "--wait")
}

func TestCommand(t *testing.T) {
	if err := world.node.stop(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := world.node.start(); err != nil {
			t.Fatal(err)
		}
	}()
	program := filepath.Join(world.set.Dir(), "bin", "process-kubelet")
	start := func() *exec.Cmd {
		old := world.node.port()
		cmd := exec.CommandContext(context.Background(), program,
			"--kubeconfig", world.node.file("kubelet.kubeconfig"), "--node-name", world.node.name, "--root-dir",
			filepath.Join(t.TempDir(), "kubelet"),
			"--address", "127.0.0.1", "--port", "0", "--tls-cert-file", world.node.file("pki/kubelet.crt"),
			"--tls-private-key-file", world.node.file("pki/kubelet.key"), "--client-ca-file", world.node.file("pki/ca.crt"),
			"--max-pods", "20")
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waittest.Until(t, "the node is registered", func() bool { return world.node.moved(old) })
		return cmd
	}
	end := func(cmd *exec.Cmd, signal syscall.Signal) *os.ProcessState {
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		_ = cmd.Wait() // the state contains the result
		return cmd.ProcessState
	}
	file := filepath.Join(t.TempDir(), "pids")
	makePod(t, script(stubborn(file)))

	kubelet := start()
	first := pids(t, file, 2)
	end(kubelet, syscall.SIGKILL)
	waitGone(t, first)

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	kubelet = start()
	second := pids(t, file, 2)
	if state := end(kubelet, syscall.SIGTERM); !state.Success() {
		t.Errorf("ended by SIGTERM: %s", state)
	}
	for _, pid := range second {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("process %d outlived the kubelet", pid)
		}
	}
	if out, err := exec.CommandContext(t.Context(), program, "--port", "many").CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "invalid value") {
		t.Errorf("a bad flag: %v, %s", err, out)
	}
}
