package passes

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"

	"github.com/clusterpass/clusterpass/shared/secrets"
)

// The gateway's other programs connect to the bridge's tunnel port. Both ends have the private keys TunnelKeys: the
// client signs a token, and the bridge a certificate. The signature of one never verifies the other, because tokens
// begin with a letter and certificates do not.
const (
	tunnelAudience = "clusterpass.io/tunnel"
	tunnelName     = "tunnel.clusterpass.io"
	tunnelTTL      = time.Minute
	// The bridge replaces a certificate after a tenth of its lifetime.
	tunnelCertificateLife = 10 * time.Hour
)

// TunnelToken returns a token for one private cluster at the bridge's tunnel port. It is valid for a minute.
func (v *Verifier) TunnelToken(ctx context.Context, cluster string) (secrets.Value, error) {
	key, err := v.tunnelKey(ctx)
	if err != nil {
		return secrets.Value{}, err
	}
	now := v.cfg.Now().Truncate(time.Second)
	return serialize(key.Key, tunnelToken, jwt.Claims{
		Issuer: v.cfg.URL, Audience: jwt.Audience{tunnelAudience}, Subject: cluster, ID: uuid.NewString(),
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(tunnelTTL)),
	}, struct{}{})
}

// Prepare reads the keys for connections to the tunnel port into the caches.
func (v *Verifier) Prepare(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { _, _ = v.keys.Get(ctx, TunnelKeys) })
	both.Go(func() { _, _ = v.tunnel.Get(ctx, TunnelKeys) })
	both.Wait()
}

// VerifyTunnelToken returns an error unless TunnelToken returned the token for that cluster within the last minute.
func (v *Verifier) VerifyTunnelToken(ctx context.Context, token, cluster string) error {
	c, err := v.verifySigned(ctx, tunnelToken, token, tunnelAudience, &struct{}{})
	if err == nil && c.Subject != cluster {
		err = refusal(nil, "the token is for another cluster")
	}
	return err
}

// tunnelKey creates no keys, because a gateway without keys has no agents.
func (v *Verifier) tunnelKey(ctx context.Context) (signingKey, error) {
	set, err := v.tunnel.Get(ctx, TunnelKeys)
	switch {
	case errors.Is(err, secrets.ErrNotFound), err == nil && len(set.Keys) == 0:
		return signingKey{}, refusal(err, "the tunnel port has no keys yet; they come with the first private cluster")
	case err != nil:
		return signingKey{}, unavailable("the keys of the tunnel port cannot be read", err)
	}
	return set.signingKeyAt(v.cfg.Now()), nil
}

// TunnelCertificate implements tls.Config.GetCertificate for the tunnel port.
func (v *Verifier) TunnelCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	signer, err := v.tunnelKey(hello.Context())
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.cfg.Now()
	if c := v.certificate; c == nil || c.Leaf.Issuer.CommonName != signer.Key.KeyID ||
		now.Sub(c.Leaf.NotBefore) > tunnelCertificateLife/10 {
		if v.certificate, err = tunnelCertificate(signer, now); err != nil {
			return nil, err
		}
	}
	return v.certificate, nil
}

func tunnelCertificate(signer signingKey, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: tunnelName}, DNSNames: []string{tunnelName},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(tunnelCertificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	parent := &x509.Certificate{Subject: pkix.Name{CommonName: signer.Key.KeyID}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, key.Public(), signer.Key.Key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

// VerifyTunnelCertificate returns an error unless TunnelCertificate returned the certificate, and it is valid now.
func (v *Verifier) VerifyTunnelCertificate(ctx context.Context, leaf *x509.Certificate) error {
	key, err := v.key(ctx, tunnelPort, leaf.Issuer.CommonName)
	if err != nil {
		return err
	}
	issuer := &x509.Certificate{PublicKeyAlgorithm: x509.ECDSA, PublicKey: key.Key}
	now := v.cfg.Now()
	switch err := issuer.CheckSignature(leaf.SignatureAlgorithm, leaf.RawTBSCertificate, leaf.Signature); {
	case err != nil:
		return err
	case now.Before(leaf.NotBefore.Add(-clockSkew)) || now.After(leaf.NotAfter):
		return errors.New("the tunnel port's certificate is not valid now")
	case !slices.Equal(leaf.DNSNames, []string{tunnelName}) ||
		!slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth):
		return errors.New("the certificate is not a tunnel port's")
	}
	return nil
}
