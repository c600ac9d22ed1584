// Package console tests the console of the gateway in Chromium, on real clusters. make test-browser builds the console,
// which this program embeds, and installs playwright-core and axe-core.
//
// Each test runs a script of this folder, which acts on the page and checks what it shows. Script and test meet at
// steps: the script prints the name of a step, and continues when the test does.
package console

import (
	"context"
	"crypto/tls"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/test/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }

// script is a script of this folder that runs in Node.
type script struct {
	t *testing.T
	*e2e.Session
}

// start runs a script with the client certificate of a kubeconfig, and further variables such as NAMESPACE=web.
func start(t *testing.T, name, kubeconfig string, env ...string) *script {
	t.Helper()
	return startLong(t, e2e.SessionLimit, name, kubeconfig, env...)
}

// startLong is start with another limit of the script's time.
func startLong(t *testing.T, limit time.Duration, name, kubeconfig string, env ...string) *script {
	t.Helper()
	dir := t.TempDir()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	env = append(env, "GATEWAY=https://"+e2e.HostOf(t, kubeconfig))
	if len(cfg.CertData) > 0 {
		pair, err := tls.X509KeyPair(cfg.CertData, cfg.KeyData)
		if err != nil {
			t.Fatal(err)
		}
		cert, key, err := pki.PEM(&pair) // Node's TLS and playwright need PKCS #8
		if err != nil {
			t.Fatal(err)
		}
		for variable, data := range map[string][]byte{"CERTIFICATE": cert, "KEY": key} {
			path := filepath.Join(dir, variable)
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			env = append(env, variable+"="+path)
		}
	}
	s := &script{t: t, Session: e2e.StartLongCommand(t, limit, name, func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "node", name)
		cmd.Env = append(os.Environ(), env...)
		return cmd
	})}
	return s
}

// startAsOwner is start with the certificate of the owner of the shared gateway.
func startAsOwner(t *testing.T, name string, env ...string) *script {
	t.Helper()
	return start(t, name, e2e.Shared(t).Kubeconfig, env...)
}

// step waits until the script prints the step. The script then waits for next.
func (s *script) step(name string) {
	s.t.Helper()
	s.WaitForLine("step "+name, func(line string) bool { return line == "step "+name })
}

// next lets the script continue. An answer of one line is the result of its step.
func (s *script) next(answer string) {
	s.t.Helper()
	if _, err := s.Stdin.Write([]byte(answer + "\n")); err != nil {
		s.t.Fatalf("%s has ended: %v\n%s", s.Name, err, s.Stderr)
	}
}

// end waits until the script has ended, and fails the test if the script has failed.
func (s *script) end() {
	s.t.Helper()
	var lines []string
	for line := range s.Lines {
		lines = append(lines, line)
	}
	if code := s.ExitCode(); code != 0 {
		s.t.Fatalf("%s failed with exit code %d\n%s\n%s", s.Name, code, strings.Join(lines, "\n"), s.Stderr)
	}
}
