package aws

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/infra/localstack/clienttest"
)

const patience = 10 * time.Minute

func wantPrograms(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(root, "dist/local", name)); err != nil {
			t.Fatalf("%v; make build-local builds it", err)
		}
	}
}

// kubectlPath returns a kubectl: that of PATH, or else the one that make clusters builds.
func kubectlPath(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("kubectl"); err == nil {
		return path
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	built, err := filepath.Glob(filepath.Join(cache, "clusterpass/kube/*/kubectl"))
	if err != nil || len(built) == 0 {
		t.Fatalf("no kubectl in PATH, and none is built (%v); make clusters builds it", err)
	}
	return built[0]
}

// kubectl returns what a failing kubectl prints as its error.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), kubectlPath(t), append(args, "--cache-dir", t.TempDir())...)
	cmd.Stderr = &stderr
	if err := cmd.Run(); err == nil {
		t.Errorf("kubectl %q does not fail", args)
	}
	return stderr.String()
}

// waitForFile waits until a program has written a file. It fails with the program's output if the program ends.
func waitForFile(t *testing.T, path string, ended <-chan error, out *bytes.Buffer) {
	t.Helper()
	for _, err := os.Stat(path); err != nil; _, err = os.Stat(path) {
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v\n%s", err, out.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// A developer can deploy to any AWS_ENDPOINT_URL, and clients can use the stores there.
func TestLocalStack(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	wantPrograms(t, "clusterpass-local", "clusterpass", "localstack-functions")
	newAccount(t)
	addr := quietAddress(t)
	if runtime.GOARCH == "amd64" { // newAccount created the template's default
		if err := os.Rename(filepath.Join(os.Getenv("DIST"), "arm64"),
			filepath.Join(os.Getenv("DIST"), "amd64")); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	t.Setenv("CLUSTERPASS_DATA", filepath.Join(dir, "data"))
	t.Setenv("CLUSTERPASS_LISTEN", addr)
	functions := quietAddress(t)
	t.Setenv("FUNCTIONS_LISTEN", functions)
	t.Setenv("CLUSTERPASS_TUNNEL_LISTEN", "127.0.0.1:0")
	t.Setenv("CLUSTERPASS_KUBECONFIG", kubeconfig)
	t.Setenv("KUBECONFIG", "")

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	up := exec.CommandContext(ctx, filepath.Join(root, "infra/localstack/up"), "Prefix=emulated")
	var out bytes.Buffer
	up.Stdout, up.Stderr = &out, &out
	up.Cancel = func() error { return up.Process.Signal(syscall.SIGTERM) }
	up.WaitDelay = time.Minute
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- up.Wait() }()
	stop := func() error {
		cancel()
		return <-ended
	}
	waitForFile(t, kubeconfig, ended, &out)
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if code, body := clienttest.Get(t, cfg, "/clusters/member1/version"); code != http.StatusNotFound ||
		!strings.Contains(body, "member1") {
		t.Errorf("a cluster that is not there: %d %s", code, body)
	}
	// A pass that the command line writes into the emulator's stores is valid at this bridge.
	pass := exec.CommandContext(t.Context(), filepath.Join(root, "dist/local/clusterpass"), "--store", "aws:emulated",
		"pass", "create", "p", "--user", "ann", "--gateway", kubeconfig)
	passText, err := pass.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, passText)
	}
	passFile := filepath.Join(dir, "pass.kubeconfig")
	if err := os.WriteFile(passFile, passText, 0o600); err != nil {
		t.Fatal(err)
	}
	for server, want := range map[string]string{
		cfg.Host: `Error from server (Forbidden): clusters.cluster.karmada.io "member1" is forbidden: User "ann" cannot get`,
		// moto runs no functions. It answers by itself, and not with 401.
		"https://" + functions: "Error from server (NotFound): the server could not find the requested resource",
	} {
		got := kubectl(t, "--kubeconfig", passFile, "--server", server+"/clusters/member1", "get", "nodes")
		if !strings.Contains(got, want) {
			t.Errorf("kubectl at %s prints\n%s, want %q", server, got, want)
		}
	}
	if err := stop(); err != nil && up.ProcessState.ExitCode() != 0 {
		t.Errorf("the end: %v", err)
	}
	for _, want := range []string{
		"==> deploy to ", ": done in ", "BridgeUrl=https://" + addr, "CLUSTERPASS_STORE=aws:emulated,key=alias/emulated",
		"kubectl --kubeconfig pass.kubeconfig --server https://" + functions + "/clusters/NAME get nodes",
	} {
		if text := out.String(); !strings.Contains(text, want) {
			t.Errorf("no %q in its output:\n%s", want, text)
		}
	}
}

