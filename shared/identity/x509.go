package identity

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/clusterpass/clusterpass/shared/status"
)

// Peer returns the client's certificates, leaf first, or none. The client has proved that it has the leaf's private
// key.
type Peer func(r *http.Request) ([]*x509.Certificate, error)

// TLSPeer returns the certificates of the request's own TLS connection.
func TLSPeer(r *http.Request) ([]*x509.Certificate, error) {
	if r.TLS == nil {
		return nil, nil
	}
	return r.TLS.PeerCertificates, nil
}

// ALBHeader is the header for the client's chain from an ALB in mTLS passthrough mode. The value is URL-encoded PEM,
// except for "+", "=" and "/". In verify mode X-Amzn-Mtls-Clientcert-Leaf has the leaf in the same form.
// https://docs.aws.amazon.com/elasticloadbalancing/latest/application/mutual-authentication.html
const ALBHeader PeerHeader = "X-Amzn-Mtls-Clientcert"

// PeerHeader is the name of the header in which a balancer forwards the client's certificates. Empty means none. A
// balancer may forward a client's value of a header that it does not set itself. Configure exactly the one that it
// sets, if possible with a secret name.
type PeerHeader string

// Headers with peerPrefix are never forwarded to members.
const peerPrefix = "X-Clusterpass-"

const generatedName = 20

// Decode implements envconfig.Decoder. It accepts only names that are never forwarded to members. It adds
// X-Clusterpass- to 20 or more lower case letters and digits, because AWS generates such secrets.
func (h *PeerHeader) Decode(v string) error {
	other := func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') }
	if len(v) >= generatedName && !strings.ContainsFunc(v, other) {
		v = peerPrefix + v
	}
	name := http.CanonicalHeaderKey(v)
	if v != "" && !strings.HasPrefix(name, "X-Amzn-Mtls-Clientcert") && !strings.HasPrefix(name, peerPrefix) {
		return errors.New("want a name that begins with X-Amzn-Mtls-Clientcert or X-Clusterpass-")
	}
	*h = PeerHeader(name)
	return nil
}

// ALBPeer returns the certificates in header. trusted must report whether the request came from the configured
// balancer, which overwrites a client's value of that header.
func ALBPeer(header PeerHeader, trusted func(*http.Request) bool) Peer {
	return func(r *http.Request) ([]*x509.Certificate, error) {
		if header == "" {
			return nil, nil
		}
		v := r.Header[string(header)]
		if len(v) == 0 || !trusted(r) {
			return nil, nil
		}
		if len(v) > 1 {
			return nil, errors.New("several client certificate headers")
		}
		return parseALBHeader(v[0])
	}
}

// FormatALBHeader returns the value of a PeerHeader for a chain, leaf first.
func FormatALBHeader(chain []*x509.Certificate) string {
	var b strings.Builder
	for _, c := range chain {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // writes to a Builder never fail
	}
	return strings.NewReplacer("%2B", "+", "%3D", "=", "%2F", "/").Replace(url.PathEscape(b.String()))
}

func parseALBHeader(v string) ([]*x509.Certificate, error) {
	text, err := url.PathUnescape(v) // not QueryUnescape: "+" stands for itself
	if err != nil {
		return nil, errors.New("client certificate header is not URL-encoded")
	}
	var chain []*x509.Certificate
	for rest := []byte(text); len(chain) < 10; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("client certificate header: %w", err)
		}
		chain = append(chain, c)
	}
	if len(chain) == 0 {
		return nil, errors.New("client certificate header contains no PEM certificate")
	}
	return chain, nil
}

// X509 authenticates callers by client certificates. As in Kubernetes, the common name is the user, and the
// organisations are the groups.
type X509 struct {
	CA   *ClientCA // the gateway's own
	Peer Peer
	// Inspect rejects revoked certificates, and may change u to the user of a pass. Optional.
	Inspect func(ctx context.Context, leaf *x509.Certificate, u *User) error
}

// Method implements Authenticator.
func (X509) Method() string { return "client certificate of the gateway's CA" }

// Authenticate implements Authenticator.
func (a X509) Authenticate(r *http.Request) (*User, error) {
	chain, err := a.Peer(r)
	if err != nil {
		return nil, &status.Error{Reason: status.Unauthenticated, Message: "the client certificate cannot be read", Err: err}
	}
	if len(chain) == 0 {
		return nil, nil
	}
	leaf := chain[0]
	if err := a.CA.Verify(chain); err != nil {
		msg := "the client certificate is not one that the gateway's CA signed for clients"
		var invalid x509.CertificateInvalidError
		if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
			msg = "the client certificate has expired, or is not valid yet"
		}
		return nil, &status.Error{Reason: status.Unauthenticated, Message: msg, Err: err}
	}
	if leaf.Subject.CommonName == "" {
		return nil, status.New(status.Unauthenticated, "", "the client certificate has no common name, which would be "+
			"the user name")
	}
	u := &User{Name: leaf.Subject.CommonName, Groups: leaf.Subject.Organization, Method: "x509", Expires: leaf.NotAfter}
	if a.Inspect != nil {
		if err := a.Inspect(r.Context(), leaf, u); err != nil {
			return nil, err
		}
	}
	return u, nil
}
