package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/secrets/dir"
)

// TestGatewayCAOfPasses fails if the first pass of an installation does not trust the certificate of its gateway.
func TestGatewayCAOfPasses(t *testing.T) {
	c, _ := setup(t)
	file, private := filepath.Join(t.TempDir(), "ca.crt"), testCA(t)
	if err := os.WriteFile(file, []byte(private), 0o600); err != nil {
		t.Fatal(err)
	}
	create := func(name, ca string) (string, error) {
		return c.run(t, "pass", "create", name, "--user", "me", "--gateway", "https://gateway.example.com",
			"--gateway-ca", ca)
	}
	if _, err := create("early", storedCA); err == nil || !strings.Contains(err.Error(), "--gateway-ca") {
		t.Errorf("before a bridge has made a CA: %v", err)
	}
	store, err := dir.Open(filepath.Join(strings.TrimPrefix(c.store, "dir:"), "secrets"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := passes.EnsureServerCA(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := passes.EnsureServerCA(t.Context(), store); err != nil || !bytes.Equal(again.PEM(), ca.PEM()) {
		t.Errorf("a second bridge has another CA: %v", err)
	}
	for name, tt := range map[string]struct {
		ca   string
		want string
	}{"of-bridges": {storedCA, string(ca.PEM())}, "of-a-file": {file, private}} {
		out, err := create(name, tt.ca)
		if err != nil {
			t.Fatal(err)
		}
		kc, err := clientcmd.Load([]byte(out))
		if err != nil || string(kc.Clusters["fleet"].CertificateAuthorityData) != tt.want {
			t.Errorf("%s: %v, %v", name, kc, err)
		}
	}
	if _, err := create("no-file", filepath.Join(t.TempDir(), "missing")); err == nil ||
		!strings.Contains(err.Error(), "--gateway-ca") {
		t.Errorf("a missing file: %v", err)
	}
	keys := t.TempDir()
	if _, err := pki.LoadCA(keys, "server-ca"); err != nil {
		t.Fatal(err)
	}
	if out, err := create("key", filepath.Join(keys, "server-ca.pem")); err == nil ||
		!strings.Contains(err.Error(), "contains a private key") {
		t.Errorf("a CA with its key: %v\n%s", err, out)
	}
}
