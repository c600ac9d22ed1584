package cursor

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

// Token is a composite continue token: where a list in pages goes on. Members are read one after the other, in the order of their
// names; those before Next are done.
type Token struct {
	// Version is what the list shows, of every member that takes part in it. All pages have it.
	Version Version
	// Next is the id of the member to go on with, and Continue its own token; "" begins that member at its Version.
	Next     uint64
	Continue string
	// Skip is how many objects behind Continue were given already.
	Skip int
	// Remaining is the number of objects that follow, of all members; 0 if it is not known.
	Remaining int64
}

// tokenFormat is the number of the format.
const tokenFormat = 1

// wire is a Token as it is written, in base64: short, since it travels in URLs.
type wire struct {
	Format   int    `json:"v"`
	Version  string `json:"rv"`
	Next     uint64 `json:"n"`
	Continue string `json:"c,omitempty"`
	Skip     int    `json:"s,omitempty"`
	Left     int64  `json:"r,omitempty"`
}

// String writes the token.
func (t Token) String() string {
	data, err := json.Marshal(wire{tokenFormat, t.Version.String(), t.Next, t.Continue, t.Skip, t.Remaining})
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

// maxSkip bounds what a token may ask for beyond its limit.
const maxSkip = 1 << 20

// ParseToken is the inverse of String; anything else is ErrInvalid.
func ParseToken(s string) (Token, error) {
	bad := fmt.Errorf("continue token %.64q: %w: list from the start", s, ErrInvalid)
	data, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return Token{}, bad
	}
	var w wire
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&w); err != nil || w.Format != tokenFormat || w.Skip < 0 || w.Skip > maxSkip || w.Left < 0 {
		return Token{}, bad
	}
	v, err := ParseVersion(w.Version)
	if err != nil {
		return Token{}, bad
	}
	t := Token{v, w.Next, w.Continue, w.Skip, w.Left}
	if _, ok := v[w.Next]; !ok || t.String() != s {
		return Token{}, bad
	}
	return t, nil
}

// IsOwnToken reports whether s is a continue token as kube-apiserver writes it for a list of its own.
func IsOwnToken(s string) bool {
	data, err := base64.RawURLEncoding.DecodeString(s)
	var own struct {
		Format string `json:"v"`
	}
	return err == nil && json.Unmarshal(data, &own) == nil && strings.HasPrefix(own.Format, "meta.k8s.io/")
}
