package identity

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// UnverifiedToken has the claims of a bearer token. The token's author chose everything but Hash.
type UnverifiedToken struct {
	Hash                string // SHA-256 of the whole token, in hexadecimal digits
	Issuer, Subject, ID string // the claims iss, sub and jti of a JWT; "" where they are no texts, and for other tokens
}

// Unverified reads a token without verifying it, for the audit log.
func Unverified(token string) UnverifiedToken {
	sum := sha256.Sum256([]byte(token))
	u := UnverifiedToken{Hash: hex.EncodeToString(sum[:])}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return u
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims map[string]json.RawMessage
	if err != nil || json.Unmarshal(data, &claims) != nil {
		return u
	}
	u.Issuer, _ = text(claims["iss"])
	u.Subject, _ = text(claims["sub"])
	u.ID, _ = text(claims["jti"])
	return u
}
