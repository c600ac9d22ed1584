package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/shared/waittest"
)

// Kubectl runs kubectl. Its methods are safe for concurrent use unless Stdin is set.
type Kubectl struct {
	Kubeconfig, Context string
	Server              string // replaces the server of the context, if it is not empty
	Stdin               io.Reader
	Env                 []string
}

// WithInput returns k with doc as standard input.
func (k Kubectl) WithInput(doc string) Kubectl {
	k.Stdin = strings.NewReader(doc)
	return k
}

// NeverAllowed waits until a command fails with the text in its standard error. The test fails if the command succeeds
// meanwhile.
func (k Kubectl) NeverAllowed(t *testing.T, want string, args ...string) {
	t.Helper()
	k.waitForRefusal(t, want, args, func(r Result) {
		if r.Code == 0 {
			t.Fatalf("kubectl %v is allowed: %v", args, r)
		}
	})
}

// WaitForRefusal waits until a command, which may succeed at first, fails with the text in its standard error.
func (k Kubectl) WaitForRefusal(t *testing.T, want string, args ...string) {
	t.Helper()
	k.waitForRefusal(t, want, args, func(Result) {})
}

// Command returns a command that runs a kubectl and kills it with its children when ctx ends.
func (k Kubectl) Command(ctx context.Context, t *testing.T, bin string, args ...string) *exec.Cmd {
	t.Helper()
	cmd, err := k.command(ctx, t.TempDir(), bin, args)
	if err != nil {
		t.Fatal(err)
	}
	return cmd
}

func (k Kubectl) command(ctx context.Context, cache, bin string, args []string) (*exec.Cmd, error) {
	flags, err := k.flags(args)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, bin, flags...)
	// A start of kubectl is short, and a sixth of it would be garbage collection.
	cmd.Env = append(append(os.Environ(), "GOGC=400", "KUBECACHEDIR="+cache), k.Env...)
	// kubectl may start other processes. The signal reaches the whole process group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd, nil
}

// Run runs kubectl without a cache of discovery, for 5 minutes at most.
func (k Kubectl) Run(t *testing.T, args ...string) Result {
	t.Helper()
	r, err := k.Try(context.WithoutCancel(t.Context()), args...) // clean-ups run too
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Try is Run for goroutines, which may not fail the test at once. An exit code is no error.
func (k Kubectl) Try(ctx context.Context, args ...string) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	return k.once(ctx, Clusters.BuiltKubectl(), k.Stdin, args)
}

func (k Kubectl) once(ctx context.Context, bin string, stdin io.Reader, args []string) (Result, error) {
	cache, err := os.MkdirTemp("", "kubectl-cache-")
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = os.RemoveAll(cache) }()
	cmd, err := k.command(ctx, cache, bin, args)
	if err != nil {
		return Result{}, err
	}
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, io.MultiWriter(&errOut, Printed)
	if err := cmd.Run(); cmd.ProcessState == nil {
		return Result{}, fmt.Errorf("run kubectl %s: %w", strings.Join(args, " "), err)
	}
	return Result{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}, nil
}

// flags returns args behind the flags that name the server. kubectl 1.34 and later puts the path of the context's
// server before that of --raw, so the server is replaced.
func (k Kubectl) flags(args []string) ([]string, error) {
	flags, server := []string{"--kubeconfig", k.Kubeconfig, "--context", k.Context}, k.Server
	if slices.Contains(args, "--raw") && args[0] != "config" {
		if server == "" {
			kc, err := clientcmd.LoadFromFile(k.Kubeconfig)
			if err != nil {
				return nil, err
			}
			server = kc.Clusters[kc.Contexts[k.Context].Cluster].Server
		}
		u, err := url.Parse(server)
		if err != nil {
			return nil, err
		}
		u.Path = ""
		server = u.String()
	}
	if server != "" {
		flags = append(flags, "--server", server)
	}
	return append(flags, args...), nil
}

