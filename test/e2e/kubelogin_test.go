package e2e

import (
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestKubelogin holds: clusterpass login asks the gateway for its provider, and from then on kubectl has kubelogin sign people in there, by
// their browser, once.
func TestKubelogin(t *testing.T) {
	p := newPage(t)
	_, _ = cli(t, "", "--help") // builds it
	bin, home := t.TempDir(), t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", filepath.Join(bin, "kubectl-oidc_login"), "github.com/int128/kubelogin")
	build.Dir = "../kubelogin"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	if err := os.Symlink(clusters.BuiltKubectl(), filepath.Join(bin, "kubectl")); err != nil {
		t.Fatal(err)
	}
	trusted := write(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.issuer.Certificate().Raw})))
	browser := fmt.Sprintf("#!/bin/sh\nexec curl --silent --show-error --fail --location --noproxy '*' --cacert %q --output /dev/null \"$1\"\n", trusted)
	if err := os.WriteFile(filepath.Join(bin, "xdg-open"), []byte(browser), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("HOME", home)
	t.Setenv("SSL_CERT_FILE", trusted)

	file := filepath.Join(home, "kubeconfig")
	// A port that is free, since others may have kubelogin's own two.
	settles(t, true, []string{"kubectl --kubeconfig " + file + " --context member1 get nodes"}, "login", "https://"+p.addr, "--ca", p.ca, "--kubeconfig", file, "--oidc-arg=--listen-address=127.0.0.1:0")
	k := kubectl{kubeconfig: file, context: "member1", env: []string{"KUBECACHEDIR=" + filepath.Join(home, ".kube", "cache")}} // where kubelogin has the token
	says(t, k.finally(t, "-n", "streams", "get", "pods"), "shell")
	if got := k.finally(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"); got != "page" {
		t.Errorf("the member sees %s", got)
	}
	if got := k.finally(t, "-n", "streams", "exec", "shell", "--", "echo", "in"); got != "in\n" {
		t.Errorf("%q", got)
	}
	if n := p.issuer.asked.Load(); n != 1 {
		t.Errorf("the browser was opened %d times", n)
	}
}
