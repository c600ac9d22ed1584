package access_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// pluginMarker is part of everything in a plugin's definition that must not be stored or printed.
const pluginMarker = "plugin-sesame"

var pluginFuture, pluginPast = time.Now().Add(24 * time.Hour), time.Now().Add(-time.Hour)

// credentialPlugin is a plugin that prints the file answer of its folder, and a line into runs.
type credentialPlugin struct {
	t            *testing.T
	dir, version string
}

func newCredentialPlugin(t *testing.T, version, script string) *credentialPlugin {
	t.Helper()
	p := &credentialPlugin{t, t.TempDir(), "client.authentication.k8s.io/" + version}
	program := "#!/bin/sh\ncd '" + p.dir + "' || exit 9\necho run >> runs\n" + script + "\n"
	if err := os.WriteFile(p.path(), []byte(program), 0o700); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *credentialPlugin) path() string { return filepath.Join(p.dir, "credential-plugin") }

// answer sets the status of the ExecCredential, and registers its secrets.
func (p *credentialPlugin) answer(status map[string]any, expires time.Time) {
	p.t.Helper()
	status["expirationTimestamp"] = expires.UTC().Format(time.RFC3339)
	data, err := json.Marshal(map[string]any{"apiVersion": p.version, "kind": "ExecCredential", "status": status})
	if err == nil {
		err = os.WriteFile(filepath.Join(p.dir, "answer"), data, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	if token, ok := status["token"].(string); ok {
		e2e.Secrets.Secret("a token of a plugin", token)
	}
}

func (p *credentialPlugin) answerCertificate(user string, expires time.Time) {
	p.t.Helper()
	pair, err := e2e.Clusters.Cluster("member1").IssueUser(user, "system:masters")
	if err != nil {
		p.t.Fatal(err)
	}
	e2e.Secrets.Document("a certificate of a plugin", pair.Key)
	p.answer(map[string]any{"clientCertificateData": string(pair.Cert), "clientKeyData": string(pair.Key)}, expires)
}

func (p *credentialPlugin) runs() int {
	data, _ := os.ReadFile(filepath.Join(p.dir, "runs"))
	return strings.Count(string(data), "run\n")
}

// pluginKubeconfig returns the path of a kubeconfig for member1, with a context for each plugin and one without any.
func pluginKubeconfig(t *testing.T, plugins map[string]*credentialPlugin) string {
	t.Helper()
	kc, err := clientcmd.Load(e2e.Clusters.Cluster("member1").Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	member := kc.Contexts["member1"]
	for name, p := range plugins {
		kc.AuthInfos[name] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			APIVersion: p.version, Command: p.path(), Args: []string{"--password", pluginMarker + "-arg"},
			Env:             []clientcmdapi.ExecEnvVar{{Name: "PASSWORD", Value: pluginMarker + "-env"}},
			InteractiveMode: clientcmdapi.IfAvailableExecInteractiveMode,
		}}
		kc.Contexts[name] = &clientcmdapi.Context{Cluster: member.Cluster, AuthInfo: name}
	}
	kc.CurrentContext = "member1"
	for _, field := range []string{"-arg", "-env"} {
		e2e.Secrets.Secret("the definition of a plugin", pluginMarker+field)
	}
	path := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*kc, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCredentialPlugins: users of GKE, AKS and OpenID Connect reach their clusters through make up, as by kubectl.
func TestCredentialPlugins(t *testing.T) {
	d, ns := e2e.Direct("member1"), e2e.StreamPods(t, []string{"member1"}, "shell")
	serviceAccountToken := func(name string) map[string]any {
		t.Helper()
		d.Must(t, "create", "serviceaccount", name, "-n", ns)
		return map[string]any{"token": strings.TrimSpace(d.Must(t, "create", "token", name, "-n", ns))}
	}
	ofToken, ofCertificate := newCredentialPlugin(t, "v1", "cat answer"), newCredentialPlugin(t, "v1beta1", "cat answer")
	failing := newCredentialPlugin(t, "v1", "echo '"+`{"token":"`+pluginMarker+"-arg"+`"}'; exit 7`)
	revoked := serviceAccountToken("first")
	ofToken.answer(revoked, pluginFuture)
	ofCertificate.answerCertificate("ann", pluginPast)
	config := pluginKubeconfig(t, map[string]*credentialPlugin{
		"by-token": ofToken, "by-certificate": ofCertificate, "failing": failing,
	})

	dir := t.TempDir()
	start := func(register string) (stop func()) {
		t.Helper()
		h := e2e.StartGateway(t, dir, server.Inline, func(cfg *server.Config) { cfg.Register = register })
		for _, want := range []string{
			fmt.Sprintf("  by-token: runs the credential plugin %q\n", ofToken.path()),
			"  by-token: registered, Kubernetes v", "; all requests use the credential of its plugin, and only ",
			"  by-certificate: registered, ", "  member1: registered, ",
			fmt.Sprintf("  failing: not registered: its credential plugin %q failed: it exited with code 7", failing.path()),
		} {
			if register != "" {
				e2e.WantText(t, h.Log.String(), want)
			}
		}
		return func() { h.Stop(); <-h.Stopped }
	}
	stop := start(config)
	defer func() { stop() }()
	if got := ofCertificate.runs(); got > 2 { // client-go runs it for the certificate and for the token
		t.Errorf("the start runs a plugin with an expired credential %d times, want at most twice", got)
	}
	as := func(context string) e2e.Kubectl {
		return e2e.Kubectl{Kubeconfig: filepath.Join(dir, "pass"), Context: context}
	}
	wantUser := func(context, want string) {
		t.Helper()
		const user = "jsonpath={.status.userInfo.username}"
		if got := as(context).Must(t, "auth", "whoami", "-o", user); got != want {
			t.Errorf("context %s: the cluster sees %s, want %s", context, got, want)
		}
	}

	wantUser("by-token", "system:serviceaccount:"+ns+":first")
	wantUser("by-certificate", "ann")
	if got := as("by-certificate").Must(t, "exec", "-n", ns, "shell", "--", "echo", "in"); got != "in\n" {
		t.Errorf("exec prints %q", got)
	}
	ofCertificate.answerCertificate("bob", pluginFuture) // ann's has expired
	wantUser("by-certificate", "bob")
	ofCertificate.answerCertificate("carol", pluginFuture)
	wantUser("by-certificate", "bob")

	d.Must(t, "delete", "serviceaccount", "first", "-n", ns)
	direct := e2e.Kubectl{Context: "c", Kubeconfig: e2e.WriteFile(t, fmt.Sprintf(
		"{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}], "+
			"contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: %s}}]}",
		e2e.Clusters.Cluster("member1").Server(), revoked["token"]))}
	direct.WaitForRefusal(t, "Unauthorized", "auth", "whoami")
	waittest.Until(t, "the last run is so old that the plugin may run again", func() bool {
		info, err := os.Stat(filepath.Join(ofToken.dir, "runs"))
		return err == nil && time.Since(info.ModTime()) > 6*time.Second
	})
	runs := ofToken.runs()
	ofToken.answer(serviceAccountToken("second"), pluginFuture)
	wantUser("by-token", "system:serviceaccount:"+ns+":second") // the first request after the 401 succeeds
	if got := ofToken.runs(); got != runs+1 {
		t.Errorf("the plugin ran %d times after the 401, want once", got-runs)
	}
	wantNoMarker(t, dir)

	stop()
	stop = start("")
	e2e.WantText(t, as("by-token").Run(t, "auth", "whoami").Stderr,
		"registered it with a credential plugin, start the gateway with that KUBECONFIG again")
}

// wantNoMarker searches the data, the audit log and the kubeconfig of a gateway.
func wantNoMarker(t *testing.T, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if files++; strings.Contains(string(data), pluginMarker) || strings.Contains(string(data), "credential-plugin") {
			t.Errorf("%s contains the definition of a plugin", path)
		}
		return err
	})
	if err != nil || files < 10 {
		t.Errorf("%d files, %v", files, err)
	}
}

