package aws

import (
	"bytes"
	"debug/elf"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
)

// TestDocumentation: docs/reference/aws.md and the template have the same parameters.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/reference/aws.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "## Parameters")
	if table, _, _ = strings.Cut(table, "## "); !ok {
		t.Fatal("docs/reference/aws.md has no parameters")
	}
	parameters := load(t)["template.yaml"].Parameters
	var named []string
	for line := range strings.Lines(table) {
		if cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok {
			for _, m := range regexp.MustCompile("`([A-Za-z]+)`").FindAllStringSubmatch(cell, -1) {
				named = append(named, m[1])
			}
		}
	}
	for _, name := range named {
		if _, ok := parameters[name]; !ok {
			t.Errorf("docs/reference/aws.md describes %s, which the template lacks", name)
		}
	}
	for name := range parameters {
		if !slices.Contains(named, name) {
			t.Errorf("docs/reference/aws.md does not describe %s", name)
		}
	}
}

// An operator who returns to a region must start everything that the failover has stopped. CloudFormation does not.
func TestStandbyStartsWhatItStops(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs/guide/standby-region.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "## Fail over")
	stop, rest, _ := strings.Cut(rest, "## Return")
	start, _, ok := strings.Cut(rest, "## ")
	if !ok {
		t.Fatal("docs/guide/standby-region.md has no section about the return")
	}
	loop := regexp.MustCompile(`for f in ([a-z ]+); do`)
	stopped, started := loop.FindStringSubmatch(stop), loop.FindStringSubmatch(start)
	var functions []string
	for _, r := range of(load(t), "AWS::Lambda::Function") {
		functions = append(functions, strings.TrimPrefix(render(r.Properties["FunctionName"])[0], "${Prefix}-"))
	}
	slices.Sort(functions)
	for _, names := range [][]string{stopped, started} {
		if len(names) != 2 {
			t.Fatalf("functions are stopped by %q and started by %q", stopped, started)
		}
		if got := slices.Sorted(strings.FieldsSeq(names[1])); !slices.Equal(got, functions) {
			t.Errorf("%q has the functions %q, want %q", names[0], got, functions)
		}
	}
	tasks := fmt.Sprint(*load(t)["template.yaml"].Parameters["BridgeMinTasks"].Default)
	for stopping, starting := range map[string]string{
		"put-function-concurrency": "delete-function-concurrency",
		"--min-capacity 0":         "--min-capacity " + tasks,
		"--desired-count 0":        "--desired-count " + tasks,
	} {
		if !strings.Contains(stop, stopping) || !strings.Contains(start, starting) {
			t.Errorf("%s must stop, and %s start", stopping, starting)
		}
	}
}

// A parameter on the command line is not saved, so that the next make deploy undoes it. It would delete an archive.
func TestDocumentationSavesParameters(t *testing.T) {
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "sam deploy --parameter-overrides") {
			t.Errorf("%s does not save its parameters in samconfig.toml", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// usePython puts the Python with the packages of the tests, and its AWS CLI, first in PATH.
func usePython(t *testing.T) {
	t.Helper()
	python, err := mototest.Python("awscli", "samtranslator")
	if err != nil {
		t.Fatal(err)
	}
	if filepath.IsAbs(python) { // otherwise PATH has it
		t.Setenv("PATH", filepath.Dir(python)+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
}

// TestImage checks the calls of scripts/image to ECR, which moto provides, and to Go, which is a fake. infra/release
// tests the push.
func TestImage(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	usePython(t)
	a := newAccount(t)
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	fake := "#!/bin/sh\necho \"$GOARCH $*\" >> " + calls + "\n[ \"$1\" != run ] || cat >> " + calls + "\n"
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	for range 2 { // the second time the repository exists
		out, err := exec.CommandContext(t.Context(), filepath.Join(root, "scripts/image"), "clusterpass-bridge", "v1",
			"arm64,amd64").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	text, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"arm64 build -trimpath", "amd64 build -trimpath", "--arch arm64,amd64",
		"--username AWS --password-stdin\n"} {
		if strings.Count(string(text), want) != 2 {
			t.Errorf("go is called with\n%slacks twice %q", text, want)
		}
	}
	uri := regexp.MustCompile(`--push \d{12}\.dkr\.ecr\.` + region + `\.amazonaws\.com/clusterpass-bridge:v1 `)
	if password := regexp.MustCompile(`(?m)^\S{20,}$`); len(uri.FindAll(text, -1)) != 2 || !password.Match(text) {
		t.Errorf("go is called with\n%s", text)
	}
	var made struct {
		Repositories []struct{ ImageTagMutability string }
	}
	a.json(&made, "ecr", http.MethodPost, "/", "AmazonEC2ContainerRegistry_V20150921.DescribeRepositories", "{}")
	if len(made.Repositories) != 1 || made.Repositories[0].ImageTagMutability != "IMMUTABLE" {
		t.Errorf("the repositories are %v, want one whose tags cannot be moved to other images", made.Repositories)
	}
}

// TestDeploy checks the call of make deploy to sam, which is a fake. The command of sam build is run: a function must
// have the version of the bridge, although SAM copies the checkout without its .git.
func TestDeploy(t *testing.T) {
	dir := t.TempDir()
	sam := "#!/bin/sh\nset -e\n[ \"$1\" != build ] || make build-RotateFunction ARTIFACTS_DIR=" + dir + "\n"
	if err := os.WriteFile(filepath.Join(dir, "sam"), []byte(sam), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("BUILD_VERSION", "v9.8.7")
	// For this machine, since other architectures are not in the build cache.
	cmd := exec.CommandContext(t.Context(), "make", "-C", root, "deploy", "TAG=none", "ARCH="+runtime.GOARCH)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program, err := elf.Open(filepath.Join(dir, "bootstrap"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = program.Close() }()
	if want := map[string]elf.Machine{
		"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64,
	}[runtime.GOARCH]; program.Machine != want {
		t.Errorf("built for %s, want %s", program.Machine, want)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "bootstrap")); err != nil || !bytes.Contains(text, []byte("v9.8.7")) {
		t.Errorf("the function does not have the version of the deployment: %v", err)
	}
}
