// Package kubernetes runs the Helm charts of infra/kubernetes with helm, on a real cluster. Its pods run on the process
// kubelet, as processes with addresses of their own. The test itself is the Service: it balances connections over the
// ready pods, as kube-proxy does.
package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/test/clients/programs"
	"github.com/clusterpass/clusterpass/test/cluster"
)

const charts = "../../infra/kubernetes/"

var (
	helmPath string
	clusters *cluster.Set
)

func TestMain(m *testing.M) {
	var err error
	if helmPath, err = programs.EnsureHelm(context.Background(), os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "build helm:", err)
		os.Exit(1)
	}
	os.Exit(cluster.Main(m, cluster.Options{Clusters: []string{"hub"}}, func(s *cluster.Set) { clusters = s }))
}

func hub() *cluster.Cluster { return clusters.Clusters()[0] }

// command is one run of a program.
type command struct {
	env   []string
	stdin io.Reader
}

// run runs a program for 5 minutes at most, and returns its standard output.
func (c command) run(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute) // clean-ups run too
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = append(os.Environ(), c.env...), c.stdin, &out, &errOut
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s%s", filepath.Base(program), strings.Join(args, " "), err, out.String(),
			errOut.String())
	}
	return out.String(), err
}

func (c command) must(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := c.run(t, program, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// helm runs helm with a home directory of its own, as the administrator of the hub.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	home := t.TempDir()
	return command{env: []string{
		"HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home,
		"KUBECONFIG=" + hub().KubeconfigFile(),
	}}.run(t, helmPath, args...)
}

func mustHelm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := helm(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// kubectl runs kubectl as the administrator of the hub, with input.
func kubectl(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	return command{
		env: []string{"KUBECONFIG=" + hub().KubeconfigFile(), "KUBECACHEDIR=" + t.TempDir()}, stdin: strings.NewReader(input),
	}.run(t, clusters.BuiltKubectl(), args...)
}

func mustKubectl(t *testing.T, input string, args ...string) string {
	t.Helper()
	out, err := kubectl(t, input, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// examples returns the values files of a chart by name.
func examples(t *testing.T, chart string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(charts, chart, "examples", "*.yaml"))
	if err == nil && len(files) == 0 {
		err = errors.New("the chart has no examples")
	}
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]string{}
	for _, file := range files {
		byName[strings.TrimSuffix(filepath.Base(file), ".yaml")] = file
	}
	return byName
}
