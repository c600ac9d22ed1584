// Package house holds the house to its plan: who may import whom, and what may be linked into a function.
package house

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/clusterpass/clusterpass/"

type pkg struct {
	ImportPath, Doc, Name              string
	Imports, TestImports, XTestImports []string
	Standard                           bool
}

func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Doc,Name,Imports,TestImports,XTestImports,Standard"}, args...)...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("go list: %s", exit.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// mayImport says for each room which rooms it may import from, beside itself.
var mayImport = map[string][]string{
	"shared":           {},
	"functions":        {"shared"},
	"websocket-bridge": {"shared"},
	"scripts":          {"shared"},
	"infra":            {"shared", "functions", "websocket-bridge", "scripts"},
	"test":             {"shared", "functions", "websocket-bridge", "scripts", "infra"},
}

func room(path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, module)
	first, _, _ := strings.Cut(rest, "/")
	return first, ok
}

// order are the packages of shared from top to bottom: each may import only those after it. A package that is not
// named stands with its parent.
var order = []string{
	"control", "gatewaytest", "gateway", "registration", "stores", "health", "fleet", "forward", "lambdahttp",
	"cluster", "eks", "access", "tunnel", "passes", "identity", "audit", "clustertest", "pki", "objects", "secrets", "route", "status",
	"awsclient", "cache", "config", "telemetry", "filelock", "leaktest", "pipetest", "alloctest", "metrictest", "waittest", "api",
}

func TestImportsGoDownward(t *testing.T) {
	for _, p := range list(t, "./...") {
		from, ok := room(p.ImportPath)
		if !ok {
			t.Errorf("%s is outside of every room", p.ImportPath)
			continue
		}
		imports := p.Imports
		if from != "test" {
			// Tests of a room stand in it; only end-to-end tests see the whole house.
			imports = slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		}
		for _, imp := range imports {
			to, ok := room(imp)
			if !ok || to == from {
				continue
			}
			if !slices.Contains(mayImport[from], to) {
				t.Errorf("%s imports %s", p.ImportPath, imp)
			}
		}
		if from == "shared" {
			sharedDownward(t, p)
		}
	}
}

func sharedDownward(t *testing.T, p pkg) {
	t.Helper()
	rank := func(path string) int {
		rest, ok := strings.CutPrefix(path, module+"shared/")
		if !ok {
			return -1
		}
		top, _, _ := strings.Cut(rest, "/")
		i := slices.Index(order, top)
		if i < 0 {
			t.Errorf("%s has no place in the order of shared", path)
		}
		return i
	}
	mine := rank(p.ImportPath)
	for _, imp := range p.Imports {
		if r := rank(imp); r >= 0 && r < mine {
			t.Errorf("%s imports %s, which stands above it", p.ImportPath, imp)
		}
	}
}

// TestHotFunctions holds: cold start is a feature.
func TestHotFunctions(t *testing.T) {
	banned := []string{
		"k8s.io/client-go/kubernetes", "k8s.io/client-go/kubernetes/scheme", "k8s.io/apiserver", "k8s.io/api/core/v1", "github.com/aws/aws-sdk-go-v2/config", module + "shared/control",
		// Every shape of a service, of which a few are used, is made before main: a tenth of a start, half a megabyte.
		"github.com/aws/aws-sdk-go-v2/service/dynamodb/schemas", "github.com/aws/aws-sdk-go-v2/service/secretsmanager/schemas",
	}
	for _, fn := range []string{"./functions/fleet/bootstrap", "./functions/proxy/bootstrap", "./functions/rotate/bootstrap"} {
		for _, p := range list(t, "-deps", "-tags", "lambda.norpc", fn) {
			for _, b := range banned {
				if p.ImportPath == b || strings.HasPrefix(p.ImportPath, b+"/") {
					t.Errorf("%s links %s", fn, p.ImportPath)
				}
			}
		}
	}
}

// TestLambdaStaysAtTheDoor holds: what runs in a function does not know that it does.
func TestLambdaStaysAtTheDoor(t *testing.T) {
	for _, p := range list(t, "./...") {
		for _, imp := range p.Imports {
			rest := strings.TrimPrefix(p.ImportPath, module)
			if strings.HasPrefix(imp, "github.com/aws/aws-lambda-go") && !strings.HasPrefix(rest, "functions/") && rest != "shared/lambdahttp" {
				t.Errorf("%s imports %s", p.ImportPath, imp)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range list(t, "./...") {
		if p.Doc == "" && len(p.Imports) > 0 {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
		if slices.Contains([]string{"util", "utils", "common", "helpers", "types", "misc"}, p.Name) {
			t.Errorf("%s: a package is named after what it provides", p.ImportPath)
		}
	}
}
