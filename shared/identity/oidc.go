package identity

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

// Issuer is an OpenID Connect provider whose tokens are accepted. Its fields are those of kube-apiserver's --oidc
// flags.
type Issuer struct {
	// URL is the issuer, exactly as in the claim iss of tokens: https, without query.
	URL string
	// Audiences are the audiences of the gateway. A token must have one of them. Required.
	Audiences []string
	CA        *x509.CertPool
	// UsernameClaim "" means sub. With email, a token whose claim email_verified is present and not true is refused.
	UsernameClaim string
	// UsernamePrefix "" means URL and "#", but no prefix for the claim email. "-" means no prefix.
	UsernamePrefix string
	// GroupsClaim is a list of strings, or a string. "" means no groups.
	GroupsClaim  string
	GroupsPrefix string
	// RequiredClaims must be in the token with these string values.
	RequiredClaims map[string]string
	// Skew is the accepted difference between clocks. 0 means a minute.
	Skew time.Duration
}

// algorithms all have a public key. Unsigned tokens, and those that are signed with a shared secret, are refused.
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
}

// OIDC authenticates callers by ID tokens of OpenID Connect providers. It reads a provider's keys again within 15
// minutes, or when a token names another key. While the provider is down, it uses the last keys for a day. OIDC is safe
// for concurrent use.
type OIDC struct {
	issuers map[string]*issuer
	now     func() time.Time
}

type issuer struct {
	Issuer
	keys *keys
}

// NewOIDC returns an OIDC without connecting to a provider. A nil now means time.Now.
func NewOIDC(issuers []Issuer, now func() time.Time) (*OIDC, error) {
	if now == nil {
		now = time.Now
	}
	o := &OIDC{issuers: map[string]*issuer{}, now: now}
	for _, i := range issuers {
		u, err := url.Parse(i.URL)
		switch {
		case err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
			return nil, fmt.Errorf("issuer %q: want an https URL without query, such as https://accounts.example.com", i.URL)
		case len(i.Audiences) == 0 || slices.Contains(i.Audiences, ""):
			return nil, fmt.Errorf("issuer %s: want the audiences that its tokens have for this gateway", i.URL)
		case i.Skew < 0 || i.Skew > 5*time.Minute:
			return nil, fmt.Errorf("issuer %s: skew %s, want at most 5m", i.URL, i.Skew)
		case o.issuers[i.URL] != nil:
			return nil, fmt.Errorf("issuer %s: is configured twice", i.URL)
		}
		if i.UsernameClaim == "" {
			i.UsernameClaim = "sub"
		}
		switch {
		case i.UsernamePrefix == "-":
			i.UsernamePrefix = ""
		case i.UsernamePrefix == "" && i.UsernameClaim != "email":
			i.UsernamePrefix = i.URL + "#"
		}
		if i.Skew == 0 {
			i.Skew = time.Minute
		}
		o.issuers[i.URL] = &issuer{i, newKeys(i.URL, i.CA, now)}
	}
	return o, nil
}

// Method implements TokenAuthenticator.
func (*OIDC) Method() string { return "OpenID Connect token" }

// AuthenticateToken implements TokenAuthenticator.
func (o *OIDC) AuthenticateToken(ctx context.Context, token string) (*User, error) {
	payload, ok := unverified(token)
	if !ok || o.issuers[payload.Issuer] == nil {
		return nil, nil
	}
	return o.issuers[payload.Issuer].authenticate(ctx, token, o.now().Round(0))
}

type payload struct {
	Issuer   string          `json:"iss"`
	Audience json.RawMessage `json:"aud"`
}

// UnverifiedIssuer returns the issuer that a JWT claims, and reports whether token is a JWT.
func UnverifiedIssuer(token string) (string, bool) {
	p, ok := unverified(token)
	return p.Issuer, ok
}

func unverified(token string) (p payload, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return p, false
	}
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	return p, err == nil && json.Unmarshal(data, &p) == nil
}

// IsForGateway reports whether a token claims one of the issuers, and one of the gateway's audiences. It verifies
// nothing. Such tokens must not be forwarded to a member, which may have the same issuer with other audiences.
func (o *OIDC) IsForGateway(token string) bool {
	payload, ok := unverified(token)
	if !ok || o.issuers[payload.Issuer] == nil || payload.Audience == nil {
		return false
	}
	var audiences []string
	if one, ok := text(payload.Audience); ok {
		audiences = []string{one}
	} else if err := json.Unmarshal(payload.Audience, &audiences); err != nil {
		return true // the other audiences are unknown
	}
	return slices.ContainsFunc(audiences,
		func(a string) bool { return slices.Contains(o.issuers[payload.Issuer].Audiences, a) })
}

