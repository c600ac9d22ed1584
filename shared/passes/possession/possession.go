// Package possession proves that an agent of a private cluster has the private key that its credential is bound to. A
// [Key] never leaves the agent's cluster. [Credential.Header] makes the proof that accompanies a credential.
//
// Invariants:
//   - A proof is valid for one credential, one [Use] and one request, within ProofAge of its time.
//   - [Proofs] accepts each proof once.
//   - Only ECDSA keys on P-256 are accepted.
//
// Proofs are JWTs in a header, because a load balancer that terminates TLS does not forward client certificates.
package possession

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/clusterpass/clusterpass/shared/secrets"
)

// Headers of an agent's requests, beside Authorization.
const (
	ProofHeader   = "Clusterpass-Proof"
	RequestHeader = "Clusterpass-Certificate-Request" // PKCS#10: DER in base64
)

// Use is the purpose of a request.
type Use string

// Purposes of a request.
const (
	Connect Use = "connect"
	Renew   Use = "renew"
)

const (
	// ProofAge bounds the difference between the clock of the agent and that of the gateway.
	ProofAge   = time.Minute
	proofType  = "clusterpass-proof+jwt"
	keyType    = "EC PRIVATE KEY"
	maxRequest = 4 << 10 // bytes, in base64
	maxID      = 64      // bytes
)

// Key is the private key of an agent. It is safe for concurrent use.
type Key struct{ private *ecdsa.PrivateKey }

// NewKey returns a new random key.
func NewKey() (*Key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return &Key{private}, err
}

// ParseKey parses the result of PEM.
func ParseKey(v secrets.Value) (*Key, error) {
	block, _ := pem.Decode(v.Reveal())
	if block == nil || block.Type != keyType {
		return nil, errors.New("read the agent's key: it is not PEM of type " + keyType)
	}
	private, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil || private.Curve != elliptic.P256() {
		return nil, errors.New("read the agent's key: it is not an ECDSA key on P-256") // the parser's error could quote it
	}
	return &Key{private}, nil
}

// PEM returns the private key for storage.
func (k *Key) PEM() (secrets.Value, error) {
	der, err := x509.MarshalECPrivateKey(k.private)
	return secrets.NewValue(pem.EncodeToMemory(&pem.Block{Type: keyType, Bytes: der})), err
}

// Request returns the cluster's PKCS#10 request for a credential that is bound to the key, as DER in base64.
func (k *Key) Request(cluster string) (string, error) {
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: cluster}}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, k.private)
	return base64.StdEncoding.EncodeToString(der), err
}

// ParseRequest returns the public key of a request that Request made for the cluster. It verifies the signature.
func ParseRequest(request, cluster string) (*jose.JSONWebKey, error) {
	if request == "" || len(request) > maxRequest {
		return nil, fmt.Errorf("%s: want a PKCS#10 request of at most %d bytes", RequestHeader, maxRequest)
	}
	der, err := base64.StdEncoding.DecodeString(request)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", RequestHeader, err)
	}
	parsed, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", RequestHeader, err)
	}
	if err := parsed.CheckSignature(); err != nil {
		return nil, fmt.Errorf("%s: %w", RequestHeader, err)
	}
	public, ok := parsed.PublicKey.(*ecdsa.PublicKey)
	if !ok || public.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%s: want an ECDSA key on P-256", RequestHeader)
	}
	if parsed.Subject.CommonName != cluster {
		return nil, fmt.Errorf("%s: the common name is not cluster %q", RequestHeader, cluster)
	}
	return &jose.JSONWebKey{Key: public}, nil
}

// Thumbprint returns the thumbprint of a public key (RFC 7638) in base64url.
func Thumbprint(key *jose.JSONWebKey) (string, error) {
	sum, err := key.Thumbprint(crypto.SHA256)
	return base64.RawURLEncoding.EncodeToString(sum), err
}

type proof struct {
	Use    Use    `json:"use"`
	Digest string `json:"digest"` // hashes the credential and the request
}

func digest(token []byte, request string) string {
	hash := sha256.New()
	_, _ = hash.Write(token)
	_, _ = hash.Write([]byte("\n" + request)) // neither a token nor a request contains a line break
	return base64.RawURLEncoding.EncodeToString(hash.Sum(nil))
}

// Credential is an agent's token with the private key that the token is bound to. Key is nil if it is not bound to one.
type Credential struct {
	Token secrets.Value
	Key   *Key
}

// Header returns the headers that authenticate an agent's request. request is "" without a PKCS#10 request.
func (c Credential) Header(use Use, request string, now time.Time) (http.Header, error) {
	h := http.Header{"Authorization": {"Bearer " + string(c.Token.Reveal())}}
	if request != "" {
		h.Set(RequestHeader, request)
	}
	if c.Key == nil {
		return h, nil
	}
	text, err := c.Prove(use, request, now)
	h.Set(ProofHeader, text)
	return h, err
}

// Prove returns the proof that accompanies the token. The key must not be nil.
func (c Credential) Prove(use Use, request string, now time.Time) (string, error) {
	options := (&jose.SignerOptions{}).WithType(proofType)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: c.Key.private}, options)
	if err != nil {
		return "", err
	}
	registered := jwt.Claims{IssuedAt: jwt.NewNumericDate(now), ID: rand.Text()}
	return jwt.Signed(signer).Claims(registered).Claims(proof{use, digest(c.Token.Reveal(), request)}).Serialize()
}

// Verify returns the id of a proof, for Proofs. The owner of key must have made it for the token, the use and the
// request, within ProofAge of now.
func Verify(key *jose.JSONWebKey, text, token string, use Use, request string, now time.Time) (id string, err error) {
	parsed, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return "", errors.New("the proof is not a token that is signed with ES256") // the parser's error could quote it
	}
	if parsed.Headers[0].ExtraHeaders[jose.HeaderType] != proofType {
		return "", errors.New("the token is no proof")
	}
	var registered jwt.Claims
	var own proof
	if err := parsed.Claims(key, &registered, &own); err != nil {
		return "", errors.New("the proof is signed by another key")
	}
	if registered.IssuedAt == nil {
		return "", errors.New("the proof has no time")
	}
	if ahead := registered.IssuedAt.Time().Sub(now); ahead.Abs() > ProofAge {
		return "", fmt.Errorf("the clocks of the agent and the gateway differ by %s", ahead.Abs().Round(time.Second))
	}
	isSame := subtle.ConstantTimeCompare([]byte(own.Digest), []byte(digest([]byte(token), request))) == 1
	if own.Use != use || !isSame {
		return "", errors.New("the proof is for another request")
	}
	if registered.ID == "" || len(registered.ID) > maxID {
		return "", fmt.Errorf("the proof has no id of at most %d bytes; upgrade the agent", maxID)
	}
	return registered.ID, nil
}
