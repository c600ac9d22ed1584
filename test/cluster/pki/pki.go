// Package pki creates the CAs and certificates of test clusters. Keys are ECDSA P-256, because RSA keys would need
// seconds.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

const life = 365 * 24 * time.Hour

// A Pair is a certificate and its private key, both PEM.
type Pair struct{ Cert, Key []byte }

// A CA issues certificates. It is safe for concurrent use.
type CA struct {
	Pair
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// A Subject is the subject of a certificate. Without DNS names and addresses it is a client.
type Subject struct {
	Name   string   // Kubernetes: the user
	Groups []string // Kubernetes: the user's groups
	DNS    []string
	IPs    []net.IP
}

// NewCA makes an authority called name.
func NewCA(name string) (*CA, error) {
	template, err := certificate(Subject{Name: name})
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign
	template.ExtKeyUsage = nil
	pair, key, err := sign(template, nil)
	if err != nil {
		return nil, fmt.Errorf("make the authority %s: %w", name, err)
	}
	return ca(pair, key)
}

// LoadCA reads an authority from its PEM pair.
func LoadCA(pair Pair) (*CA, error) {
	loaded, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("load an authority: %w", err)
	}
	key, ok := loaded.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("load an authority: its key is not ECDSA")
	}
	return ca(pair, key)
}

func ca(pair Pair, key *ecdsa.PrivateKey) (*CA, error) {
	block, _ := pem.Decode(pair.Cert)
	if block == nil {
		return nil, errors.New("load an authority: its certificate is not PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("load an authority: %w", err)
	}
	return &CA{Pair: pair, cert: cert, key: key}, nil
}

// Issue makes a key and a certificate for it.
func (c *CA) Issue(s Subject) (Pair, error) {
	template, err := certificate(s)
	if err != nil {
		return Pair{}, err
	}
	pair, _, err := sign(template, c)
	if err != nil {
		return Pair{}, fmt.Errorf("issue a certificate for %s: %w", s.Name, err)
	}
	return pair, nil
}

// SigningKey makes a key pair in PEM for signing tokens.
func SigningKey() (private, public []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a signing key: %w", err)
	}
	if private, err = encodeKey(key); err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, nil, fmt.Errorf("encode a public key: %w", err)
	}
	return private, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

func certificate(s Subject) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	usage := x509.ExtKeyUsageClientAuth
	if len(s.DNS)+len(s.IPs) > 0 {
		usage = x509.ExtKeyUsageServerAuth
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: s.Name, Organization: s.Groups},
		DNSNames:     s.DNS,
		IPAddresses:  s.IPs,
		NotBefore:    time.Now().Add(-time.Hour), // clocks of containers and hosts differ
		NotAfter:     time.Now().Add(life),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{usage},
	}, nil
}

func sign(template *x509.Certificate, issuer *CA) (Pair, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, nil, err
	}
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.cert, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return Pair{}, nil, err
	}
	private, err := encodeKey(key)
	if err != nil {
		return Pair{}, nil, err
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return Pair{Cert: cert, Key: private}, key, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