// Must runs a command that must succeed, and returns its standard output.
func (k Kubectl) Must(t *testing.T, args ...string) string {
	t.Helper()
	r := k.Run(t, args...)
	if r.Code != 0 {
		t.Fatalf("kubectl %s: exit %d\n%s%s", strings.Join(args, " "), r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// MustEventually repeats a command until it succeeds. Each process of a function reads a new grant by itself.
func (k Kubectl) MustEventually(t *testing.T, args ...string) string {
	t.Helper()
	var r Result
	t.Cleanup(func() {
		if r.Code != 0 {
			t.Logf("kubectl %v: %v", args, r)
		}
	})
	waittest.Until(t, "kubectl "+strings.Join(args, " ")+" succeeds", func() bool {
		if err := rewind(k.Stdin); err != nil {
			t.Fatal(err)
		}
		r = k.Run(t, args...)
		return r.Code == 0
	})
	return r.Stdout
}

// Apply applies YAML documents, which must succeed.
func (k Kubectl) Apply(t *testing.T, docs string, args ...string) {
	t.Helper()
	k.Stdin = strings.NewReader("---\n" + docs) // without it, kubectl reads a document in braces as JSON
	k.Must(t, append([]string{"apply", "-f", "-"}, args...)...)
}

func (k Kubectl) waitForRefusal(t *testing.T, want string, args []string, inspect func(Result)) {
	t.Helper()
	var r Result
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("kubectl %v: want %s: %v", args, want, r)
		}
	})
	waittest.Until(t, "kubectl "+strings.Join(args, " ")+" is refused", func() bool {
		if err := rewind(k.Stdin); err != nil {
			t.Fatal(err)
		}
		r = k.Run(t, args...)
		inspect(r)
		return r.Code != 0 && strings.Contains(r.Stderr, want)
	})
}

// Direct returns kubectl for a cluster, past the gateway, as its administrator.
func Direct(cluster string) Kubectl {
	return Kubectl{Kubeconfig: Clusters.KubeconfigFile(), Context: cluster}
}

// Through returns kubectl for a cluster through the shared gateway, as the gateway's owner.
func Through(t *testing.T, cluster string) Kubectl {
	return Kubectl{Kubeconfig: Shared(t).Kubeconfig, Context: cluster}
}

// OwnAPI returns kubectl for the own API of the shared gateway, as its owner.
func OwnAPI(t *testing.T) Kubectl { return Through(t, "clusterpass") }

// Result is the end of a command.
type Result struct {
	Stdout, Stderr string
	Code           int
}

func (r Result) String() string {
	return fmt.Sprintf("exit %d\n--- stdout\n%s--- stderr\n%s", r.Code, r.Stdout, r.Stderr)
}

// Kubectls returns the kubectl on PATH and the newest one, by a name for subtests.
func Kubectls() map[string]string {
	if Clusters.BuiltKubectl() == Clusters.Kubectl() {
		return map[string]string{"PATH": Clusters.Kubectl()}
	}
	return map[string]string{"newest": Clusters.BuiltKubectl(), "PATH": Clusters.Kubectl()}
}

// WantText fails the test unless the output contains each of the texts.
func WantText(t *testing.T, printed string, texts ...string) {
	t.Helper()
	for _, w := range texts {
		if !strings.Contains(printed, w) {
			t.Errorf("%q is missing in:\n%s", w, printed)
		}
	}
}

// CheckSameResult runs a command directly and through the gateway at once, and compares exit codes and outputs. It
// returns the gateway's result.
func CheckSameResult(t *testing.T, bin string, d, g Kubectl, stdin string, args ...string) Result {
	t.Helper()
	var dr, gr Result
	// A short timeout may end a command before its first output.
	mayDiffer := slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--request-timeout=") })
	// kube-apiserver may lose the exit code and the last output of a command that ends before its stdin.
	mayDiffer = mayDiffer || stdin != "" && !slices.Contains(args, "cat") && !slices.Contains(args, "wc")
	// kubectl's stderr may depend on time, so only a difference there is retried.
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); {
		dr, gr = RunTogether(t, bin, d, g, stdin, args...)
		same := dr.Code == gr.Code && sortLines(dr.Stdout) == sortLines(gr.Stdout)
		if !same && !mayDiffer {
			break
		}
		if same && Normalize(dr.Stderr) == Normalize(gr.Stderr) {
			return gr
		}
	}
	t.Errorf("kubectl %s\ndirectly: %v\nthrough the gateway: %v", strings.Join(args, " "), dr, gr)
	return gr
}

// sortLines sorts lines, since the order of the lines of several pods is not fixed.
func sortLines(s string) string {
	lines := slices.Sorted(strings.Lines(s))
	return strings.Join(lines, "")
}

// Two runs of one command may differ in these parts.
var variable = []struct {
	re   *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}`), "TIME"},
	{regexp.MustCompile(`("?resourceVersion"?: ?)"?\d+"?`), "${1}RV"},
	{regexp.MustCompile(`<invalid>|\b(\d+(d|h|m|s|ms))+\b`), "AGE"},
	{regexp.MustCompile(`\b(via|direct)\b`), "NS"},
	{regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5,10}(-[bcdfghjklmnpqrstvwxz2456789]{5})?\b`), "-RANDOM"},
	{regexp.MustCompile(`10\.\d+\.\d+\.\d+`), "IP"},
	{regexp.MustCompile(`  +`), "  "},
	{regexp.MustCompile(`-{3,}`), "---"},
}

// Normalize replaces the parts of an output in which two runs of one command may differ.
func Normalize(s string) string {
	for _, v := range variable {
		s = v.re.ReplaceAllString(s, v.with)
	}
	return s
}
