package access_test

import (
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// useKubelogin installs kubelogin as a plugin of kubectl, with an empty home directory and a browser. All programs
// trust the certificate in the file trusted.
func useKubelogin(t *testing.T, trusted string) {
	t.Helper()
	_, _ = e2e.CLI(t, "", "--help") // builds the program, before HOME changes
	bin := t.TempDir()
	kubelogin, err := filepath.Abs("../../../dist/local/kubectl-oidc_login") // go build links only an outdated program
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", kubelogin, "github.com/int128/kubelogin")
	build.Dir = "../../kubelogin"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for name, program := range map[string]string{
		"kubectl-oidc_login": kubelogin, "kubectl": e2e.Clusters.BuiltKubectl(),
	} {
		if err := os.Symlink(program, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	browser := fmt.Sprintf("#!/bin/sh\nexec curl --silent --show-error --fail --location --noproxy '*' --cacert %q "+
		"--output /dev/null \"$1\"\n", trusted)
	if err := os.WriteFile(filepath.Join(bin, "xdg-open"), []byte(browser), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("HOME", t.TempDir())
	t.Setenv("SSL_CERT_FILE", trusted)
}

func certificateFile(t *testing.T, issuer *e2e.Issuer) string {
	t.Helper()
	return e2e.WriteFile(t,
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: issuer.Certificate().Raw})))
}

// TestKubelogin: kubectl must sign its user in with kubelogin and a browser, once for several commands.
func TestKubelogin(t *testing.T) {
	p, ns := e2e.NewBrowserPage(t), e2e.StreamPods(t, []string{"member1"}, "shell")
	useKubelogin(t, certificateFile(t, p.Issuer))
	home := os.Getenv("HOME")
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

// TestKubeloginOfMember: make up must sign its user in to a cluster with kubelogin and a browser, as kubectl does.
func TestKubeloginOfMember(t *testing.T) {
	issuer := e2e.NewIssuer(t, "page")
	trusted := certificateFile(t, issuer)
	member := cluster.Start(t, cluster.Options{Clusters: []string{"sso"}, NoKubelet: true, APIServerArgs: []string{
		"--oidc-issuer-url=" + issuer.URL, "--oidc-client-id=clusterpass", "--oidc-ca-file=" + trusted,
		"--oidc-signing-algs=ES256", "--oidc-username-prefix=-",
	}}).Cluster("sso")
	e2e.Kubectl{Kubeconfig: member.KubeconfigFile(), Context: "sso"}.
		Must(t, "create", "clusterrolebinding", "page", "--clusterrole=view", "--user=page")
	kubeconfigOf := func(user *clientcmdapi.AuthInfo) (path string) {
		kc, err := clientcmd.Load(member.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		kc.AuthInfos[kc.Contexts["sso"].AuthInfo] = user
		path = filepath.Join(t.TempDir(), "config")
		if err := clientcmd.WriteToFile(*kc, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// The cluster reads the issuer's keys after its start.
	e2e.Kubectl{Kubeconfig: kubeconfigOf(&clientcmdapi.AuthInfo{Token: issuer.Token(t, "page")}), Context: "sso"}.
		MustEventually(t, "get", "namespaces")
	useKubelogin(t, trusted)
	config := kubeconfigOf(&clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: "kubectl", Args: []string{
			"oidc-login", "get-token", "--oidc-issuer-url=" + issuer.URL, "--oidc-client-id=clusterpass",
			"--listen-address=127.0.0.1:0", // another process may use the default ports
		},
		InteractiveMode: clientcmdapi.IfAvailableExecInteractiveMode,
	}})
	h := e2e.StartGateway(t, t.TempDir(), server.Inline, func(cfg *server.Config) { cfg.Register = config })
	defer func() { h.Stop(); <-h.Stopped }()
	e2e.WantText(t, h.Log.String(), `sso: runs the credential plugin "kubectl"`,
		"; all requests use the credential of its plugin, and only ")
	k := e2e.Kubectl{Kubeconfig: h.Kubeconfig, Context: "sso"}
	if got := k.Must(t, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"); got != "page" {
		t.Errorf("the member sees %s", got)
	}
	e2e.WantText(t, k.Must(t, "get", "namespaces"), "kube-system")
	k.Context = "fleet"
	e2e.WantText(t, k.Must(t, "get", "configmaps", "-A"), "sso")
	if n := issuer.SignIns.Load(); n != 1 {
		t.Errorf("the browser was opened %d times", n)
	}
}
