package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// CLI runs the clusterpass command on the store of the shared gateway. Its output must show no secret.
func CLI(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	out, err := SecretCLI(t, stdin, args...)
	_, _ = Printed.Write([]byte(out))
	return out, err
}

// SecretCLI is CLI for commands whose output is a credential.
func SecretCLI(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	bin := Program(t, "scripts/clusterpass", "clusterpass")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, append([]string{"--store", "dir:" + filepath.Join(Shared(t).Dir, "data")},
		args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	Shared(t).NoteSecrets()
	return string(out), err
}

// WaitForCLI runs the clusterpass command until its output contains all texts. Each process of a function reads a new
// grant by itself.
func WaitForCLI(t *testing.T, succeeds bool, texts []string, args ...string) {
	t.Helper()
	var out string
	var err error
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%v: %s%v", args, out, err)
		}
	})
	waittest.Until(t, "clusterpass "+strings.Join(args, " "), func() bool {
		out, err = CLI(t, "", args...)
		return (err == nil) == succeeds &&
			!slices.ContainsFunc(texts, func(w string) bool { return !strings.Contains(out, w) })
	})
}

// CertificateKubeconfig returns the path of a kubeconfig with a new client certificate of a user of the shared gateway.
func CertificateKubeconfig(t *testing.T, user string, groups ...string) string {
	t.Helper()
	ca, err := pki.LoadCA(filepath.Join(Shared(t).Dir, "data", "pki"), "client-ca")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Client(user, groups)
	if err != nil {
		t.Fatal(err)
	}
	Secrets.Document("the pass of "+user, key)
	return passWith(t, Shared(t).Kubeconfig, &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
}

func passWith(t *testing.T, pass string, credential *clientcmdapi.AuthInfo) string {
	t.Helper()
	kc, err := clientcmd.LoadFromFile(pass)
	if err != nil {
		t.Fatal(err)
	}
	for name := range kc.AuthInfos {
		kc.AuthInfos[name] = credential
	}
	path := filepath.Join(t.TempDir(), "pass")
	if err := clientcmd.WriteToFile(*kc, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// CreatePass creates a pass and returns the output of the command, which is a secret.
func CreatePass(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := SecretCLI(t, "", append([]string{"pass", "create", name, "--gateway", Shared(t).Kubeconfig}, args...)...)
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if Secrets.Document("pass "+name, []byte(out)) == 0 {
		Secrets.Secret("pass "+name, strings.TrimSpace(out))
	}
	for _, set := range []string{passes.PassKeys, passes.AgentKeys, passes.TunnelKeys} {
		data, err := os.ReadFile(filepath.Join(Shared(t).Dir, "data", "secrets", filepath.FromSlash(set)))
		if err != nil {
			continue
		}
		for _, d := range regexp.MustCompile(`"d":"([^"]+)"`).FindAllStringSubmatch(string(data), -1) {
			Secrets.Secret("a key of "+set, d[1])
		}
	}
	t.Cleanup(func() { _, _ = CLI(t, "", "pass", "revoke", name) })
	return out
}
