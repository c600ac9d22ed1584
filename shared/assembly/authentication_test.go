package assembly

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/pki"
)

func TestCertificates(t *testing.T) {
	ca, err := pki.LoadCA(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{string(ca.PEM()), base64.StdEncoding.EncodeToString(ca.PEM()), file} {
		var c Certificates
		if err := c.Decode(v); err != nil || !c.Pool().Equal(ca.Pool()) {
			t.Errorf("%.30s: %v", v, err)
		}
	}
	for _, v := range []string{
		"-----BEGIN nothing", base64PEM + "%", base64.StdEncoding.EncodeToString([]byte("-----BEGIN nothing")), file + "x",
	} {
		var c Certificates
		if err := c.Decode(v); err == nil {
			t.Errorf("%q is accepted", v)
		}
	}
}

// TestCertificatesWithAKey: with the key of the CA, whoever reads the gateway's configuration can act as any user.
func TestCertificatesWithAKey(t *testing.T) {
	dir := t.TempDir()
	if _, err := pki.LoadCA(dir, "ca"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "ca.pem") // with the key
	bundle, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]string{
		"PEM": string(bundle), "base64": base64.StdEncoding.EncodeToString(bundle), "file": file,
	} {
		t.Run(name, func(t *testing.T) {
			var c Certificates
			if err := c.Decode(v); err == nil || !strings.Contains(err.Error(), "contains a private key") || c.PEM() != nil {
				t.Errorf("%v", err)
			}
		})
	}
}

// If a client certificate were valid as a front proxy, its owner could act as any user.
func TestFrontProxyCA(t *testing.T) {
	ca := func(name string) []byte {
		t.Helper()
		ca, err := pki.LoadCA(t.TempDir(), name)
		if err != nil {
			t.Fatal(err)
		}
		return ca.PEM()
	}
	ours, front, another := ca("ours"), ca("front"), ca("another")
	root, below := chainOf(t)
	for name, tt := range map[string]struct {
		front, clients [][]byte
		refused        bool
	}{
		"apart":                            {[][]byte{front}, [][]byte{ours}, false},
		"bundles that are apart":           {[][]byte{front, another}, [][]byte{ours, root}, false},
		"the same":                         {[][]byte{ours}, [][]byte{ours}, true},
		"one of the front proxy's":         {[][]byte{front, ours}, [][]byte{ours}, true},
		"one of the clients'":              {[][]byte{front}, [][]byte{ours, front}, true},
		"one of both":                      {[][]byte{front, another}, [][]byte{ours, another}, true},
		"the one that signed the clients'": {[][]byte{root}, [][]byte{below}, true},
		// Only certificates of the intermediate CA are front proxies.
		"one that the clients' signed": {[][]byte{below}, [][]byte{root}, false},
	} {
		t.Run(name, func(t *testing.T) {
			document, err := yaml.Marshal(map[string]any{"frontProxy": map[string]any{
				"names": []string{"front-proxy-client"}, "ca": string(bytes.Join(tt.front, nil)),
			}})
			if err != nil {
				t.Fatal(err)
			}
			var e Env
			if err := errors.Join(
				e.Authentication.Decode(string(document)), e.ClientCA.Decode(string(bytes.Join(tt.clients, nil))),
			); err != nil {
				t.Fatal(err)
			}
			chain, err := e.chain(identity.TLSPeer, passes.NewVerifier(passes.Config{}))
			if tt.refused {
				if err == nil || !strings.Contains(err.Error(), "frontProxy.ca contains the CA of client certificates") {
					t.Errorf("%v", err)
				}
			} else if err != nil || len(chain) != 2 {
				t.Errorf("%d methods, %v", len(chain), err)
			}
		})
	}
}

func chainOf(t *testing.T) (root, below []byte) {
	t.Helper()
	sign := func(
		name string, parent *x509.Certificate, by *ecdsa.PrivateKey,
	) ([]byte, *x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}
		if parent == nil {
			parent, by = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by)
		if err != nil {
			t.Fatal(err)
		}
		c, err = x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), c, key
	}
	root, above, key := sign("root", nil, nil)
	below, _, _ = sign("below", above, key)
	return root, below
}
