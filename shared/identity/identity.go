// Package identity says who calls.
//
// Each Authenticator knows one kind of credential. A request without that kind is passed to the next one; a
// credential of that kind that does not hold is an error, and no other is tried. Without any credential the call is
// refused: there is no anonymous user.
//
// Errors go to the client and say only what is safe to say.
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

// Names that Kubernetes gives by whether somebody is identified.
const (
	Authenticated   = "system:authenticated"   // the group of every identified user
	Unauthenticated = "system:unauthenticated" // the group of nobody in particular
	Anonymous       = "system:anonymous"       // the user that is nobody in particular; somebody who may can act as it
)

// User is an identified caller.
type User struct {
	Name   string // never empty
	UID    string
	Groups []string // ImpliedGroup need not be among them
	Extra  map[string][]string
	Method string // how the caller was identified: "x509", "front-proxy", "pass", "oidc", "aws-iam"
	// Impersonator is who asked to be this user (--as); "" for nobody.
	Impersonator string
	// Expires is when the credential ends, and open streams with it; zero for never.
	Expires time.Time
	// Scope limits what the caller may do beside what is granted; nil for no limit.
	Scope *Scope
	// Recheck returns an error, a *status.Error, once the credential was revoked, or if that cannot be known any more; nil where it
	// cannot be revoked.
	Recheck func(ctx context.Context) error
}

// ImpliedGroup is the group that u is in beside Groups, "" for none: as in Kubernetes, whoever is anonymous is in Unauthenticated, and
// everybody else in Authenticated but for those of whom it is said that they are not.
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

// Scope says what a credential is good for, beneath what its user may do.
type Scope struct {
	Clusters []string // names, or "*"
	Verbs    []string // get, create, update, patch, delete, or "*"
}

// The extras that the gateway itself gives users, and members are told of.
const (
	ExtraARN          = "arn"                       // of AWS IAM
	ExtraOriginalUser = OwnDomain + "original-user" // who asked to be this user
	ExtraPass         = OwnDomain + "pass"          // the name of the pass that identified this user
)

// OwnDomain begins keys of extras that nobody else may give.
const OwnDomain = "clusterpass.io/"

// ExtraKey decodes the percent-encoded key of an extra, the end of a header's name. It returns false for keys that are
// empty, malformed, or in the gateway's own domain. Keys are in lower case: an escaped character is lowered, too.
func ExtraKey(encoded string) (key string, ok bool) {
	key, err := url.PathUnescape(encoded)
	key = strings.ToLower(key)
	return key, err == nil && key != "" && !strings.HasPrefix(key, OwnDomain)
}

// The names of service accounts and their groups, as Kubernetes makes them.
const (
	ServiceAccountPrefix = "system:serviceaccount:"
	serviceAccountsGroup = "system:serviceaccounts"
)

// ServiceAccountGroups are the groups that a user has by being a service account; none for other users.
func ServiceAccountGroups(user string) []string {
	rest, ok := strings.CutPrefix(user, ServiceAccountPrefix)
	namespace, name, both := strings.Cut(rest, ":")
	if !ok || !both || namespace == "" || name == "" || strings.Contains(name, ":") {
		return nil
	}
	return []string{serviceAccountsGroup, serviceAccountsGroup + ":" + namespace}
}

// Authenticator identifies callers by one kind of credential.
type Authenticator interface {
	// Method names the credential for people, such as "client certificate".
	Method() string
	// Authenticate returns nil and no error where r holds no credential of this kind. Its errors are *status.Error, of
	// reason Unauthenticated where the credential does not hold.
	Authenticate(r *http.Request) (*User, error)
}

// Chain asks several Authenticators in their order.
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
	return nil, status.New(status.Unauthenticated, "", "the call has no credential; the gateway accepts: %s", strings.Join(methods, ", "))
}

// Beside returns who calls by a credential other than a bearer token, nil for nobody.
func (c Chain) Beside(r *http.Request) *User {
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
