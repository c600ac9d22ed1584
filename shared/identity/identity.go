// Package identity authenticates callers. Each [Authenticator] accepts one kind of credential. A [Chain] calls the next
// one if the request has no credential of that kind. An invalid credential, or none at all, is an error: the gateway
// has no anonymous access. Errors contain only text that is safe to send to the client.
package identity

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/shared/status"
)

// Names in Kubernetes for authenticated and unauthenticated callers.
const (
	Authenticated   = "system:authenticated"   // the group of every authenticated user
	Unauthenticated = "system:unauthenticated" // the group of unauthenticated callers
	// Anonymous is the user of unauthenticated callers. Only impersonation leads to it.
	Anonymous = "system:anonymous"
)

// User is an authenticated caller.
type User struct {
	Name   string // never empty
	UID    string
	Groups []string // may omit ImpliedGroup
	Extra  map[string][]string
	Method string // method of authentication: "x509", "front-proxy", "pass", "oidc", "aws-iam"
	// Impersonator is the user that impersonates this one (--as). "" means none.
	Impersonator string
	// ImpersonatorGroups are the groups of Impersonator, with its implied group.
	ImpersonatorGroups []string
	// Expires is the time at which the credential and open streams end. Zero means never.
	Expires time.Time
	Scope   *Scope
	// Recheck returns a *status.Error unless the credential is known to be valid. It is nil if the credential cannot be
	// revoked.
	Recheck func(ctx context.Context) error
}

// ImpliedGroup returns the group that u has in addition to Groups, as in Kubernetes. An anonymous user is in
// Unauthenticated, and all others are in Authenticated. It is "" if Groups contain that group, or Unauthenticated.
func (u *User) ImpliedGroup() string {
	implied := Authenticated
	if u.Name == Anonymous {
		implied = Unauthenticated
	}
	if slices.Contains(u.Groups, implied) || slices.Contains(u.Groups, Unauthenticated) {
		return ""
	}
	return implied
}

// Scope limits a credential to some of its user's rights.
type Scope struct {
	Clusters []string // names, or "*"
	Verbs    []string // get, create, update, patch, delete, or "*"
}

// Extras that the gateway itself sets. Members receive them.
const (
	ExtraARN          = "arn"                       // of AWS IAM: the ARN
	ExtraOriginalUser = OwnDomain + "original-user" // the user that impersonates this one
	ExtraPass         = OwnDomain + "pass"          // the name of the pass that authenticated this user
)

// OwnDomain is the prefix of the keys of extras that clients must not set.
const OwnDomain = "clusterpass.io/"

// ExtraKey decodes the percent-encoded key of an extra, and converts it to lower case. It returns false for keys that
// are empty, malformed, or start with OwnDomain.
func ExtraKey(encoded string) (key string, ok bool) {
	key, err := url.PathUnescape(encoded)
	key = strings.ToLower(key)
	return key, err == nil && key != "" && !strings.HasPrefix(key, OwnDomain)
}

// Names of service accounts and their groups, as in Kubernetes.
const (
	ServiceAccountPrefix = "system:serviceaccount:"
	serviceAccountsGroup = "system:serviceaccounts"
)

// ServiceAccountGroups returns the groups of a service account, or none for other users.
func ServiceAccountGroups(user string) []string {
	rest, ok := strings.CutPrefix(user, ServiceAccountPrefix)
	namespace, name, both := strings.Cut(rest, ":")
	if !ok || !both || namespace == "" || name == "" || strings.Contains(name, ":") {
		return nil
	}
	return []string{serviceAccountsGroup, serviceAccountsGroup + ":" + namespace}
}

// Authenticator authenticates callers by one kind of credential.
type Authenticator interface {
	// Method describes the credential, such as "client certificate".
	Method() string
	// Authenticate returns nil and no error if r has no credential of this kind. Its errors are *status.Error. The reason
	// is Unauthenticated for an invalid credential, and another if the credential cannot be checked now.
	Authenticate(r *http.Request) (*User, error)
}

// Chain tries several Authenticators in their order.
type Chain []Authenticator

// Authenticate returns the caller, or a *status.Error.
func (c Chain) Authenticate(r *http.Request) (*User, error) {
	methods := make([]string, 0, len(c))
	for _, a := range c {
		u, err := a.Authenticate(r)
		if u != nil || err != nil {
			return u, err
		}
		methods = append(methods, a.Method())
	}
	if len(methods) == 0 {
		return nil, status.New(status.Unauthenticated, "", "the gateway has no method of authentication configured")
	}
	return nil, status.New(status.Unauthenticated, "", "the call has no credential; the gateway accepts: %s",
		strings.Join(methods, ", "))
}

// WithoutBearer returns the caller that a credential other than a bearer token authenticates, or nil.
func (c Chain) WithoutBearer(r *http.Request) *User {
	for _, a := range c {
		if _, ok := a.(Bearer); ok {
			continue
		}
		if u, err := a.Authenticate(r); u != nil || err != nil {
			return u
		}
	}
	return nil
}
