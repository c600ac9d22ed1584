package access_test

import (
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestKubelogin: kubectl must sign its user in with kubelogin and a browser, once for several commands.
func TestKubelogin(t *testing.T) {
	p, ns := e2e.NewBrowserPage(t), e2e.StreamPods(t, []string{"member1"}, "shell")
	_, _ = e2e.CLI(t, "", "--help") // builds the program, before HOME changes
	bin, home := t.TempDir(), t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", filepath.Join(bin, "kubectl-oidc_login"),
		"github.com/int128/kubelogin")
	build.Dir = "../../kubelogin"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	if err := os.Symlink(e2e.Clusters.BuiltKubectl(), filepath.Join(bin, "kubectl")); err != nil {
		t.Fatal(err)
	}
	trusted := e2e.WriteFile(t,
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Issuer.Certificate().Raw})))
	browser := fmt.Sprintf("#!/bin/sh\nexec curl --silent --show-error --fail --location --noproxy '*' --cacert %q "+
		"--output /dev/null \"$1\"\n", trusted)
	if err := os.WriteFile(filepath.Join(bin, "xdg-open"), []byte(browser), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("HOME", home)
	t.Setenv("SSL_CERT_FILE", trusted)

	file := filepath.Join(home, "kubeconfig")
	// Port 0, because another process may use kubelogin's default ports.
	e2e.WaitForCLI(t, true, []string{"kubectl --kubeconfig " + file + " --context member1 get nodes"}, "login", "https://"+
		p.Addr, "--ca", p.CAFile, "--kubeconfig", file, "--oidc-arg=--listen-address=127.0.0.1:0")
	k := e2e.Kubectl{Kubeconfig: file, Context: "member1",
		Env: []string{"KUBECACHEDIR=" + filepath.Join(home, ".kube", "cache")}}
	e2e.WantText(t, k.MustEventually(t, "-n", ns, "get", "pods"), "shell")
	if got := k.MustEventually(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"); got != "page" {
		t.Errorf("the member sees %s", got)
	}
	if got := k.MustEventually(t, "-n", ns, "exec", "shell", "--", "echo", "in"); got != "in\n" {
		t.Errorf("%q", got)
	}
	if n := p.Issuer.SignIns.Load(); n != 1 {
		t.Errorf("the browser was opened %d times", n)
	}
}