func (i *issuer) authenticate(ctx context.Context, token string, now time.Time) (*User, error) {
	set, err := i.keys.get(ctx)
	if err != nil {
		return nil, i.down(err)
	}
	watched := &watchedKeys{KeySet: set}
	// The verifier supports neither several audiences nor skew, so both are checked below.
	verified, err := oidc.NewVerifier(i.URL, watched, &oidc.Config{
		SupportedSigningAlgs: algorithms, SkipClientIDCheck: true, SkipExpiryCheck: true,
	}).Verify(ctx, token)
	switch {
	case err == nil:
	case errors.Is(watched.err, errProvider), ctx.Err() != nil:
		return nil, i.down(err)
	default:
		return nil, refusal(err, "the token of %s is invalid", i.URL)
	}
	if !slices.ContainsFunc(verified.Audience, func(a string) bool { return slices.Contains(i.Audiences, a) }) {
		return nil, refusal(fmt.Errorf("audience %q", verified.Audience),
			"the token of %s is for another audience than this gateway", i.URL)
	}
	var claims map[string]json.RawMessage
	if err := verified.Claims(&claims); err != nil {
		return nil, refusal(err, "the token of %s is invalid", i.URL)
	}
	if err := i.checkTimes(verified.Expiry, claims["nbf"], now); err != nil {
		return nil, err
	}
	u, err := i.user(claims)
	if u != nil {
		u.Expires = verified.Expiry.Add(i.Skew)
	}
	return u, err
}

func (i *issuer) down(err error) error {
	return unavailable(err, keyPause, "the keys of the identity provider %s cannot be read now; try again", i.URL)
}

func (i *issuer) checkTimes(expiry time.Time, notBefore json.RawMessage, now time.Time) error {
	if !now.Before(expiry.Add(i.Skew)) {
		return refusal(fmt.Errorf("expired at %s", expiry), "the token of %s has expired; get a new one", i.URL)
	}
	if notBefore == nil {
		return nil
	}
	var seconds float64
	if err := json.Unmarshal(notBefore, &seconds); err != nil {
		return refusal(err, "the token of %s is invalid", i.URL)
	}
	if seconds > float64(now.Add(i.Skew).Unix()) {
		return refusal(fmt.Errorf("valid from %.0f", seconds), "the token of %s is not valid yet", i.URL)
	}
	return nil
}

func (i *issuer) user(claims map[string]json.RawMessage) (*User, error) {
	for name, want := range i.RequiredClaims {
		if got, ok := text(claims[name]); !ok || got != want {
			return nil, refusal(fmt.Errorf("claim %q", name), "the token of %s lacks a required claim", i.URL)
		}
	}
	name, ok := text(claims[i.UsernameClaim])
	if !ok || name == "" {
		return nil, refusal(nil, "the token of %s has no claim %q for the user name", i.URL, i.UsernameClaim)
	}
	if v, ok := claims["email_verified"]; ok && i.UsernameClaim == "email" && string(v) != "true" {
		return nil, refusal(nil, "the token of %s has an email address that is not verified", i.URL)
	}
	name = i.UsernamePrefix + name
	if err := foreignName(name); err != nil {
		return nil, refusal(err, "the user name in the token of %s cannot be used: %v", i.URL, err)
	}
	u := &User{Name: name, Method: "oidc"}
	if raw := claims[i.GroupsClaim]; i.GroupsClaim != "" && raw != nil && string(raw) != "null" {
		var groups []string
		if one, ok := text(raw); ok {
			groups = []string{one}
		} else if err := json.Unmarshal(raw, &groups); err != nil {
			return nil, refusal(err, "claim %q in the token of %s is no list of groups", i.GroupsClaim, i.URL)
		}
		for n := range groups {
			groups[n] = i.GroupsPrefix + groups[n]
		}
		u.Groups = foreignGroups(groups)
	}
	return u, nil
}

func text(raw json.RawMessage) (string, bool) {
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		return "", false
	}
	return *s, true
}

// watchedKeys records the error of a key set, which the verifier's error does not contain.
type watchedKeys struct {
	oidc.KeySet
	err error
}

func (w *watchedKeys) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	payload, err := w.KeySet.VerifySignature(ctx, jwt)
	w.err = err
	return payload, err
}

var _ TokenAuthenticator = (*OIDC)(nil)
var _ Authenticator = Bearer{}
