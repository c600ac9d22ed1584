package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	objectsdir "github.com/clusterpass/clusterpass/shared/objects/dir"
	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/pki"
)

func gatewayFile(t *testing.T, c clusterpass) string {
	t.Helper()
	dir := t.TempDir()
	if _, err := pki.LoadCA(dir, "client-ca"); err != nil {
		t.Fatal(err)
	}
	if out, err := c.run(t, "init", "--client-ca", filepath.Join(dir, "client-ca.pem")); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	data, err := kubeconfig.Write(kubeconfig.Gateway{URL: "https://gateway.example.com", CA: []byte(testCA(t))},
		clientcmdv1.AuthInfo{Token: "x"},
		[]kubeconfig.Context{{Cluster: "lab"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "clusterpass.kubeconfig")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func createPasses(t *testing.T, c clusterpass) (token, certificate string) {
	t.Helper()
	gw := gatewayFile(t, c)
	token, err := c.run(t, "pass", "create", "ci", "--user", "ann", "--group", "dev", "--cluster", "m1,m2",
		"--verb", "get", "--gateway", gw)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err = c.run(t, "pass", "create", "laptop", "--user", "ann", "--form", "certificate", "--gateway", gw)
	if err != nil {
		t.Fatal(err)
	}
	return token, certificate
}

// TestPassLifecycle fails if a pass has no usable kubeconfig, cannot be revoked, or shows its credential in a list.
func TestPassLifecycle(t *testing.T) {
	c, _ := setup(t)
	token, certificate := createPasses(t, c)
	kc, err := clientcmd.Load([]byte(token))
	if err != nil || kc.CurrentContext != "m1" || kc.Clusters["m2"].Server != "https://gateway.example.com/clusters/m2" ||
		len(kc.Clusters["m2"].CertificateAuthorityData) == 0 || strings.Count(kc.AuthInfos["clusterpass"].Token, ".") != 2 {
		t.Errorf("%+v, %v", kc, err)
	}
	if kc, err := clientcmd.Load([]byte(certificate)); err != nil || len(kc.AuthInfos["clusterpass"].ClientKeyData) == 0 ||
		kc.AuthInfos["clusterpass"].Token != "" {
		t.Errorf("%v", err)
	}
	list, err := c.run(t, "pass", "list")
	if err != nil || !strings.Contains(list, "ci") || !strings.Contains(list, "m1,m2") ||
		strings.Contains(list, kc.AuthInfos["clusterpass"].Token) {
		t.Errorf("%s%v", list, err)
	}
	// as kubectl get passes -o wide
	if want := "NAME USER GROUPS CLUSTERS FORM EXPIRES VERBS ci ann dev m1,m2 token"; !strings.HasPrefix(
		strings.Join(strings.Fields(list), " "), want) {
		t.Errorf("%s, want %s", list, want)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"pass", "revoke", "ci"}, "refuse it within 3s, or within 30s if they cannot read the store"},
		{[]string{"pass", "rotate-key"}, "there are new keys"},
		{[]string{"pass", "rotate-key", "--discard"}, "within 30s"},
	} {
		if out, err := c.run(t, tt.args...); err != nil || !strings.Contains(out, tt.want) {
			t.Errorf("%v: %s%v, want %q", tt.args, out, err, tt.want)
		}
	}
	list, err = c.run(t, "pass", "list")
	if err != nil || strings.Contains(list, "ci ") || !strings.Contains(list, "laptop") {
		t.Errorf("%s%v", list, err)
	}
}

// An administrator must see the other passes, and how to delete the damaged one.
func TestDamagedPassIsListedAsWarning(t *testing.T) {
	c, _ := setup(t)
	createPasses(t, c)
	store, err := objectsdir.Open(filepath.Join(strings.TrimPrefix(c.store, "dir:"), "objects"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	for _, key := range []string{v1alpha1.PassPrefix + "damaged", v1alpha1.RevocationPrefix + "abc"} {
		if _, err := store.Create(t.Context(), key, []byte("[]")); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"pass", "list"}, "clusterpass pass revoke damaged\n"},
		{[]string{"pass", "list"}, "\nlaptop "},
		{[]string{"__complete", "pass", "revoke", ""}, "damaged\nci\nlaptop\n"},
		{[]string{"cert", "list"}, "certificate abc is revoked"},
		{[]string{"pass", "revoke", "damaged"}, `pass "damaged" is revoked`},
	} {
		if out, err := c.run(t, tt.args...); err != nil || !strings.Contains(out, tt.want) {
			t.Errorf("%v: %s%v, want %q", tt.args, out, err, tt.want)
		}
	}
}

// TestCertificateRevocation fails if a lost certificate cannot be revoked by its kubeconfig or its serial number.
func TestCertificateRevocation(t *testing.T) {
	c, _ := setup(t)
	_, certificate := createPasses(t, c)
	file := filepath.Join(t.TempDir(), "lost")
	if err := os.WriteFile(file, []byte(certificate), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--file", file, "--reason", "lost"}, {"AB:CD"}} {
		out, err := c.run(t, append([]string{"cert", "revoke"}, args...)...)
		if err != nil || !strings.Contains(out, "is revoked") {
			t.Errorf("%v: %s%v", args, out, err)
		}
	}
	list, err := c.run(t, "cert", "list")
	if err != nil || !strings.Contains(list, "abcd") || !strings.Contains(list, "ann") || !strings.Contains(list, "lost") {
		t.Errorf("%s%v", list, err)
	}
}

func TestPassRefusals(t *testing.T) {
	c, kc := setup(t)
	gw := gatewayFile(t, c)
	if _, err := c.run(t, "pass", "create", "taken", "--user", "ann", "--gateway", gw); err != nil {
		t.Fatal(err)
	}
	create := func(args ...string) []string {
		return append([]string{"pass", "create", "ci", "--user", "ann", "--gateway", gw}, args...)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"pass", "create", "ci", "--gateway", gw}, `"user" not set`},
		{create("--gateway", gw+".nosuch"), "--gateway"},
		{create("--gateway", kc), `has no cluster "clusterpass"`},
		{create("--ttl", "1s"), "spec.ttl 1s"},
		{create("--verb", "exec"), `spec.verbs "exec"`},
		{create("--cluster", "A_b"), `spec.clusters "A_b"`},
		{create("--form", "jwt"), `spec.form "jwt"`},
		{create("--output", "json"), `--output "json"`},
		{create("--output", "token", "--form", "certificate"), "--form token"},
		{create("--form", "certificate", "--ca", gw), "PEM"},
		{create("--form", "certificate", "--ca", gw+".nosuch"), "no such file"},
		{[]string{"pass", "create", "taken", "--user", "ann", "--gateway", gw}, `there is a pass "taken" already`},
		{[]string{"pass", "revoke", "nosuch"}, `there is no pass "nosuch"`},
		{[]string{"cert", "revoke"}, "--file"},
		{[]string{"cert", "revoke", "xyz"}, "hexadecimal"},
		{[]string{"cert", "revoke", "--file", gw}, "contains no certificate"},
		{[]string{"cert", "revoke", "--file", kc}, "several users"},
	} {
		if out, err := c.run(t, tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %s%v, want %q", tt.args, out, err, tt.want)
		}
	}
	if out, err := c.run(t, "pass", "list"); err != nil || strings.Contains(out, "ci ") {
		t.Errorf("something was stored: %s%v", out, err)
	}
}
