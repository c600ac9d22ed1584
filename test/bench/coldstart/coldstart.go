// Package coldstart measures the size of each function and the time from its start to its first response. A hello world
// in the same run is the reference, because machines are noisy. It needs what make build-local builds, and runs in the
// root of the checkout.
package coldstart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/clusterpass/clusterpass/infra/local/lambda"
	"github.com/clusterpass/clusterpass/infra/local/lambda/event"
	"github.com/clusterpass/clusterpass/shared/pki"
)

const (
	// starts is the number of starts of each function. They are interleaved, which spreads noise of the machine over all.
	starts = 100
	// pause is usually sufficient for the end of the process of the previous start.
	pause = 20 * time.Millisecond
)

// goals are the maximum starts of the functions that serve every call, relative to hello's.
var goals = map[string]float64{"proxy": 1.6, "fleet": 1.8, "control": 6}

// builtFunctions matches the functions that make build-local built, as released but for this machine's architecture.
const builtFunctions = "dist/local/functions/*/bootstrap"

// function is a binary and its measured starts.
type function struct {
	name, path string
	like       string // the function whose variables of the Go runtime it has
	run        *lambda.Function
	durations  []time.Duration
}

// Result is the median start of a function relative to that of the hello world. Goal is its maximum, or 0.
type Result struct {
	Name        string
	Ratio, Goal float64
}

// Run prints a row for each function.
func Run(ctx context.Context, out io.Writer) (results []Result, err error) {
	dir, err := os.MkdirTemp("", "clusterpass-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	functions, err := binaries(ctx, dir)
	if err != nil {
		return nil, err
	}
	env, err := environment(dir)
	if err != nil {
		return nil, err
	}
	for i, f := range functions {
		if f.path, err = unpack(f.path, filepath.Join(dir, fmt.Sprint("unpacked-", i))); err != nil {
			return nil, err
		}
		// MaxInvocations ends each process after one call. On a busy machine, several processes may be ending at once.
		own := maps.Clone(env)
		maps.Copy(own, lambda.RuntimeVariables(f.like))
		if f.run, err = lambda.NewFunction(lambda.Config{Name: f.name, Bootstrap: f.path, Env: own, MaxInvocations: 1,
			MaxConcurrency: 10}); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, f.run.Close(context.WithoutCancel(ctx))) }()
	}
	if err := measure(ctx, functions); err != nil {
		return nil, err
	}
	return report(out, functions)
}

// hello is the hello world.
const hello = "test/bench/coldstart/testdata/hello/main.go"

// binaries builds the hello world, also with the libraries of functions, and finds the functions that are built.
func binaries(ctx context.Context, dir string) ([]*function, error) {
	all := []*function{{name: "hello", path: filepath.Join(dir, "hello")}}
	if err := BuildHello(ctx, all[0].path); err != nil {
		return nil, err
	}
	for _, name := range []string{"proxy", "fleet"} {
		f := &function{name: "hello, libraries of " + name, like: name, path: filepath.Join(dir, name)}
		source := f.path + ".go"
		if err := writeFloor(ctx, source, name); err != nil {
			return nil, err
		}
		if err := buildHello(ctx, f.path, source); err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	found, err := filepath.Glob(builtFunctions)
	if err == nil && len(found) == 0 {
		err = errors.New("dist/local/functions is empty; run make build-local at the top of the checkout")
	}
	for _, path := range found {
		name := filepath.Base(filepath.Dir(path))
		all = append(all, &function{name: name, like: name, path: path})
	}
	return all, err
}

// BuildHello builds the hello world into program.
func BuildHello(ctx context.Context, program string) error { return buildHello(ctx, program, hello) }

func buildHello(ctx context.Context, program, source string) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-tags", "lambda.norpc", "-o",
		program, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", source, err, text)
	}
	return nil
}

// writeFloor writes a hello world that imports the packages of others that this module imports for a function. It is
// the floor of the function's start.
func writeFloor(ctx context.Context, file, function string) error {
	const module = "github.com/clusterpass/clusterpass/"
	list := exec.CommandContext(ctx, "go", "list", "-deps", "-tags", "lambda.norpc", "-f",
		`{{if .Module}}{{if .Module.Main}}{{join .Imports "\n"}}{{end}}{{end}}`, "./functions/"+function+"/bootstrap")
	list.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("list the packages of functions/%s: %w", function, err)
	}
	imports := slices.DeleteFunc(strings.Fields(string(out)), func(path string) bool {
		return strings.HasPrefix(path, module)
	})
	slices.Sort(imports)
	imports = slices.Compact(imports)
	text, err := os.ReadFile(hello)
	if err != nil {
		return err
	}
	const first = "import (\n"
	before, after, ok := strings.Cut(string(text), first)
	if !ok || len(imports) == 0 {
		return fmt.Errorf("add %d imports to %s: it has no list of them", len(imports), hello)
	}
	return os.WriteFile(file, []byte(before+first+"\t_ \""+strings.Join(imports, "\"\n\t_ \"")+"\"\n"+after), 0o600)
}

// unpack copies a program, as Lambda unpacks a package. The linker writes its output in another manner, by a memory
// mapping, and from such a file the kernel loads smaller parts.
func unpack(from, to string) (string, error) {
	program, err := os.ReadFile(from)
	if err != nil {
		return "", err
	}
	return to, os.WriteFile(to, program, 0o700)
}

// environment returns the variables of the template. The functions make no request to AWS.
func environment(dir string) (map[string]string, error) {
	ca, err := pki.LoadCA(dir, "client-ca")
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"CLUSTERPASS_STORE": "aws:bench", "CLUSTERPASS_CLIENT_CA": string(ca.PEM()),
		"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
	}, nil
}

// measure makes a call without a credential. Each function refuses it without another request.
func measure(ctx context.Context, functions []*function) error {
	payload, err := event.ALB{}.Event(httptest.NewRequest(http.MethodGet, "/clusters/member1/api/v1/namespaces/default",
		nil))
	if err != nil {
		return err
	}
	order := slices.Clone(functions)
	for round := range starts + 1 {
		slices.Reverse(order) // so that none always follows the same other one
		for _, f := range order {
			time.Sleep(pause)
			start := time.Now()
			_, err := f.run.Invoke(ctx, payload)
			elapsed := time.Since(start)
			var functionError *lambda.FunctionError // rotate does not know this event
			if err != nil && (!errors.As(err, &functionError) || f.name != "rotate") {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			if round > 0 { // the first start reads the binary from disk
				f.durations = append(f.durations, elapsed)
			}
		}
	}
	return nil
}

// report prints a row for each function.
func report(out io.Writer, functions []*function) (results []Result, err error) {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "\ncold start\tp50 ms\tp95 ms\t/ hello\tMB\t")
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	hello := 0.0
	for _, f := range functions {
		slices.Sort(f.durations)
		p50, p95 := ms(f.durations[len(f.durations)/2]), ms(f.durations[len(f.durations)*95/100])
		if hello == 0 {
			hello = p50
		}
		st, err := os.Stat(f.path)
		if err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(tw, "%s\t%.1f\t%.1f\t%.2f\t%.2f\t\n", f.name, p50, p95, p50/hello, float64(st.Size())/1e6)
		results = append(results, Result{f.name, p50 / hello, goals[f.name]})
	}
	return results, tw.Flush()
}
