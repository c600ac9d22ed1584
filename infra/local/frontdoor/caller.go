package frontdoor

import (
	"crypto/x509"
	"net/http"

	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/limits"
)

// CallerKey returns a function that identifies the caller of a request for [Shares]. The key is the user of a client
// certificate that the CA signed. Without one it is the hash of the unverified bearer token, or else the source
// address.
func CallerKey(clientCA *x509.CertPool, source limits.SourceMode) func(*http.Request) string {
	certificates := identity.X509{CA: identity.NewClientCA(clientCA, nil), Peer: identity.TLSPeer}
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
