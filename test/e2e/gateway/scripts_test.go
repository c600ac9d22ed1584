package gateway_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

const shopYAML = `
apiVersion: v1
kind: ConfigMap
metadata: {name: color, labels: {app: shop}}
data: {value: green}
`

const shopOfOneYAML = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: shop}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: size, labels: {app: shop}}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: web, image: any,
    command: [sh, -c, 'i=0; while sleep 0.2; do echo "web says $i"; i=$((i+1)); done']}]
`

type snippet struct{ code, prints string }

func snippets(t *testing.T, doc string) map[string][]snippet {
	t.Helper()
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]snippet{}
	for _, m := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```\n(?:\n```\n(.*?)^```\n)?").FindAllStringSubmatch(
		string(text), -1) {
		found[m[1]] = append(found[m[1]], snippet{m[2], m[3]})
	}
	return found
}

const ending = "== the end of a snippet =="

func checkOutput(t *testing.T, all []snippet, printed string) {
	t.Helper()
	parts := strings.Split(printed, "\n"+ending+"\n")
	if len(parts) != len(all)+1 {
		t.Fatalf("%d of %d snippets end:\n%s", len(parts)-1, len(all), printed)
	}
	for i, s := range all {
		want := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(s.prints)), "…", "(?s:.*?)")
		if !regexp.MustCompile("^" + want + "$").MatchString(strings.TrimSpace(parts[i])) {
			t.Errorf("%s\nprints\n%s\nwhich is not what the document says:\n%s", s.code, parts[i], s.prints)
		}
	}
}

// TestScripts: the snippets of docs/guide/scripts.md must work. Those of each language are one program.
func TestScripts(t *testing.T) {
	const user = "nightly"
	ns := e2e.NewNamespace(t, e2e.Members...)
	for _, m := range e2e.Members {
		e2e.Grant(t, m, user)
		docs := shopYAML
		if m == "member1" {
			docs += "---" + shopOfOneYAML
		}
		e2e.Direct(m).Must(t, "apply", "-n", ns, "-f", e2e.WriteFile(t, docs))
	}
	e2e.Direct("member1").Must(t, "wait", "-n", ns, "--for=condition=Ready", "pod/web", "--timeout=4m")
	e2e.CreateRegistry(t, "shop", "{}", "{apiVersion: v1, kind: ConfigMap, namespace: "+ns+"}")
	k := e2e.Kubectl{Kubeconfig: e2e.CertificateKubeconfig(t, user), Context: "member1"}
	waitForAccess(t, k, ns)
	patchRepeatedly(t, ns)

	dir := t.TempDir()
	pass, err := clientcmd.BuildConfigFromFlags("", e2e.Shared(t).Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	owner, err := os.ReadFile(e2e.Shared(t).Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string, content []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	put("ca.pem", pass.CAData)
	put("clusterpass.kubeconfig", owner)
	t.Cleanup(func() { _, _ = e2e.CLI(t, "", "pass", "revoke", user) })
	run := func(t *testing.T, name string, args ...string) string {
		t.Helper()
		return runScript(t, dir, name, args...)
	}
	all := snippets(t, "../../../docs/guide/scripts.md")
	replacer := strings.NewReplacer("gateway.example.com", e2e.HostOf(t, e2e.Shared(t).Kubeconfig),
		"namespaces/shop", "namespaces/"+ns, `("shop")`, `("`+ns+`")`)
	program := func(language, end string) string {
		var b strings.Builder
		for _, s := range all[language] {
			b.WriteString(replacer.Replace(s.code) + end)
		}
		if b.Len() == 0 {
			t.Fatalf("docs/guide/scripts.md has no snippet in %s", language)
		}
		return b.String()
	}
	// The shell snippets create the token that the other languages use.
	checkOutput(t, all["sh"], run(t, "bash", "-eu", put("sh", []byte(program("sh", "printf '\n%s\n' '"+ending+"'\n")))))
	token, err := os.ReadFile(filepath.Join(dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	e2e.Secrets.Secret("the script's pass", strings.TrimSpace(string(token)))
	t.Run("Python", func(t *testing.T) {
		python, err := mototest.Python("websockets")
		if err != nil {
			t.Fatal(err)
		}
		checkOutput(t, all["python"], run(t, python, "-c", program("python", fmt.Sprintf("\nprint(%q)\n", "\n"+ending))))
	})
	t.Run("Go", func(t *testing.T) {
		source, bin := put("main.go", []byte(program("go", ""))), filepath.Join(dir, "script")
		build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", bin, source)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build: %v\n%s", err, out)
		}
		checkOutput(t, all["go"], run(t, bin)+"\n"+ending+"\n")
	})
}

func waitForAccess(t *testing.T, k e2e.Kubectl, ns string) {
	t.Helper()
	for _, prefix := range []string{"", "/bridge"} {
		for _, m := range e2e.Members {
			waittest.Until(t, "user may call "+m+" at "+prefix+"/clusters", func() bool {
				return k.Run(t, "get", "--raw", prefix+"/clusters/"+m+"/version").Code == 0
			})
		}
	}
	waittest.Until(t, "user may list the fleet", func() bool {
		return e2e.AtFleet(t, k).Run(t, "get", "configmaps", "-n", ns).Code == 0
	})
}

func runScript(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(e2e.Program(t, "scripts/clusterpass", "clusterpass"))+":"+
		os.Getenv("PATH"), "CLUSTERPASS_STORE=dir:"+filepath.Join(e2e.Shared(t).Dir, "data"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	errOut := &waittest.Buffer{}
	cmd.Stderr = errOut
	out, err := cmd.Output()
	_, _ = e2e.Printed.Write([]byte(string(out) + errOut.String()))
	if err != nil {
		t.Fatalf("%s: %v; README.md says what the tests need\n%s\n%s", name, err, out, errOut)
	}
	return string(out)
}

// patchRepeatedly changes a ConfigMap until the test ends. A program that has read enough of a watch ends at the next
// event.
func patchRepeatedly(t *testing.T, ns string) {
	t.Helper()
	client := e2e.DirectClient(t, "member1").CoreV1().ConfigMaps(ns)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ctx.Err() == nil; n++ {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"n":"%d"}}}`, n)
			_, _ = client.Patch(ctx, "color", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			select {
			case <-time.After(200 * time.Millisecond): // slow enough for the reader of a watch
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}
