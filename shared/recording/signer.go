package recording

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Signer signs the parts of recordings. It is safe for concurrent use.
type Signer struct {
	id  string
	key ed25519.PrivateKey
}

// NewSigner returns a Signer with a private key.
func NewSigner(key ed25519.PrivateKey) (*Signer, error) {
	if len(key) != ed25519.PrivateKeySize {
		return nil, fmt.Errorf("key of recordings: it has %d bytes; want %d", len(key), ed25519.PrivateKeySize)
	}
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("key of recordings: want a key of Ed25519")
	}
	return &Signer{KeyID(public), key}, nil
}

// Keys are public keys that verify recordings, by their KeyID.
type Keys map[string]ed25519.PublicKey

// NewKeys returns Keys with these keys.
func NewKeys(keys ...ed25519.PublicKey) Keys {
	out := Keys{}
	for _, k := range keys {
		out[KeyID(k)] = k
	}
	return out
}

// KeyID returns the name of a public key, which parts have beside their signature.
func KeyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return base64.RawURLEncoding.EncodeToString(sum[:15])
}

// signatureDomain starts each signed message, so that a signature has no meaning elsewhere.
const signatureDomain = "clusterpass.io/recording/v1\n"

func signedMessage(digest []byte) []byte { return append([]byte(signatureDomain), digest...) }

func (s *Signer) sign(digest []byte) []byte { return ed25519.Sign(s.key, signedMessage(digest)) }

// orEmpty returns keys that are not nil, with which every part is verified.
func (k Keys) orEmpty() Keys {
	if k == nil {
		return Keys{}
	}
	return k
}

func (k Keys) verify(id string, digest, signature []byte) bool {
	key, ok := k[id]
	return ok && ed25519.Verify(key, signedMessage(digest), signature)
}

const idTime = "20060102T150405Z"

var idRE = regexp.MustCompile(`^\d{8}T\d{6}Z-[a-z0-9]{26}$`)

// NewID returns a new random id of a recording, which begins with the time of its start.
func NewID(start time.Time) string {
	return start.UTC().Format(idTime) + "-" + strings.ToLower(rand.Text())
}

// ValidID reports whether NewID could have returned id.
func ValidID(id string) bool { return idRE.MatchString(id) }
