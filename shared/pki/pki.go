// Package pki creates a server CA, a client CA and their certificates, in memory or in files. Key files have mode 0600
// in a directory with mode 0700.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	caLife   = 10 * 365 * 24 * time.Hour
	leafLife = 90 * 24 * time.Hour
	// renewal is the remaining lifetime at which a stored certificate is replaced.
	renewal = 30 * 24 * time.Hour
)

// CA signs certificates.
type CA struct {
	Cert *x509.Certificate
	key  crypto.Signer
}

// PEM returns the CA's certificate.
func (c *CA) PEM() []byte { return certPEM(c.Cert.Raw) }

// Pool returns a pool with only this CA.
func (c *CA) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(c.Cert)
	return p
}

// LoadCA reads certificate and key from dir/name.pem, or creates them. Only one process may call it at a time.
func LoadCA(dir, name string) (*CA, error) {
	pair, err := load(dir, name, time.Now().Add(renewal))
	if err != nil {
		return nil, err
	}
	if pair == nil {
		if pair, err = create(dir, name, authority(name), nil); err != nil {
			return nil, err
		}
	}
	return &CA{pair.Leaf, pair.PrivateKey.(crypto.Signer)}, nil
}

// ContainsPrivateKey reports whether a PEM bundle contains a private key, in any of its forms.
func ContainsPrivateKey(bundle []byte) bool {
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return false
		}
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return true
		}
	}
}

// NewCA creates a CA. It is not stored.
func NewCA(name string) (*CA, error) {
	der, key, err := sign(authority(name), nil)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &CA{cert, key}, err
}

func authority(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: "clusterpass " + name},
		NotBefore: now.Add(-time.Minute), NotAfter: now.Add(caLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
}

// ParseCA parses the certificate and key of a CA in PEM. It returns an error if the CA has expired.
func ParseCA(data []byte) (*CA, error) {
	pair, err := tls.X509KeyPair(data, data)
	if err != nil {
		return nil, err
	}
	if !pair.Leaf.IsCA || time.Now().After(pair.Leaf.NotAfter) {
		return nil, errors.New("the certificate is no CA's, or has expired")
	}
	return &CA{pair.Leaf, pair.PrivateKey.(crypto.Signer)}, nil
}

// KeyPair returns the CA's certificate and key in PEM, for ParseCA.
func (c *CA) KeyPair() ([]byte, error) {
	key, err := keyPEM(c.key)
	return append(c.PEM(), key...), err
}

// ReadCA reads the certificate and key of a CA from a file.
func ReadCA(path string) (*CA, error) {
	pair, err := loadFile(path, time.Now())
	switch {
	case err != nil:
		return nil, err
	case pair == nil:
		return nil, fmt.Errorf("%s: no such file, or a certificate that has expired", path)
	}
	return &CA{pair.Leaf, pair.PrivateKey.(crypto.Signer)}, nil
}

// Server reads the certificate of a server with the given host names and addresses, or creates it.
func (c *CA) Server(dir, name string, hosts []string) (*tls.Certificate, error) {
	pair, err := load(dir, name, time.Now().Add(renewal))
	if err != nil {
		return nil, err
	}
	if pair != nil && covers(pair.Leaf, hosts) && pair.Leaf.CheckSignatureFrom(c.Cert) == nil {
		return pair, nil
	}
	return create(dir, name, server(hosts), c)
}

// Serve returns a function for tls.Config.GetCertificate. It returns certificates of a server with the given host names
// and addresses, which it creates and renews in memory. It is safe for concurrent use.
func (c *CA) Serve(hosts []string) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	var (
		mu      sync.Mutex
		current *tls.Certificate
	)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		if current != nil && time.Now().Add(renewal).Before(current.Leaf.NotAfter) {
			return current, nil
		}
		der, key, err := sign(server(hosts), c)
		if err != nil {
			return nil, err
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		current = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: cert}
		return current, nil
	}
}

func server(hosts []string) *x509.Certificate {
	tmpl := leaf(pkix.Name{CommonName: hosts[0]}, x509.ExtKeyUsageServerAuth)
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else {
			tmpl.DNSNames = append(tmpl.DNSNames, h)
		}
	}
	return tmpl
}

func covers(cert *x509.Certificate, hosts []string) bool {
	for _, h := range hosts {
		if cert.VerifyHostname(h) != nil {
			return false
		}
	}
	return true
}

// SelfSigned creates a certificate for a server whose clients verify none. It is not stored.
func SelfSigned(name string) (*tls.Certificate, error) {
	tmpl := leaf(pkix.Name{CommonName: name}, x509.ExtKeyUsageServerAuth)
	tmpl.DNSNames = []string{name}
	der, key, err := sign(tmpl, nil)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// Client creates a client certificate. It returns certificate and key in PEM and stores neither.
func (c *CA) Client(user string, groups []string) (cert, key []byte, err error) {
	return c.ClientUntil(user, groups, time.Now().Add(leafLife))
}

// ClientUntil is like Client, with a given end and additional URIs in the certificate.
func (c *CA) ClientUntil(user string, groups []string, until time.Time, uris ...*url.URL) (cert, key []byte,
	err error) {
	tmpl := leaf(pkix.Name{CommonName: user, Organization: groups}, x509.ExtKeyUsageClientAuth)
	tmpl.NotAfter, tmpl.URIs = until, uris
	der, k, err := sign(tmpl, c)
	if err != nil {
		return nil, nil, err
	}
	key, err = keyPEM(k)
	return certPEM(der), key, err
}

func leaf(subject pkix.Name, usage x509.ExtKeyUsage) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		Subject: subject, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(leafLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage}, BasicConstraintsValid: true,
	}
}

func sign(tmpl *x509.Certificate, ca *CA) (der []byte, key *ecdsa.PrivateKey, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	if tmpl.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, nil, err
	}
	parent, signer := tmpl, crypto.Signer(key)
	if ca != nil {
		parent, signer = ca.Cert, ca.key
	}
	der, err = x509.CreateCertificate(rand.Reader, tmpl, parent, key.Public(), signer)
	return der, key, err
}

// PEM returns the leaf and the key of a certificate in PEM.
func PEM(pair *tls.Certificate) (cert, key []byte, err error) {
	key, err = keyPEM(pair.PrivateKey)
	return certPEM(pair.Certificate[0]), key, err
}

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func create(dir, name string, tmpl *x509.Certificate, ca *CA) (*tls.Certificate, error) {
	der, key, err := sign(tmpl, ca)
	if err != nil {
		return nil, fmt.Errorf("make certificate %s: %w", name, err)
	}
	kp, err := keyPEM(key)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// Both are in one file, so that a crash cannot leave a certificate with another key.
	if err := replace(filepath.Join(dir, name+".pem"), append(certPEM(der), kp...)); err != nil {
		return nil, err
	}
	return load(dir, name, time.Time{})
}

func replace(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}

// load returns nil if there is no such file, or its certificate ends before until.
func load(dir, name string, until time.Time) (*tls.Certificate, error) {
	return loadFile(filepath.Join(dir, name+".pem"), until)
}

func loadFile(path string, until time.Time) (*tls.Certificate, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return nil,
			fmt.Errorf("%s contains a key, but others can read it, or it is not a regular file: chmod 600 it, or replace "+
				"the key if others may have read it", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(data, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; delete the file to create a new one", path, err)
	}
	if pair.Leaf.NotAfter.Before(until) {
		return nil, nil
	}
	return &pair, nil
}
