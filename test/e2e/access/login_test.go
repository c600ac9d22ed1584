package access_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestLogin: a user with a credential must get a working kubectl by one command.
func TestLogin(t *testing.T) {
	e2e.Grant(t, "member1", "logs-in") // for all verbs in member1
	file := filepath.Join(t.TempDir(), "config")
	pass := e2e.WriteFile(t, e2e.CreatePass(t, "logs-in", "--user", "logs-in"))
	e2e.WaitForCLI(t, true, []string{"kubectl --kubeconfig " + file + " --context member1 get nodes"}, "login", "--pass",
		pass, "--kubeconfig", file)
	e2e.WantText(t, e2e.Kubectl{Kubeconfig: file, Context: "member1"}.MustEventually(t, "get", "nodes"), "member1-node")
	contexts := func(kc string) string {
		return e2e.Kubectl{Kubeconfig: kc, Context: "member1"}.Must(t, "config", "get-contexts", "-o", "name")
	}
	if got := contexts(file); got != "clusterpass\nfleet\nfleet@\nmember1\n" { // without a grant for member2
		t.Errorf("contexts: %s", got)
	}
	// The gateway does not list the rules of a limited pass. Its kubeconfig has each cluster that the pass names.
	limited := e2e.WriteFile(t, e2e.CreatePass(t, "logs-in-limited", "--user", "logs-in", "--cluster", "member1,member2",
		"--verb", "get"))
	for _, source := range []string{file, limited} {
		waittest.Until(t, "kubeconfig has the contexts of the login", func() bool {
			created, err := e2e.SecretCLI(t, "", "kubeconfig", "--kubeconfig", source)
			return err == nil && contexts(e2e.WriteFile(t, created)) == contexts(file)
		})
	}

	kc, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	gw := kc.Clusters["clusterpass"]
	if out, err := e2e.CLI(t, "", "login", gw.Server, "--ca", e2e.WriteFile(t, string(gw.CertificateAuthorityData)),
		"--kubeconfig", file); err == nil || !strings.Contains(out, "accepts only passes and client certificates") {
		t.Errorf("%s%v", out, err)
	}

	bin := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "make", "-C", "../../..", "install", "BINDIR="+
		bin).CombinedOutput(); err != nil {
		t.Fatalf("make install: %v\n%s", err, out)
	}
	plugin := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), e2e.Clusters.BuiltKubectl(), args...)
		cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		_, _ = e2e.Printed.Write(out)
		return string(out), err
	}
	waittest.Until(t, "doctor succeeds", func() bool {
		out, err := plugin("clusterpass", "doctor", "--kubeconfig", file)
		return err == nil && strings.Contains(out, `you are "logs-in"`) && strings.Contains(out, "you may reach member1")
	})
	if out, err := plugin("clusterpass", "--help"); err != nil || !strings.Contains(out, "kubectl clusterpass [command]") {
		t.Errorf("%s%v", out, err)
	}
	if out, err := plugin("__complete", "clusterpass", "do"); err != nil || !strings.Contains(out, "doctor") {
		t.Errorf("%s%v", out, err)
	}
}

// TestLoginForgetsRemovedClusters: kubectl must not offer contexts that lead nowhere, neither to administrators nor to
// users who may not list clusters.
func TestLoginForgetsRemovedClusters(t *testing.T) {
	e2e.Register(t, "leaves", e2e.Clusters.Cluster("member2").Kubeconfig())
	if out, err := e2e.CLI(t, e2e.GrantYAML("leaves", "stays-behind"), "apply", "-f", "-"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = e2e.CLI(t, e2e.GrantYAML("leaves", "stays-behind"), "delete", "-f", "-") })
	passes := map[string]string{
		"an administrator":    e2e.Shared(t).Kubeconfig,
		"a user with a grant": e2e.WriteFile(t, e2e.CreatePass(t, "stays-behind", "--user", "stays-behind")),
		"a limited pass": e2e.WriteFile(t, e2e.CreatePass(t, "stays-behind-limited", "--user", "stays-behind",
			"--cluster", "leaves", "--verb", "get")),
	}
	files, dir := map[string]string{}, t.TempDir()
	login := func(who, pass string, want bool) {
		t.Helper()
		waittest.Until(t, fmt.Sprintf("login of %s: context leaves is %v", who, want), func() bool {
			if _, err := e2e.CLI(t, "", "login", "--pass", pass, "--kubeconfig", files[who]); err != nil {
				return false
			}
			kc, err := clientcmd.LoadFromFile(files[who])
			if err != nil {
				t.Fatal(err)
			}
			return (kc.Contexts["leaves"] != nil) == want
		})
	}
	for who, pass := range passes {
		files[who] = filepath.Join(dir, strings.ReplaceAll(who, " ", "-"))
		login(who, pass, true)
	}
	if out, err := e2e.CLI(t, "", "cluster", "remove", "leaves"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	for who := range passes {
		login(who, files[who], false) // the pass has the context, too
	}
}

