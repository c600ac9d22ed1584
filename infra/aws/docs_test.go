package aws

import (
	"bytes"
	"debug/elf"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/gateway"
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

// An operator who deletes the stack must find each resource that stays, and how to delete it.
func TestDocumentationListsWhatStays(t *testing.T) {
	rows := map[string]string{
		"AWS::DynamoDB::Table": "table", "AWS::KMS::Key": "key", "AWS::Logs::LogGroup": "log groups with audit events",
		"infra/aws/archive.yaml": "bucket with audit events", "infra/aws/recordings.yaml": "bucket with recordings",
	}
	text := page(t, "docs/guide/aws.md", "## Remove")
	for path, tmpl := range load(t) {
		for id, r := range tmpl.Resources {
			if !strings.HasPrefix(r.DeletionPolicy, "Retain") || r.Type == "AWS::S3::BucketPolicy" {
				continue
			}
			row := rows[r.Type]
			if r.Type == "AWS::S3::Bucket" {
				row = rows[path]
			}
			if row == "" || !strings.Contains(text, "\n| "+row+" |") {
				t.Errorf("docs/guide/aws.md does not say that %s %s stays", path, id)
			}
		}
	}
}

// An operator who deploys in another manner must create the role of ECS, too, by the command that make deploy runs.
func TestDocumentationNamesTheRoleOfECS(t *testing.T) {
	const command = "aws iam create-service-linked-role --aws-service-name ecs.amazonaws.com"
	script, err := os.ReadFile(filepath.Join(root, "scripts/deploy"))
	if err != nil || !strings.Contains(string(script), command) ||
		!strings.Contains(page(t, "docs/guide/aws.md", "## Deploy"), "`"+command+"`") {
		t.Errorf("make deploy or docs/guide/aws.md lacks %s: %v", command, err)
	}
}

// An operator decides by these numbers whether a new account suffices.
func TestDocumentationOfQuotas(t *testing.T) {
	all := load(t)
	text := page(t, "docs/guide/aws-quotas.md", "# ")
	parameters := all["template.yaml"].Parameters
	number := func(name string) float64 {
		n, err := strconv.ParseFloat(fmt.Sprint(*parameters[name].Default), 64)
		if err != nil {
			t.Errorf("the default of %s: %v", name, err)
		}
		return n
	}
	const unitsPerCore = 1024
	cores := 2 * number("BridgeMaxTasks") * number("BridgeCpu") / unitsPerCore // during an update
	throttles := all["infra/aws/alarms.yaml"].Resources["FunctionThrottles"].Properties
	for _, want := range []string{
		fmt.Sprintf("twice during an update: %g vCPU at the defaults", cores),
		fmt.Sprintf("a read lasts up to %g seconds in a function", gateway.FirstByte.Seconds()),
		fmt.Sprintf("lasts up to %v seconds", all["template.yaml"].Resources["ProxyFunction"].Properties["Timeout"]),
		strings.ReplaceAll(render(throttles["AlarmName"])[0], "${Prefix}", "PREFIX"),
	} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("docs/guide/aws-quotas.md lacks %q", want)
		}
	}
	if throttles["DatapointsToAlarm"] != 2.0 || !strings.Contains(text, "goes off after two minutes") {
		t.Errorf("the alarm goes off after %v minutes", throttles["DatapointsToAlarm"])
	}
	for _, m := range regexp.MustCompile("`([A-Z][A-Za-z]+)(?:=[^`]*)?`").FindAllStringSubmatch(text, -1) {
		if _, isParameter := parameters[m[1]]; !isParameter && m[1] != "CreateLogStream" && m[1] != "PutLogEvents" {
			t.Errorf("docs/guide/aws-quotas.md names %s, which the template lacks", m[1])
		}
	}
}

// A role without an access entry gets 401 from every member, so the script and its page must name each role that calls
// members.
func TestDocumentationNamesRolesThatCallMembers(t *testing.T) {
	all := load(t)
	var want []string
	for name, output := range all["template.yaml"].Outputs {
		if strings.HasSuffix(name, "Role") {
			want = append(want, name)
			value := render(output.Value)[0]
			if value != "${"+name+".Arn}" && value != "${BridgeService.Outputs.Role}" {
				t.Errorf("the output %s is %s", name, value)
			}
		}
	}
	slices.Sort(want)
	if got := render(all["infra/aws/bridge.yaml"].Outputs["Role"].Value)[0]; got != "${TaskRole.Arn}" {
		t.Errorf("the bridge's role is %s", got)
	}
	script, err := os.ReadFile(filepath.Join(root, "scripts/eks-access"))
	if err != nil {
		t.Fatal(err)
	}
	roles := regexp.MustCompile(`([A-Z][a-z]+Role)\b`)
	for name, text := range map[string]string{
		"scripts/eks-access": string(script), "docs/guide/eks.md": page(t, "docs/guide/eks.md", "## Roles that call members"),
	} {
		got := roles.FindAllString(text, -1)
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) || len(want) != 4 {
			t.Errorf("%s names %q, the outputs are %q", name, got, want)
		}
	}
}

// Operators choose parameters by the sums of docs/explanation/cost.md, and a standby region by one of them.
func TestDocumentationOfCostAddsUp(t *testing.T) {
	amount := regexp.MustCompile(`[0-9][0-9,]*(?:\.[0-9]+)?`)
	parse := func(text string) float64 {
		n, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, title := range []string{"## Without requests", "## Requests"} {
		sums := make([]float64, 4)
		var stated []string
		for line := range strings.Lines(page(t, "docs/explanation/cost.md", title)) {
			cells := strings.Split(strings.Trim(line, "| \n"), " | ")
			if strings.HasPrefix(line, "| | ") || cells[0] == "requests a month" {
				continue
			}
			if cells[0] == "**sum**" {
				stated = cells[1:]
				break
			}
			for i, cell := range cells[1:] {
				if number := amount.FindString(cell); number != "" && !strings.HasPrefix(cell, "below") {
					sums[i] += parse(number)
				}
			}
		}
		if len(stated) == 0 {
			t.Fatalf("docs/explanation/cost.md has no sum below %s", title)
		}
		for i, cell := range stated {
			if want := parse(amount.FindString(cell)); math.Abs(sums[i]-want) > max(0.5, want/100) {
				t.Errorf("%s: column %d is %s, and its rows are %.2f", title, i+1, cell, sums[i])
			}
		}
	}
	for _, text := range []string{"about 3, the last column", "about 80, its first column"} {
		if !strings.Contains(page(t, "docs/guide/standby-region.md", "## What it costs"), text) {
			t.Errorf("docs/guide/standby-region.md lacks %q, a sum of docs/explanation/cost.md", text)
		}
	}
}

// page returns a section of a page, to the next title of its level.
func page(t *testing.T, path, title string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut("\n"+string(text), "\n"+title)
	if !ok {
		t.Fatalf("%s has no section %s", path, title)
	}
	level, _, _ := strings.Cut(title, " ")
	section, _, _ = strings.Cut(section, "\n"+level+" ")
	return section
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
