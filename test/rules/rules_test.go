// Package rules tests rules of the source tree: imports between packages, dependencies of functions, and documentation.
package rules

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/clusterpass/clusterpass/"

type pkg struct {
	ImportPath, Doc, Name, Export      string
	Imports, TestImports, XTestImports []string
}

func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	const fields = "-json=ImportPath,Doc,Name,Export,Imports,TestImports,XTestImports"
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", fields}, args...)...)
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

// folderImports maps each top-level folder to the other folders that its packages may import.
var folderImports = map[string][]string{
	"shared":           {},
	"functions":        {"shared"},
	"websocket-bridge": {"shared"},
	"scripts":          {"shared"},
	"infra":            {"shared", "functions", "websocket-bridge", "scripts"},
	"test":             {"shared", "functions", "websocket-bridge", "scripts", "infra"},
}

// sharedLayers are the packages of shared from top to bottom: each may import only those after it. Nested packages have
// the layer of their parent.
var sharedLayers = []string{
	"assembly", "control", "gatewaytest", "gateway", "registration", "backup", "stores", "health", "fleet", "forward",
	"lambdahttp", "cluster", "eks", "recording", "access", "tunnel", "passes", "identity", "audit", "clustertest", "pki",
	"objects", "secrets", "hub", "limits", "quota", "route", "status", "awsclient", "cache", "config", "encoding",
	"filelock", "heap", "utf8tail", "version", "leaktest", "pipetest", "alloctest", "storesuite", "metrictest",
	"waittest", "api",
}

// fleetLayers are the packages below shared/fleet from top to bottom. Each may import only those after it.
var fleetLayers = []string{
	"list", "watch", "object", "review", "discovery", "respond", "selection", "request", "members",
	"naming", "merge", "cursor", "registry", "scan",
}

func folder(importPath string) (string, bool) {
	rest, ok := strings.CutPrefix(importPath, module)
	first, _, _ := strings.Cut(rest, "/")
	return first, ok
}

// TestPackagesImportOnlyLowerLayers: without layers, a change to one concern reaches all others, and functions link
// code that they do not use.
func TestPackagesImportOnlyLowerLayers(t *testing.T) {
	for _, p := range list(t, "./...") {
		from, ok := folder(p.ImportPath)
		if _, known := folderImports[from]; !ok || !known {
			t.Errorf("%s is in a folder without a layer", p.ImportPath)
			continue
		}
		imports := p.Imports
		if from != "test" {
			// Tests keep to the folders of their package; only those in test may import all folders.
			imports = slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		}
		for _, imp := range imports {
			to, ok := folder(imp)
			if ok && to != from && !slices.Contains(folderImports[from], to) {
				t.Errorf("%s imports %s", p.ImportPath, imp)
			}
		}
		if from == "shared" {
			checkSharedLayers(t, p)
		}
		checkLambda(t, p)
	}
}

func checkSharedLayers(t *testing.T, p pkg) {
	t.Helper()
	checkLayers(t, p, module+"shared/", sharedLayers)
	if p.ImportPath != module+"shared/fleet" {
		checkLayers(t, p, module+"shared/fleet/", fleetLayers)
	}
}

func checkLayers(t *testing.T, p pkg, folder string, layers []string) {
	t.Helper()
	layer := func(importPath string) int {
		rest, ok := strings.CutPrefix(importPath, folder)
		if !ok {
			return -1
		}
		top, _, _ := strings.Cut(rest, "/")
		i := slices.Index(layers, top)
		if i < 0 {
			t.Errorf("%s is in no layer of %s", importPath, folder)
		}
		return i
	}
	own := layer(p.ImportPath)
	for _, imp := range p.Imports {
		if i := layer(imp); i >= 0 && i < own {
			t.Errorf("%s imports %s, which is in a higher layer", p.ImportPath, imp)
		}
	}
}

// TestAnswersOfFleetAreSeparate: a change to one of list, watch, object, review and discovery must not reach the
// others.
func TestAnswersOfFleetAreSeparate(t *testing.T) {
	answers := []string{"list", "watch", "object", "review", "discovery"}
	for _, name := range answers {
		for _, p := range list(t, "./shared/fleet/"+name) {
			for _, other := range answers {
				if slices.Contains(p.Imports, module+"shared/fleet/"+other) {
					t.Errorf("%s imports %s", p.ImportPath, other)
				}
			}
		}
	}
}

// checkLambda allows aws-lambda-go only in functions and shared/lambdahttp, so that other code runs everywhere.
func checkLambda(t *testing.T, p pkg) {
	t.Helper()
	isAllowed := strings.HasPrefix(p.ImportPath, module+"functions/") || p.ImportPath == module+"shared/lambdahttp"
	for _, imp := range p.Imports {
		if strings.HasPrefix(imp, "github.com/aws/aws-lambda-go") && !isAllowed {
			t.Errorf("%s imports %s", p.ImportPath, imp)
		}
	}
}

