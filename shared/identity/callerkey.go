package identity

import (
	"crypto/sha256"
	"encoding/hex"
)

// CallerKey identifies a caller in limits: by the name of the user, or by the hash of a bearer token if user is "".
func CallerKey(user, bearer string) string {
	if user != "" {
		return "user " + user
	}
	sum := sha256.Sum256([]byte(bearer))
	return "token " + hex.EncodeToString(sum[:])
}
