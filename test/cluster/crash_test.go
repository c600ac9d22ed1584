package cluster_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/test/cluster/keeper"
	"github.com/clusterpass/clusterpass/test/cluster/ownership"
)

// starterRole makes the test program start a cluster with a pod that resists its end, and wait to be killed.
const starterRole = "CLUSTER_TEST_STARTER"

func playStarter() int {
	if err := startAndWait(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func startAndWait() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	s, err := cluster.New(ctx, cluster.Options{Clusters: []string{"crash"}})
	if err != nil {
		return err
	}
	c := s.Cluster("crash")
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return err
	}
	escape := filepath.Join(os.TempDir(), "escaped")
	_, err = client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "escapist"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "escapist", Image: "ignored",
			Command: []string{
				"sh", "-c", `trap "" TERM; setsid sh -c "sleep 1000 & echo \$! > ` + escape + `"; while :; do sleep 1000; done`,
			},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	var text []byte
	err = waittest.Poll(ctx, func(context.Context) error {
		text, err = os.ReadFile(escape)
		if err == nil && !bytes.HasSuffix(text, []byte("\n")) {
			err = errors.New("the process has not written its number")
		}
		return err
	})
	if err != nil {
		return errors.Join(err, s.Stop())
	}
	fmt.Printf("%s %s", s.Dir(), text)
	<-ctx.Done()
	return s.Stop()
}

// TestNothingIsLeft: a killed test or keeper must leave no process or file of its clusters.
func TestNothingIsLeft(t *testing.T) {
	tests := map[string]func(starter, keeper int) (pid int, s syscall.Signal){
		"the test is killed":   func(starter, _ int) (int, syscall.Signal) { return starter, syscall.SIGKILL },
		"the test gets ctrl-C": func(starter, _ int) (int, syscall.Signal) { return starter, syscall.SIGINT },
		"the keeper is killed": func(_, keeper int) (int, syscall.Signal) { return keeper, syscall.SIGKILL },
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			temp := t.TempDir()
			starter := exec.Command(os.Args[0])
			starter.Env = append(os.Environ(), starterRole+"=1", "TMPDIR="+temp)
			starter.Stderr = os.Stderr
			stdout, err := starter.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := starter.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = starter.Process.Kill(); _ = starter.Wait() }()

			line, err := bufio.NewReader(stdout).ReadString('\n')
			if err != nil {
				t.Fatalf("the cluster did not start: %v", err)
			}
			dir, escaped, _ := strings.Cut(strings.TrimSpace(line), " ")
			state, err := keeper.NewClient(dir).State(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			pids := []string{strconv.Itoa(state.PID), escaped}
			for _, component := range state.Clusters[0].Components {
				pids = append(pids, strconv.Itoa(component.PID))
			}
			for _, pid := range pids {
				if !alive(pid) {
					t.Fatalf("process %s is not there before the end: the test shows nothing", pid)
				}
			}

			if err := syscall.Kill(end(starter.Process.Pid, state.PID)); err != nil {
				t.Fatal(err)
			}
			waittest.UntilNoError(t, "everything is gone", func(context.Context) error {
				var left []error
				for _, pid := range pids {
					if alive(pid) {
						left = append(left, fmt.Errorf("process %s is alive", pid))
					}
				}
				if marked, err := ownership.Marked(dir); err != nil || len(marked) > 0 {
					left = append(left, fmt.Errorf("processes %v are alive (%w)", marked, err))
				}
				if _, err := os.Stat(filepath.Dir(dir)); !errors.Is(err, fs.ErrNotExist) {
					left = append(left, fmt.Errorf("%s is there (%w)", filepath.Dir(dir), err))
				}
				return errors.Join(left...)
			})
		})
	}
}

func TestGivingUp(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	go func() {
		poll := time.NewTicker(time.Millisecond)
		defer poll.Stop()
		for ctx.Err() == nil {
			if runs, _ := ownership.Runs(); len(runs) > 0 {
				cancel(enough)
			}
			<-poll.C
		}
	}()
	if _, err := cluster.New(ctx, cluster.Options{}); !errors.Is(err, enough) {
		t.Errorf("got %v, want the context's cause", err)
	}
	if _, err := os.Stat(ownership.Root()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is there: %v", ownership.Root(), err)
	}
}

// TestStartFails: the output of a failed component reaches the caller.
func TestStartFails(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	_, err := cluster.New(t.Context(), cluster.Options{
		NoKubelet: true, APIServerArgs: []string{"--no-such-flag"},
	})
	if err == nil || !strings.Contains(err.Error(), "kube-apiserver") ||
		!strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("got %v, want what the API server said", err)
	}
	for _, bad := range []cluster.Options{
		{Clusters: []string{"Upper"}}, {Clusters: []string{"a", "a"}}, {Clusters: []string{"bin"}}, {Run: "../x"},
	} {
		if s, err := cluster.New(t.Context(), bad); err == nil {
			t.Errorf("%+v: no error", bad)
			_ = s.Stop()
		}
	}
	if _, err := os.Stat(ownership.Root()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is there: %v", ownership.Root(), err)
	}
}

func alive(pid string) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')'):]), " ")
	return !strings.HasPrefix(state, "Z")
}
