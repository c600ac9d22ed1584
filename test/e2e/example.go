package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const webYAML = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: any
    command: [sh, -c, 'i=0; while sleep 0.2; do echo "web says $i"; i=$((i+1)); done']
`

// StartExample starts the first example of docs/guide/streams.md in a language. The interpreter gets the program as its
// last argument, and its credential in TOKEN.
func StartExample(t *testing.T, language, interpreter string, args ...string) *Session {
	t.Helper()
	if _, err := exec.LookPath(interpreter); err != nil {
		t.Fatalf("find the interpreter of %s: %v; install it, or put it on PATH", language, err)
	}
	doc, err := os.ReadFile(filepath.Join(repository(t), "docs", "guide", "streams.md"))
	if err != nil {
		t.Fatal(err)
	}
	example := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(doc)
	if example == nil {
		t.Fatalf("docs/guide/streams.md has no example in %s", language)
	}
	p := NewBrowserPage(t)
	d, namespace := Direct("member1"), NewNamespace(t, "member1")
	d.Apply(t, webYAML, "-n", namespace)
	d.Must(t, "wait", "-n", namespace, "--for=condition=Ready", "pod/web", "--timeout=4m")
	printed := strings.NewReplacer(
		"gateway.example.com", p.Addr, "ca.pem", p.CAFile, "namespaces/default", "namespaces/"+namespace,
	)
	program := printed.Replace(string(example[1]))
	return StartCommand(t, interpreter, func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, interpreter, append(args, program)...)
		cmd.Env = append(os.Environ(), "TOKEN="+p.Token, "NODE_EXTRA_CA_CERTS="+p.CAFile)
		return cmd
	})
}
