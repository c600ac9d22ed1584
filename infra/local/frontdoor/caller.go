package frontdoor

import (
	"crypto/x509"
	"net/http"

	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/limits"
)

// CallerKey returns a function that identifies the caller of a request, for Shares. Clients choose no other part of a
// request than its credential by which they could be another caller.
//
// The key is the user of a client certificate that the CA signed, or else the hash of the bearer token, or else the
// source address. It is "" if there is none of them. Tokens are not verified.
func CallerKey(clientCA *x509.CertPool, source limits.SourceMode) func(*http.Request) string {
	certificates := identity.X509{Roots: clientCA, Peer: identity.TLSPeer}
	return func(r *http.Request) string {
		if user, _ := certificates.Authenticate(r); user != nil {
			return identity.CallerKey(user.Name, "")
		}
		if token, err := identity.BearerToken(r); err == nil && token != "" {
			return identity.CallerKey("", token)
		}
		return source.Source(r).String()
	}
}
