package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/pki"
)

type clusterpass struct{ store string }

func (c clusterpass) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := root()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(append([]string{"--store", c.store}, args...))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

const labKubeconfig = `
apiVersion: v1
kind: Config
current-context: lab
contexts:
- {name: lab, context: {cluster: c, user: u}}
- {name: plugin, context: {cluster: c, user: p}}
- {name: dead, context: {cluster: dead, user: u}}
clusters:
- {name: c, cluster: {server: "https://127.0.0.1:1", certificate-authority: ca.pem}}
- {name: dead, cluster: {server: "https://127.0.0.1:1", certificate-authority: ca.pem}}
users:
- {name: u, user: {token: sesame-open}}
- {name: p, user: {exec: {command: gcloud, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}}}
`

func testCA(t *testing.T) string {
	t.Helper()
	ca, err := pki.LoadCA(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	return string(ca.PEM())
}

func setup(t *testing.T) (clusterpass, string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"config": labKubeconfig, "ca.pem": testCA(t)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return clusterpass{"dir:" + filepath.Join(dir, "store")}, filepath.Join(dir, "config")
}

func addLab(t *testing.T, c clusterpass, kubeconfig string) string {
	t.Helper()
	out, err := c.run(t, "cluster", "add", "lab", "--kubeconfig", kubeconfig, "--skip-check", "--identity", "impersonate",
		"--label", "region=eu")
	if err != nil || !strings.Contains(out, `cluster "lab" is registered`) {
		t.Fatalf("%s%v", out, err)
	}
	out, err = c.run(t, "cluster", "list", "-o", "json")
	var list struct {
		Items []struct{ Metadata struct{ Name, UID string } }
	}
	if err != nil || json.Unmarshal([]byte(out), &list) != nil || len(list.Items) != 1 ||
		list.Items[0].Metadata.Name != "lab" {
		t.Fatalf("list -o json: %s%v", out, err)
	}
	return list.Items[0].Metadata.UID
}

// TestClusterAdd fails if a registered cluster is not shown, or its credential is.
func TestClusterAdd(t *testing.T) {
	c, kc := setup(t)
	addLab(t, c, kc)
	out, err := c.run(t, "cluster", "list")
	if err != nil || !strings.Contains(out, "lab") || !strings.Contains(out, "region=eu") {
		t.Errorf("list: %s%v", out, err)
	}
	shown, err := c.run(t, "cluster", "show", "lab")
	if err != nil || !strings.Contains(shown, "apiEndpoint: https://127.0.0.1:1") || strings.Contains(shown, "sesame") {
		t.Errorf("show: %s%v", shown, err)
	}
}

// TestClusterReplaceAndRemove fails if a cluster is replaced by mistake, or loses its labels or UID by a replacement.
func TestClusterReplaceAndRemove(t *testing.T) {
	c, kc := setup(t)
	uid := addLab(t, c, kc)
	_, err := c.run(t, "cluster", "add", "lab", "--kubeconfig", kc, "--skip-check", "--identity", "impersonate")
	if err == nil || !strings.Contains(err.Error(), "--replace") {
		t.Errorf("added twice: %v", err)
	}
	if _, err := c.run(t, "cluster", "add", "lab", "--kubeconfig", kc, "--skip-check", "--identity", "direct",
		"--direct-user", "alice", "--replace"); err != nil {
		t.Errorf("replace: %v", err)
	}
	shown, err := c.run(t, "cluster", "show", "lab")
	if err != nil || !strings.Contains(shown, "region: eu") || !strings.Contains(shown, uid) ||
		!strings.Contains(shown, "- alice") {
		t.Errorf("replaced: %s%v", shown, err)
	}
	if out, err := c.run(t, "cluster", "remove", "lab"); err != nil {
		t.Errorf("remove: %s%v", out, err)
	}
	if out, err := c.run(t, "cluster", "show", "lab"); err == nil {
		t.Errorf("a removed cluster is still shown: %s", out)
	}
}

func TestRefusals(t *testing.T) {
	c, kc := setup(t)
	add := func(args ...string) []string {
		return append([]string{"cluster", "add", "lab", "--kubeconfig", kc}, args...)
	}
	tests := []struct {
		args []string
		want string
	}{
		{add(), "connection refused"},
		{add("--context", "nosuch"), "there are: dead, lab, plugin"},
		{add("--context", "plugin"), `"gcloud"`},
		{add("--skip-check"), "--identity"},
		{add("--skip-check", "--identity", "direct"), "--direct-user"},
		{add("--skip-check", "--identity", "root"), `"root"`},
		{[]string{"cluster", "add", "bridge", "--kubeconfig", kc}, "choose another"},
		{[]string{"cluster", "add", "x", "--kubeconfig", kc + ".nosuch"}, "no such file"},
		{[]string{"cluster", "remove", "lab"}, `no cluster "lab"`},
		{[]string{"cluster", "add"}, "clusterpass cluster add: NAME is missing; run: clusterpass cluster add NAME"},
		{[]string{"pass", "create", "a", "b"}, "want one NAME instead of 2"},
		{[]string{"cert", "ca"}, "FILE is missing"},
		{[]string{"cluster", "frobnicate"}, `unknown command "frobnicate"`},
		{[]string{"pass", "lst"}, `unknown command "lst"`},
		{[]string{"cert", "nosuch"}, `unknown command "nosuch"`},
		{[]string{"--store", "ftp:x", "cluster", "list"}, `no kind "ftp"`},
		{[]string{"--store", "x", "cluster", "list"}, "colon"},
	}
	for _, tt := range tests {
		out, err := c.run(t, tt.args...)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error()+out, "sesame") {
			t.Errorf("%v: %s%v, want %q", tt.args, out, err, tt.want)
		}
	}
	if out, err := c.run(t, "pass"); err != nil || !strings.Contains(out, "rotate-key") {
		t.Errorf("%s%v", out, err)
	}
	if out, err := c.run(t, "cluster", "list", "-o", "json"); err != nil || strings.Contains(out, "lab") {
		t.Errorf("something was stored: %s%v", out, err)
	}
}

// TestHelp: users, who cannot reach the stores, must not have to read about their flags. Administrators need them.
func TestHelp(t *testing.T) {
	for _, tt := range []struct {
		command []string
		isAdmin bool
	}{
		{[]string{"login"}, false}, {[]string{"doctor"}, false}, {[]string{"kubeconfig"}, false},
		{[]string{"cluster", "add"}, true}, {[]string{"pass", "create"}, true}, {nil, true},
	} {
		t.Run(strings.Join(tt.command, " "), func(t *testing.T) {
			c, _ := setup(t)
			out, err := c.run(t, append(tt.command, "--help")...)
			if err != nil || !strings.Contains(out, "Usage:") {
				t.Errorf("%s%v", out, err)
			}
			for _, flag := range []string{"--store", "--pass-kms-key", "--allow-loopback", ",key="} {
				if strings.Contains(out, flag) != tt.isAdmin {
					t.Errorf("has %s: %v, want %v\n%s", flag, !tt.isAdmin, tt.isAdmin, out)
				}
			}
		})
	}
}
