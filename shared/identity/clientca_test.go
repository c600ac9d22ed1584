package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/clusterpass/clusterpass/shared/pki"
)

// Both the certificate and its issuer must expire.
func TestClientCAForgetsExpiredChains(t *testing.T) {
	start := time.Now()
	root, rootKey := issue(t, nil, nil, true, start.Add(24*time.Hour))
	pool := x509.NewCertPool()
	pool.AddCert(root)
	for name, tt := range map[string]struct{ issuer, leaf time.Duration }{
		"the leaf ends first":   {2 * time.Hour, time.Hour},
		"the issuer ends first": {time.Hour, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			issuer, issuerKey := issue(t, root, rootKey, true, start.Add(tt.issuer))
			leaf, _ := issue(t, issuer, issuerKey, false, start.Add(tt.leaf))
			clock := testingclock.NewFakeClock(start)
			ca := NewClientCA(pool, clock.Now)
			chain := []*x509.Certificate{leaf, issuer}
			for range 2 {
				if err := ca.Verify(chain); err != nil {
					t.Fatal(err)
				}
			}
			if ca.valid.Len() != 1 {
				t.Errorf("%d chains are remembered, want 1", ca.valid.Len())
			}
			if ca.Verify(chain[:1]) == nil {
				t.Error("the leaf without its issuer is accepted")
			}
			clock.Step(time.Hour + time.Second)
			if ca.Verify(chain) == nil {
				t.Error("the chain is accepted after its end")
			}
		})
	}
}

// A certificate with a remembered name, of another authority, must not match.
func TestClientCAOfAnotherRoot(t *testing.T) {
	ours, err := pki.LoadCA(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := pki.LoadCA(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	ca := NewClientCA(ours.Pool(), nil)
	if err := ca.Verify([]*x509.Certificate{client(t, ours, "alice")}); err != nil {
		t.Error(err)
	}
	for range 2 {
		if ca.Verify([]*x509.Certificate{client(t, theirs, "alice")}) == nil {
			t.Error("a certificate of another authority is accepted")
		}
	}
	if ca.valid.Len() != 1 {
		t.Errorf("%d chains are remembered, want 1", ca.valid.Len())
	}
}

// issue returns a self-signed certificate if parent is nil.
func issue(
	t *testing.T, parent *x509.Certificate, parentKey any, isCA bool, notAfter time.Time,
) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "alice"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: notAfter,
		IsCA: isCA, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if isCA {
		template.KeyUsage = x509.KeyUsageCertSign
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}