// TestFailingCredentialPlugin: probes must not start a plugin that fails, and a user's request must.
func TestFailingCredentialPlugin(t *testing.T) {
	p := newCredentialPlugin(t, "v1", "cat answer")
	p.answerCertificate("dan", pluginPast)
	dir := t.TempDir()
	h := e2e.StartGateway(t, dir, server.Inline, func(cfg *server.Config) {
		cfg.Register = pluginKubeconfig(t, map[string]*credentialPlugin{"fragile": p})
		cfg.ProbeInterval = 100 * time.Millisecond
	})
	defer func() { h.Stop(); <-h.Stopped }()
	k := e2e.Kubectl{Kubeconfig: h.Kubeconfig, Context: "fragile"}
	own := e2e.Kubectl{Kubeconfig: h.Kubeconfig, Context: "clusterpass"}
	if err := os.Rename(filepath.Join(p.dir, "answer"), filepath.Join(p.dir, "away")); err != nil {
		t.Fatal(err)
	}
	r := k.Run(t, "auth", "whoami")
	if want := `cluster "fragile" cannot be used: its credential plugin failed: it exited with code 1`; r.Code == 0 ||
		!strings.Contains(r.Stderr, want) {
		t.Errorf("%v, want %s", r, want)
	}
	runs := p.runs()
	const ready = `jsonpath={.status.conditions[?(@.type=="Ready")].status}`
	waitForReady := func(want string) {
		t.Helper()
		waittest.Until(t, "condition Ready is "+want, func() bool {
			return own.Must(t, "get", "cluster", "fragile", "-o", ready) == want
		})
	}
	waitForReady("False")
	if got := p.runs(); got != runs {
		t.Errorf("probes ran the plugin %d times", got-runs)
	}
	wantNoMarker(t, dir)
	if err := os.Rename(filepath.Join(p.dir, "away"), filepath.Join(p.dir, "answer")); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "a user's request runs the plugin again", func() bool {
		return k.Run(t, "auth", "whoami").Code == 0
	})
	waitForReady("True")
}

