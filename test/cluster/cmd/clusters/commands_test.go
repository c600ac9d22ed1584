package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/test/cluster/ownership"
)

func typed(t *testing.T, args ...string) (out, progress string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c := newCommand()
	c.SetArgs(args)
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	err = c.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

func TestFromUpToDown(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	must := func(args ...string) string {
		t.Helper()
		out, progress, err := typed(t, args...)
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, progress)
		}
		return out
	}
	wants := func(out string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%q is not in\n%s", want, out)
			}
		}
	}
	logs := t.TempDir()
	out := must("up", "--clusters", "one", "--no-kubelet", "--set", "try", "--log-dir", logs)
	t.Cleanup(func() { must("down", "--set", "try") })
	file := strings.TrimSpace(must("kubeconfig", "--set", "try", "--path"))
	wants(out, "export KUBECONFIG="+file+"\n", "kubectl --context one get nodes", program+" down --set try")

	wants(must("list"), "try", "one", "all running")
	config, err := clientcmd.Load([]byte(must("kubeconfig", "one", "--set", "try")))
	if err != nil || config.CurrentContext != "one" {
		t.Errorf("the kubeconfig is %v, %v; want one for cluster one", config, err)
	}
	must("load", "one", "--set", "try", "--pods", "20")

	for _, fail := range []struct {
		args []string
		want string
	}{
		{[]string{"up", "--set", "try"}, "run already: try"},
		{[]string{"kubeconfig", "two", "--set", "try"}, `no cluster "two", only one`},
		{[]string{"load", "two", "--set", "try"}, `no cluster "two", only one`},
		{[]string{"load", "one", "--set", "other"}, `set "other" run: start them`},
		{[]string{"kubeconfig", "--set", "other"}, `set "other" run: start them`},
	} {
		if _, _, err := typed(t, fail.args...); err == nil || !strings.Contains(err.Error(), fail.want) {
			t.Errorf("%v: got error %v, want one with %q", fail.args, err, fail.want)
		}
	}

	wants(must("down", "--set", "try"), "are gone")
	if _, err := os.Stat(ownership.Root()); !os.IsNotExist(err) {
		t.Errorf("after down %s is there: %v", ownership.Root(), err)
	}
	wants(must("down", "--set", "try"), "no clusters")
	if text, err := os.ReadFile(filepath.Join(logs, "one", "kube-apiserver.log")); err != nil || len(text) == 0 {
		t.Errorf("the log that was to be kept: %d bytes, %v", len(text), err)
	}
}

func TestHelpIsComplete(t *testing.T) {
	root := newCommand()
	var check func(c *cobra.Command)
	check = func(c *cobra.Command) {
		if c.Short == "" {
			t.Errorf("%s says nothing of itself", c.CommandPath())
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s says nothing of itself", c.CommandPath(), f.Name)
			}
		})
		for _, sub := range c.Commands() {
			check(sub)
		}
	}
	check(root)

	help, _, err := typed(t, "--help")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"up", "down", "kubeconfig", "list", "load", "build"} {
		if !strings.Contains(help, "\n  "+name+" ") {
			t.Errorf("the help does not name %s:\n%s", name, help)
		}
	}
}
