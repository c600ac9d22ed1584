package identity

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"time"

	"github.com/clusterpass/clusterpass/shared/cache"
)

const maxVerified = 10_000

// ClientCA verifies client certificates. It remembers valid chains until they expire, because checking a signature
// costs more than the rest of a request. It does not check revocation. It is safe for concurrent use.
type ClientCA struct {
	roots *x509.CertPool
	now   func() time.Time
	valid *cache.Expiring[[sha256.Size]byte, struct{}]
}

// NewClientCA returns the ClientCA of root certificates. A nil clock means time.Now.
func NewClientCA(roots *x509.CertPool, now func() time.Time) *ClientCA {
	if now == nil {
		now = time.Now
	}
	return &ClientCA{
		roots: roots, now: now, valid: cache.NewExpiring[[sha256.Size]byte, struct{}](maxVerified, now),
	}
}

// Verify returns an error unless the roots signed chain, leaf first, for a client.
func (a *ClientCA) Verify(chain []*x509.Certificate) error {
	key := chainKey(chain)
	if _, ok := a.valid.Get(key); ok {
		return nil
	}
	opts := x509.VerifyOptions{
		Roots: a.roots, Intermediates: x509.NewCertPool(), CurrentTime: a.now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, c := range chain[1:] {
		opts.Intermediates.AddCert(c)
	}
	verified, err := chain[0].Verify(opts)
	switch {
	case err != nil:
		return err
	case chain[0].IsCA:
		return errors.New("it is an authority's own")
	}
	a.valid.Add(key, struct{}{}, firstExpiry(verified[0]))
	return nil
}

func chainKey(chain []*x509.Certificate) (key [sha256.Size]byte) {
	h := sha256.New()
	for _, c := range chain {
		_, _ = h.Write(c.Raw) // never fails
	}
	h.Sum(key[:0])
	return key
}

func firstExpiry(chain []*x509.Certificate) time.Time {
	first := chain[0].NotAfter
	for _, c := range chain[1:] {
		if c.NotAfter.Before(first) {
			first = c.NotAfter
		}
	}
	return first
}
