package assembly

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/passes"
)

// Authentication is the configuration of the credentials that the gateway accepts beside client certificates of its own
// CA. Its form is the YAML document that docs/reference/access.md describes.
type Authentication struct {
	text       string
	bearer     identity.Bearer
	oidc       *identity.OIDC       // nil for none
	frontProxy *identity.FrontProxy // without Peer; nil for none
	frontCA    []byte               // the CA of frontProxy, PEM
}

type authenticationDocument struct {
	OIDC []struct {
		URL            string            `json:"url"`
		Audiences      []string          `json:"audiences"`
		CA             string            `json:"ca"` // PEM
		UsernameClaim  string            `json:"usernameClaim"`
		UsernamePrefix string            `json:"usernamePrefix"`
		GroupsClaim    string            `json:"groupsClaim"`
		GroupsPrefix   string            `json:"groupsPrefix"`
		RequiredClaims map[string]string `json:"requiredClaims"`
		ClockSkew      metav1.Duration   `json:"clockSkew"`
	} `json:"oidc"`
	AWSIAM *struct {
		GatewayID        string   `json:"gatewayID"`
		Regions          []string `json:"regions"`
		UnknownPerMinute int      `json:"unknownPerMinute"`
		identity.ARNMapping
	} `json:"awsIAM"`
	FrontProxy *struct {
		CA    string   `json:"ca"` // PEM
		Names []string `json:"names"`
	} `json:"frontProxy"`
}

// Decode implements envconfig.Decoder. The value is the document, the path of a file with the document, or empty.
// Unknown fields are errors, since a misspelled field would be a condition that is not checked.
func (a *Authentication) Decode(v string) error {
	if v == "" {
		return nil
	}
	data := []byte(v)
	if !strings.ContainsAny(v, ":\n{") {
		var err error
		if data, err = os.ReadFile(v); err != nil {
			return fmt.Errorf("cannot be read: %w", errors.Unwrap(err))
		}
	}
	var doc authenticationDocument
	if err := yaml.UnmarshalStrict(data, &doc); err != nil {
		return err
	}
	a.text = string(data)
	return a.set(doc)
}

// String returns the document, for the environment of another program. It contains no secret.
func (a *Authentication) String() string { return a.text }

func (a *Authentication) set(doc authenticationDocument) error {
	if len(doc.OIDC) > 0 {
		issuers, err := doc.issuers()
		if err != nil {
			return err
		}
		if a.oidc, err = identity.NewOIDC(issuers, time.Now); err != nil {
			return err
		}
		a.bearer = append(a.bearer, a.oidc)
	}
	if doc.AWSIAM != nil {
		eks, err := identity.NewEKS(identity.EKSConfig{
			GatewayID: doc.AWSIAM.GatewayID, Mapping: &doc.AWSIAM.ARNMapping,
			Regions: doc.AWSIAM.Regions, UnknownPerMinute: doc.AWSIAM.UnknownPerMinute,
		})
		if err != nil {
			return err
		}
		a.bearer = append(a.bearer, eks)
	}
	if doc.FrontProxy != nil {
		roots, err := pool(doc.FrontProxy.CA)
		if err != nil {
			return fmt.Errorf("frontProxy.ca: %w", err)
		}
		if len(doc.FrontProxy.Names) == 0 || slices.Contains(doc.FrontProxy.Names, "") {
			return errors.New("frontProxy.names: want the common names of front proxies' certificates, such as " +
				"front-proxy-client")
		}
		a.frontCA = []byte(doc.FrontProxy.CA)
		a.frontProxy = &identity.FrontProxy{CA: identity.NewClientCA(roots, nil), Names: doc.FrontProxy.Names}
	}
	return nil
}

func (doc *authenticationDocument) issuers() ([]identity.Issuer, error) {
	issuers := make([]identity.Issuer, len(doc.OIDC))
	for i, o := range doc.OIDC {
		issuers[i] = identity.Issuer{
			URL: o.URL, Audiences: o.Audiences, UsernameClaim: o.UsernameClaim, UsernamePrefix: o.UsernamePrefix,
			GroupsClaim: o.GroupsClaim, GroupsPrefix: o.GroupsPrefix, RequiredClaims: o.RequiredClaims,
			Skew: o.ClockSkew.Duration,
		}
		if o.CA != "" {
			var err error
			if issuers[i].CA, err = pool(o.CA); err != nil {
				return nil, fmt.Errorf("oidc[%d].ca: %w", i, err)
			}
		}
	}
	return issuers, nil
}

func pool(bundle string) (*x509.CertPool, error) {
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM([]byte(bundle)) {
		return nil, errors.New("contains no PEM certificate")
	}
	return p, nil
}

// chain returns the authenticators in the order in which they run. X509 would refuse the certificate of a front proxy,
// which another CA signed, so the front proxy is first.
func (e *Env) chain(peer identity.Peer, p *passes.Verifier) (identity.Chain, error) {
	var c identity.Chain
	if fp := e.Authentication.frontProxy; fp != nil {
		if vouchesFor(e.Authentication.frontCA, e.ClientCA.PEM()) {
			const problem = "frontProxy.ca contains the CA of client certificates, or one above it; a client certificate " +
				"with the name of a front proxy could impersonate any user"
			return nil, &config.Error{Variable: "CLUSTERPASS_AUTHENTICATION", Problem: problem}
		}
		c = append(c, identity.FrontProxy{CA: fp.CA, Names: fp.Names, Peer: peer})
	}
	c = append(c, identity.X509{CA: identity.NewClientCA(e.ClientCA.Pool(), nil), Peer: peer, Inspect: p.CheckCertificate})
	var bearer identity.Bearer
	if e.URL != "" {
		bearer = append(bearer, p)
	}
	if bearer = append(bearer, e.Authentication.bearer...); len(bearer) > 0 {
		c = append(c, bearer)
	}
	return c, nil
}

// vouchesFor reports whether certificates of a CA would be valid for roots. Both are PEM bundles. That is so if they
// share a key, or if a root signed a certificate of the CA.
func vouchesFor(roots, ca []byte) bool {
	for _, root := range parseCertificates(roots) {
		for _, c := range parseCertificates(ca) {
			if bytes.Equal(root.RawSubjectPublicKeyInfo, c.RawSubjectPublicKeyInfo) || c.CheckSignatureFrom(root) == nil {
				return true
			}
		}
	}
	return false
}

// parseCertificates skips invalid certificates, like x509.CertPool.AppendCertsFromPEM.
func parseCertificates(bundle []byte) []*x509.Certificate {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return out
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, c)
		}
	}
}