// TestHangingCredentialPlugin: a plugin that hangs must not keep the gateway from starting to end, and ends with it.
func TestHangingCredentialPlugin(t *testing.T) {
	p := newCredentialPlugin(t, "v1", "echo $$ > self; sleep 100000 & echo $! > child; wait")
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "ended": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			for _, process := range []string{"self", "child"} {
				_ = os.Remove(filepath.Join(p.dir, process))
			}
			dir := t.TempDir()
			cmd := exec.CommandContext(t.Context(), e2e.Program(t, "infra/local", "clusterpass-local"),
				"--listen", "127.0.0.1:0", "--tunnel-listen=127.0.0.1:0", "--data", dir, "--kubeconfig", filepath.Join(dir, "k"))
			cmd.Env = append(os.Environ(), "KUBECONFIG="+pluginKubeconfig(t, map[string]*credentialPlugin{"hangs": p}))
			cmd.Stdout, cmd.Stderr = e2e.Printed, e2e.Printed
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			pids := map[string]string{}
			for _, process := range []string{"self", "child"} {
				waittest.Until(t, "process "+process+" runs", func() bool {
					data, _ := os.ReadFile(filepath.Join(p.dir, process))
					pids[process] = strings.TrimSpace(string(data))
					return pids[process] != ""
				})
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it was interrupted
			for process, pid := range pids {
				waittest.Until(t, "process "+process+" ends", func() bool {
					state, err := os.ReadFile("/proc/" + pid + "/stat")
					return err != nil || strings.Contains(string(state), ") Z ")
				})
			}
		})
	}
}