// TestFunctionsLinkNoLargeDependencies: each of these packages makes every cold start slower.
func TestFunctionsLinkNoLargeDependencies(t *testing.T) {
	banned := []string{
		"k8s.io/client-go/kubernetes", "k8s.io/client-go/kubernetes/scheme", "k8s.io/apiserver", "k8s.io/api/core/v1",
		"github.com/aws/aws-sdk-go-v2/config", module + "shared/control",
		"github.com/aws/aws-sdk-go-v2/service/kms",         // functions sign no passes
		"k8s.io/client-go/plugin", "k8s.io/client-go/rest", // functions run no credential plugins
		"github.com/spf13/pflag", // functions have no flags
		module + "shared/backup",
		// These packages initialize all types of a service before main. That costs a tenth of a start and half a megabyte.
		"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/schemas",
		"github.com/aws/aws-sdk-go-v2/service/dynamodb/schemas",
		"github.com/aws/aws-sdk-go-v2/service/secretsmanager/schemas",
	}
	singleCluster := append([]string{module + "shared/fleet", module + "shared/assembly/fleetconfig"}, banned...)
	for name, banned := range map[string][]string{"fleet": banned, "proxy": singleCluster, "rotate": singleCluster,
		"control": {module + "shared/backup", "k8s.io/client-go/kubernetes", "k8s.io/client-go/informers", "go.etcd.io",
			"k8s.io/apiserver/pkg/admission/plugin", "k8s.io/apiserver/pkg/registry/generic",
			"k8s.io/apiserver/pkg/server/filters", "k8s.io/api/core/v1"}} {
		fn := "./functions/" + name + "/bootstrap"
		for _, p := range list(t, "-deps", "-tags", "lambda.norpc", fn) {
			for _, b := range banned {
				if p.ImportPath == b || strings.HasPrefix(p.ImportPath, b+"/") {
					t.Errorf("%s links %s", fn, p.ImportPath)
				}
			}
		}
	}
}

// TestOnlyLocalProgramRunsPlugins: a kubeconfig in a store must not make a program run. Only these packages may convert
// a kubeconfig to a client of client-go, which runs its plugin. functions/control and the bridge link that code with
// client-go's clientcmd, and do not use it.
func TestOnlyLocalProgramRunsPlugins(t *testing.T) {
	const runner = module + "infra/local/plugin"
	clients := map[string]string{ // packages that import client-go's clients, with the reason
		module + "shared/stores/kubernetes":      "the operator's own kubeconfig for the stores, and the own pod",
		module + "websocket-bridge/agent/server": "the service account of the agent's own pod",
	}
	for _, p := range list(t, "./shared/...", "./functions/...", "./websocket-bridge/...") {
		for _, imp := range p.Imports {
			isClient := imp == "k8s.io/client-go/rest" || imp == "k8s.io/client-go/kubernetes" ||
				strings.HasPrefix(imp, "k8s.io/client-go/plugin")
			if isClient && clients[p.ImportPath] == "" {
				t.Errorf("%s imports %s", p.ImportPath, imp)
			}
		}
	}
	for _, program := range []string{
		"./functions/...", "./websocket-bridge/...", "./scripts/...", "./infra/local/lambda/...",
	} {
		for _, p := range list(t, "-deps", program) {
			if p.ImportPath == runner {
				t.Errorf("%s links %s", program, runner)
			}
		}
	}
}

// TestCheckRunsEveryTestWithoutCluster: make check would miss faults that it can find within seconds.
func TestCheckRunsEveryTestWithoutCluster(t *testing.T) {
	local := makeVariable(t, "LOCAL")
	for tested, deps := range testDeps(t, "./test/...") {
		// make check runs test/rules by itself, without the cache.
		if tested != "test/rules" && !slices.Contains(deps, module+"test/cluster") && !slices.Contains(local, "./"+tested) {
			t.Errorf("%s starts no cluster: add it to LOCAL in the Makefile", tested)
		}
	}
}

// TestCachedTestsStartNoCluster: make test would not repeat tests after a change of the programs of a cluster, which go
// test does not see.
func TestCachedTestsStartNoCluster(t *testing.T) {
	for tested, deps := range testDeps(t, makeVariable(t, "CACHED")...) {
		if slices.Contains(deps, module+"test/cluster") {
			t.Errorf("%s starts a cluster: remove it from CACHED in the Makefile", tested)
		}
	}
}

// makeVariable returns the fields of a variable in the Makefile.
func makeVariable(t *testing.T, name string) []string {
	t.Helper()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(strings.ReplaceAll(string(makefile), "\\\n", " "), "\n"+name+" ")
	line, _, _ := strings.Cut(rest, "\n")
	_, value, found := strings.Cut(line, ":=")
	if !found {
		t.Fatalf("the Makefile does not set %s", name)
	}
	return strings.Fields(value)
}

// testDeps maps each package with tests, relative to the module, to the packages that its test program links.
func testDeps(t *testing.T, packages ...string) map[string][]string {
	t.Helper()
	const format = `{{.ImportPath}} {{join .Deps " "}}`
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-test", "-f", format}, packages...)...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		deps := strings.Fields(line)
		if tested, isTest := strings.CutSuffix(strings.TrimPrefix(deps[0], module), ".test"); isTest {
			all[tested] = deps
		}
	}
	return all
}

// TestOnlyMainSetsGlobals: a library package must not change what other code in the process logs.
func TestOnlyMainSetsGlobals(t *testing.T) {
	setter := regexp.MustCompile(`\bklog\.(Set|LogTo)\w+\(|\bslog\.SetDefault\(|\blog\.Set(Output|Flags|Prefix)\(`)
	for name, source := range sourceFiles(t) {
		isLibrary := strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") &&
			!strings.HasPrefix(name, "test/") && !strings.Contains(source, "\npackage main\n")
		if found := setter.FindString(source); isLibrary && found != "" {
			t.Errorf("%s calls %s...): call it in main", name, found)
		}
	}
}

func TestEveryPackageHasComment(t *testing.T) {
	for _, p := range list(t, "./...") {
		if p.Doc == "" && len(p.Imports) > 0 {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
		if slices.Contains([]string{"util", "utils", "common", "helpers", "types", "misc"}, p.Name) {
			t.Errorf("%s: name the package after what it provides", p.ImportPath)
		}
	}
}
