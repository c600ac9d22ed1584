package identity

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/clusterpass/clusterpass/shared/status"
)

// maxToken is in bytes. An ALB accepts header lines of 16 KB.
const maxToken = 16 << 10

// BearerProtocol is the prefix of a websocket subprotocol with a bearer token, for browsers, which cannot set headers.
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/
const BearerProtocol = "base64url.bearer.authorization.k8s.io."

// BearerToken reads the Authorization header or, for a websocket handshake without a token there, the subprotocols. It
// returns "" without a token, and an error for one that cannot be read.
func BearerToken(r *http.Request) (string, error) {
	values := r.Header["Authorization"]
	if len(values) > 1 {
		return "", errors.New("several Authorization headers")
	}
	if len(values) == 1 {
		scheme, token, _ := strings.Cut(strings.TrimSpace(values[0]), " ")
		if token = strings.TrimSpace(token); strings.EqualFold(scheme, "Bearer") {
			if err := checkToken(token); err != nil {
				return "", err
			}
			return token, nil
		}
	}
	if len(r.Header["Upgrade"]) == 0 || !strings.EqualFold(r.Header["Upgrade"][0], "websocket") {
		return "", nil
	}
	return protocolToken(r.Header["Sec-Websocket-Protocol"])
}

// protocolToken parses the subprotocols as kube-apiserver does. There must be another one beside the token's, because
// the server responds with a subprotocol that the client offered.
func protocolToken(lines []string) (token string, err error) {
	others := false
	for _, line := range lines {
		for p := range strings.SplitSeq(line, ",") {
			encoded, ok := strings.CutPrefix(strings.TrimSpace(p), BearerProtocol)
			if !ok {
				others = others || strings.TrimSpace(p) != ""
				continue
			}
			if token != "" {
				return "", errors.New("several websocket subprotocols with a bearer token")
			}
			b, err := base64.RawURLEncoding.DecodeString(encoded)
			if err != nil {
				return "", errors.New("the websocket subprotocol's bearer token is not base64url without padding")
			}
			token = string(b)
			if err := checkToken(token); err != nil {
				return "", err
			}
		}
	}
	if token != "" && !others {
		return "", errors.New("a websocket subprotocol is missing beside the one with the bearer token")
	}
	return token, nil
}

func checkToken(token string) error {
	switch {
	case token == "":
		return errors.New("the bearer token is empty")
	case len(token) > maxToken:
		return fmt.Errorf("the bearer token has more than %d bytes", maxToken)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' || r == ',' }): // RFC 6750, 2.1
		return errors.New("the bearer token has invalid characters")
	}
	return nil
}

// TokenAuthenticator authenticates callers by one kind of bearer token.
type TokenAuthenticator interface {
	Method() string
	// AuthenticateToken returns nil and no error for tokens of another kind. Its errors are *status.Error. The reason is
	// Unauthenticated for an invalid token, and another if the token cannot be verified now.
	AuthenticateToken(ctx context.Context, token string) (*User, error)
}

// Bearer authenticates callers by bearer tokens of several kinds. Unlike a missing token, a token of no kind is an
// error.
type Bearer []TokenAuthenticator

// Method implements Authenticator.
func (b Bearer) Method() string {
	methods := make([]string, len(b))
	for i, t := range b {
		methods[i] = t.Method()
	}
	return "bearer token (" + strings.Join(methods, ", ") + ")"
}

// Authenticate implements Authenticator.
func (b Bearer) Authenticate(r *http.Request) (*User, error) {
	token, err := BearerToken(r)
	if err != nil {
		return nil, status.New(status.Unauthenticated, "", "the bearer token cannot be read: %w", err)
	}
	if token == "" {
		return nil, nil
	}
	for _, t := range b {
		u, err := t.AuthenticateToken(r.Context(), token)
		if u != nil || err != nil {
			return u, err
		}
	}
	return nil, status.New(status.Unauthenticated, "", "the gateway does not accept this bearer token: %s", b.Method())
}

// systemPrefix begins names that Kubernetes reserves, such as the group with all rights. No other system can assign
// them.
const systemPrefix = "system:"

const maxName = 1024

// foreignName returns an error if another system may not assign a name to a user or group.
func foreignName(name string) error {
	switch {
	case name == "" || len(name) > maxName:
		return fmt.Errorf("want 1 to %d bytes", maxName)
	case strings.HasPrefix(name, systemPrefix):
		return fmt.Errorf("names that begin with %s are Kubernetes' own", systemPrefix)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, hidden) || strings.TrimSpace(name) != name:
		return errors.New("it has invalid characters")
	}
	return nil
}

// hidden reports whether a character is invisible. With such characters a log would show a different name.
func hidden(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }

func foreignGroups(groups []string) []string {
	var out []string
	for _, g := range groups {
		if foreignName(g) == nil {
			out = append(out, g)
		}
	}
	return out
}

// refusal returns the error for an invalid credential. err is for the log.
func refusal(err error, format string, args ...any) *status.Error {
	return &status.Error{Reason: status.Unauthenticated, Message: fmt.Sprintf(format, args...), Err: err}
}

// unavailable returns the error for a token that cannot be verified now. With a 401, clients would delete the token.
func unavailable(err error, after time.Duration, format string, args ...any) *status.Error {
	return &status.Error{Reason: status.IssuerUnavailable, Message: fmt.Sprintf(format, args...),
		RetryAfter: after, Err: err}
}
