package kubernetes

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const maxSecretName = 253

// Secret names have no '/', and dots only between letters and digits.
var nameEscapes = strings.NewReplacer("/", ".", ".", "-d", "-", "--")

// secretName encodes a valid name of a secret as the name of a Secret: clusters/member1 as clusters.member1. No two
// names have the same encoding. A name that becomes too long is replaced by its digest, after characters that no other
// encoding has.
func secretName(name string) string {
	if encoded := nameEscapes.Replace(name); len(encoded) <= maxSecretName {
		return encoded
	}
	digest := sha256.Sum256([]byte(name))
	return "long-x" + hex.EncodeToString(digest[:])
}