// TestDoctor: the doctor must name the broken step of a request.
func TestDoctor(t *testing.T) {
	e2e.Grant(t, "member1", "patient")
	healthy := e2e.CertificateKubeconfig(t, "patient")
	e2e.WaitForCLI(t, true, []string{"ok     DNS", "ok     TCP", "ok     TLS", "ok     identity", "ok     streams",
		"ok     access", "ok     member1"},
		"doctor", "--kubeconfig", healthy)
	kc, err := clientcmd.LoadFromFile(healthy)
	if err != nil {
		t.Fatal(err)
	}
	broken := func(change func()) string {
		t.Helper()
		original := kc.DeepCopy()
		defer func() { kc = original }()
		change()
		path := filepath.Join(t.TempDir(), "config")
		if err := clientcmd.WriteToFile(*kc, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	revoked := e2e.WriteFile(t, e2e.CreatePass(t, "doctor-revoked", "--user", "patient"))
	if out, err := e2e.CLI(t, "", "pass", "revoke", "doctor-revoked"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	waittest.Until(t, "revoked login is refused", func() bool {
		return e2e.Kubectl{Kubeconfig: revoked, Context: "clusterpass"}.Run(t, "auth", "whoami").Code != 0
	})
	for _, tt := range []struct {
		name, kubeconfig string
		clusters         []string
		want             []string
	}{
		{"no kubeconfig", healthy + ".nosuch", nil, []string{"WRONG  kubeconfig", "clusterpass login"}},
		{"another's context", e2e.Clusters.KubeconfigFile(), nil, []string{"WRONG  gateway", "is no Clusterpass gateway"}},
		{"a name that nobody has", broken(func() { kc.Clusters["clusterpass"].Server = "https://gateway.invalid:443" }), nil,
			[]string{"WRONG  DNS", `"gateway.invalid"`}},
		{"a port without a server", broken(func() { kc.Clusters["clusterpass"].Server = "https://127.0.0.1:9" }), nil,
			[]string{"WRONG  TCP", "connection refused"}},
		{"another CA", broken(func() {
			user := kc.AuthInfos[kc.Contexts["clusterpass"].AuthInfo]
			kc.Clusters["clusterpass"].CertificateAuthorityData = user.ClientCertificateData
		}), nil, []string{"WRONG  TLS", "not signed by the CA that your kubeconfig has"}},
		{"no CA", broken(func() { kc.Clusters["clusterpass"].CertificateAuthorityData = nil }), nil,
			[]string{"WRONG  TLS", "does not trust", "--ca"}},
		{"another name", broken(func() { kc.Clusters["clusterpass"].TLSServerName = "gateway.invalid" }), nil,
			[]string{"WRONG  TLS", "for another name"}},
		{"a revoked pass", revoked, nil, []string{"WRONG  identity", `the pass "doctor-revoked" was revoked`}},
		{"no plugin", broken(func() {
			auth := kc.AuthInfos[kc.Contexts["clusterpass"].AuthInfo]
			auth.ClientCertificateData, auth.ClientKeyData = nil, nil
			auth.Exec = &clientcmdapi.ExecConfig{
				Command: "no-such-plugin", APIVersion: "client.authentication.k8s.io/v1",
				InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
			}
		}), nil, []string{"WRONG  identity", "no-such-plugin"}},
		{"nobody", e2e.CertificateKubeconfig(t, "a-stranger"), nil, []string{"ok     identity", "WRONG  access",
			"you may reach no cluster"}},
		{"a proxy that is not there", broken(func() { kc.Clusters["clusterpass"].ProxyURL = "http://127.0.0.1:9" }), nil,
			[]string{"ok     proxy", "WRONG  gateway", "the connection breaks off"}},
		{"no bridge", kubeconfigWithoutBridge(t), nil, []string{"ok     identity", "WRONG  streams",
			"the bridge does not answer",
			"ok     member1"}},
		{"a cluster that nobody registered", e2e.Shared(t).Kubeconfig, []string{"nosuch"},
			[]string{"WRONG  nosuch", "is the name right?"}},
		{"a cluster without a grant", healthy, []string{"member1", "member2"}, []string{"ok     member1", "WRONG  member2",
			"ask the gateway's administrator for a grant"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e2e.WaitForCLI(t, false, tt.want, append([]string{"doctor", "--kubeconfig", tt.kubeconfig}, tt.clusters...)...)
		})
	}
}

func kubeconfigWithoutBridge(t *testing.T) string {
	t.Helper()
	path := e2e.WriteFile(t, e2e.CreatePass(t, "doctor-bridgeless", "--user", "patient"))
	kc, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	gateway, err := url.Parse(kc.Clusters["clusterpass"].Server)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(kc.Clusters["clusterpass"].CertificateAuthorityData)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(gateway) }, Transport: transport}
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/bridge/") {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	for name, c := range kc.Clusters {
		c.Server = srv.URL + kubeconfig.Path(name)
		c.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	}
	if err := clientcmd.WriteToFile(*kc, path); err != nil {
		t.Fatal(err)
	}
	return path
}
