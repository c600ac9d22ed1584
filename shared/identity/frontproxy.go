package identity

import (
	"net/http"
	"slices"
	"strings"

	"github.com/clusterpass/clusterpass/shared/status"
)

// kube-apiserver's aggregator sends the caller's identity in these headers.
const (
	remoteUser  = "X-Remote-User"
	remoteUID   = "X-Remote-Uid"
	remoteGroup = "X-Remote-Group"
	remoteExtra = "X-Remote-Extra-" // the key follows, percent-encoded
)

// FrontProxy authenticates callers by the headers of a front proxy, such as a kube-apiserver's aggregation layer. A
// front proxy with a certificate of CA, and one of Names, can claim any identity, including system:masters. The headers
// of all other clients are ignored, and reach no member.
type FrontProxy struct {
	CA    *ClientCA // of front proxies, which is not the gateway's own
	Names []string  // common names of the certificates of front proxies
	Peer  Peer
}

// Method implements Authenticator.
func (FrontProxy) Method() string { return "front proxy" }

// Authenticate implements Authenticator. It ignores certificates that CA did not sign.
func (a FrontProxy) Authenticate(r *http.Request) (*User, error) {
	chain, err := a.Peer(r)
	if err != nil || len(chain) == 0 {
		return nil, nil //nolint:nilerr // X509 returns the error
	}
	if err := a.CA.Verify(chain); err != nil {
		return nil, nil //nolint:nilerr // not a front proxy
	}
	leaf := chain[0]
	switch {
	case !slices.Contains(a.Names, leaf.Subject.CommonName):
		return nil, status.New(status.Unauthenticated, "", "%q is not the certificate of a front proxy",
			leaf.Subject.CommonName)
	case len(r.Header[remoteUser]) != 1 || r.Header[remoteUser][0] == "":
		return nil, status.New(status.Unauthenticated, "", "the front proxy does not send the user: want one header %s",
			remoteUser)
	case len(r.Header[remoteUID]) > 1:
		return nil, status.New(status.Unauthenticated, "", "the front proxy sends several uids")
	case r.Header[remoteUser][0] == Anonymous || slices.Contains(r.Header[remoteGroup], Unauthenticated):
		return nil, status.New(status.Unauthenticated, "",
			"the front proxy sends an anonymous user; the gateway accepts only authenticated users")
	}
	u := &User{Name: r.Header[remoteUser][0], UID: r.Header.Get(remoteUID), Groups: slices.Clone(r.Header[remoteGroup]),
		Method: "front-proxy", Expires: leaf.NotAfter}
	for name, values := range r.Header {
		encoded, ok := strings.CutPrefix(name, remoteExtra)
		if !ok {
			continue
		}
		key, ok := ExtraKey(encoded)
		if !ok {
			return nil, status.New(status.Unauthenticated, "", "the front proxy's header %s cannot be understood", name)
		}
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[key] = slices.Clone(values)
	}
	return u, nil
}

var _ Authenticator = FrontProxy{}
