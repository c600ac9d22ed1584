package cursor

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

// Token is a composite continue token. Members are read in the order of their names. Those before Next are complete.
type Token struct {
	Version     Version // the same on all pages
	Next        uint64  // id of the member to continue with
	Continue    string  // its own token; "" begins the member at its Version
	Skip        int     // number of objects after Continue that the client already has
	Remaining   int64   // number of objects that follow, of all members; 0 if unknown
	PageMembers int     // number of members that fill the next page, estimated from this one; 0 if unknown
}

const tokenFormat = 1

// wire is the JSON form of a Token. Its names are short because clients send it in URLs.
type wire struct {
	Format      int    `json:"v"`
	Version     string `json:"rv"`
	Next        uint64 `json:"n"`
	Continue    string `json:"c,omitempty"`
	Skip        int    `json:"s,omitempty"`
	Left        int64  `json:"r,omitempty"`
	PageMembers int    `json:"m,omitempty"`
}

// String returns the text of the token, the base64 of its JSON form.
func (t Token) String() string {
	data, err := json.Marshal(wire{
		tokenFormat, t.Version.String(), t.Next, t.Continue, t.Skip, t.Remaining, t.PageMembers,
	})
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

// MaxSkip limits the objects that a token makes the fleet skip.
const MaxSkip = 1 << 20

// ParseToken is the inverse of String. It returns ErrInvalid for any other text.
func ParseToken(s string) (Token, error) {
	errInvalid := fmt.Errorf("continue token %.64q: %w: list from the start", s, ErrInvalid)
	data, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return Token{}, errInvalid
	}
	var w wire
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&w); err != nil || w.Format != tokenFormat || w.Skip < 0 || w.Skip > MaxSkip ||
		w.Left < 0 || w.PageMembers < 0 {
		return Token{}, errInvalid
	}
	v, err := ParseVersion(w.Version)
	if err != nil {
		return Token{}, errInvalid
	}
	t := Token{v, w.Next, w.Continue, w.Skip, w.Left, w.PageMembers}
	if _, ok := v[w.Next]; !ok || t.String() != s {
		return Token{}, errInvalid
	}
	return t, nil
}

// IsMemberToken reports whether s is a continue token of a kube-apiserver.
func IsMemberToken(s string) bool {
	data, err := base64.RawURLEncoding.DecodeString(s)
	var own struct {
		Format string `json:"v"`
	}
	return err == nil && json.Unmarshal(data, &own) == nil && strings.HasPrefix(own.Format, "meta.k8s.io/")
}
