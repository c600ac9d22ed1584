package assembly

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/clusterpass/clusterpass/shared/pki"
)

// Certificates is a set of CA certificates. The zero value contains none, and its pool trusts none.
type Certificates struct {
	pool *x509.CertPool
	pem  []byte
}

// ParseCertificates reads a PEM bundle. It fails if the bundle contains no certificate, or a private key. The gateway
// needs no key of a CA, and passes the bundle on to kubeconfigs and to other programs.
func ParseCertificates(bundle []byte) (Certificates, error) {
	if pki.ContainsPrivateKey(bundle) {
		return Certificates{}, errors.New("contains a private key; name a file that contains only the certificate")
	}
	c := Certificates{x509.NewCertPool(), bundle}
	if !c.pool.AppendCertsFromPEM(bundle) {
		return Certificates{}, errors.New("contains no PEM certificate")
	}
	return c, nil
}

// CertificatesOf returns the set that contains one certificate.
func CertificatesOf(ca *x509.Certificate) Certificates {
	c := Certificates{x509.NewCertPool(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})}
	c.pool.AddCert(ca)
	return c
}

// Pool returns the certificates as roots for verification. It is never nil: with a nil pool, crypto/x509 would trust
// the roots of the operating system.
func (c Certificates) Pool() *x509.CertPool {
	if c.pool == nil {
		return x509.NewCertPool()
	}
	return c.pool
}

// PEM returns the text from which the certificates were read, and nil for the zero value. Do not change it.
func (c Certificates) PEM() []byte { return c.pem }

// String returns the form that Decode parses.
func (c Certificates) String() string { return string(c.pem) }

// base64PEM is the beginning of PEM in base64, which is one line, so that a template's parameter can contain it.
const base64PEM = "LS0tLS1CRUdJTi"

// Decode implements envconfig.Decoder. The value is PEM, PEM in base64, or the path of a PEM file.
func (c *Certificates) Decode(v string) error {
	bundle := []byte(v)
	var err error
	switch {
	case strings.HasPrefix(v, base64PEM):
		if bundle, err = base64.StdEncoding.DecodeString(v); err != nil {
			return errors.New("contains neither PEM nor PEM in base64")
		}
	case !strings.Contains(v, "-----BEGIN"):
		if bundle, err = os.ReadFile(v); err != nil {
			return fmt.Errorf("cannot be read: %w", errors.Unwrap(err))
		}
	}
	*c, err = ParseCertificates(bundle)
	return err
}