// deployToFake runs stack.py deploy with fakes of S3 and CloudFormation, in which a resource of a nested stack fails.
// It prints how the deployment ends, and the URLs of the templates.
const deployToFake = `
import json, sys
sys.path.insert(0, "infra/localstack")
import boto3, stack
from botocore.exceptions import ClientError, WaiterError

STACK = "AWS::CloudFormation::Stack"
def event(stack, kind, name, id, status, **reason):
    return {"StackId": stack, "ResourceType": kind, "LogicalResourceId": name, "PhysicalResourceId": id,
            "ResourceStatus": status, **reason}
events = {
    "outer": [
        event("outer", STACK, "outer", "outer", "CREATE_FAILED"),
        event("outer", STACK, "Bridge", "inner", "CREATE_FAILED", ResourceStatusReason="not created"),
        event("outer", STACK, "Network", "fine", "CREATE_COMPLETE"),
    ],
    "inner": [event("inner", "AWS::ECS::Cluster", "Cluster", "", "CREATE_FAILED", ResourceStatusReason="no role")],
}
files, urls = {}, []
class Fake:
    meta = type("Meta", (), {"region_name": "eu-central-1"})
    def create_bucket(self, **request): pass
    def put_object(self, Bucket, Key, Body): files[f"{Bucket}/{Key}"] = Body
    def describe_stacks(self, StackName): raise ClientError({}, "DescribeStacks")
    def create_stack(self, TemplateURL, **request): urls.append(TemplateURL)
    def get_waiter(self, name): return self
    def wait(self, StackName): raise WaiterError("stack_create_complete", "a resource fails", {})
    def get_paginator(self, name): return self
    def paginate(self, StackName): return [{"StackEvents": [e]} for e in events[StackName]]
boto3.client = lambda *service, **options: Fake()
try:
    stack.deploy("outer", {})
except SystemExit as e:
    print(e)
place = "https://s3.eu-central-1.amazonaws.com/"
for resource in json.loads(files[urls[0].removeprefix(place)])["Resources"].values():
    if resource["Type"] == STACK:
        urls.append(resource["Properties"]["TemplateURL"])
for url in urls:
    print(url, url.removeprefix(place) in files)
`

// A developer must see why a resource of a nested stack failed. The event of the outer stack names only the nested
// stack. Emulators do not resolve a host name for each bucket, so the URLs of templates must not contain any.
func TestLocalStackDeploys(t *testing.T) {
	t.Setenv("DIST", emptyFunctions(t))
	out, err := python("-c", deployToFake)
	const reasons = "the stack outer fails:\nBridge.Cluster: no role\nBridge: not created\n"
	text, isFirst := strings.CutPrefix(string(out), reasons)
	if err != nil || !isFirst {
		t.Fatalf("it prints\n%s%v, want\n%s", out, err, reasons)
	}
	pathStyle := regexp.MustCompile(`^https://s3\.eu-central-1\.amazonaws\.com/outer-deploy/[0-9a-f]{16}-[a-z]+\.` +
		`(yaml|json) True\n$`)
	urls := slices.Collect(strings.Lines(text))
	for _, url := range urls {
		if !pathStyle.MatchString(url) {
			t.Errorf("a template is at %s", url)
		}
	}
	if want := len(load(t)); len(urls) != want {
		t.Errorf("%d templates have URLs, want %d", len(urls), want)
	}
}

// LocalStack must be reachable only from this machine.
func TestLocalStackCompose(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "infra/localstack/compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Services map[string]struct {
			Ports       []string
			Environment map[string]string
		}
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	service := doc.Services["localstack"]
	up, err := os.ReadFile(filepath.Join(root, "infra/localstack/up"))
	if err != nil {
		t.Fatal(err)
	}
	if len(service.Ports) != 1 || !strings.HasPrefix(service.Ports[0], "127.0.0.1:4566:") ||
		!bytes.Contains(up, []byte("AWS_ENDPOINT_URL=http://127.0.0.1:4566\n")) {
		t.Errorf("it listens on %v", service.Ports)
	}
	if !strings.HasPrefix(service.Environment["LOCALSTACK_AUTH_TOKEN"], "${LOCALSTACK_AUTH_TOKEN:?") {
		t.Error("it begins without a token")
	}
	services := strings.Split(service.Environment["SERVICES"], ",")
	all := load(t)
	top := all["template.yaml"].with("FrontDoor=api", "BridgeUrl=https://127.0.0.1:8443")
	need := []string{"s3", "secretsmanager", "sts"}
	for _, g := range []given{
		top, all["infra/aws/api.yaml"].with(), all["infra/aws/alarms.yaml"].with("LoadBalancer=", "Email="),
	} {
		for _, r := range g.Resources {
			if r.Condition == "" || g.condition(r.Condition) {
				need = append(need, strings.ToLower(strings.Split(r.Type, "::")[1]))
			}
		}
	}
	for _, s := range need {
		if !slices.Contains(services, s) {
			t.Errorf("the stack needs %s", s)
		}
	}
}

// quietAddress returns a loopback address below the range of ephemeral ports, where no program listens by chance.
func quietAddress(t *testing.T) string {
	t.Helper()
	for {
		addr := fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(10_000))
		ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
		if err == nil {
			_ = ln.Close()
			return addr
		} else if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
}
