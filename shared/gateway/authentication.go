package gateway

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

// Authentication says which credentials the gateway accepts beside client certificates of its own CA, as a YAML document:
//
//	oidc:
//	- url: https://login.example.com
//	  audiences: [clusterpass]
//	  usernameClaim: email
//	  groupsClaim: groups
//	awsIAM:
//	  gatewayID: clusterpass
//	  regions: [eu-west-1]
//	  rules:
//	  - {arn: "arn:aws:iam::111122223333:role/Developer", username: "dev:{{SessionName}}", groups: [dev]}
//	frontProxy:
//	  ca: |
//	    -----BEGIN CERTIFICATE-----
//	  names: [front-proxy-client]
type Authentication struct {
	text       string
	bearer     identity.Bearer
	oidc       *identity.OIDC       // nil for none
	frontProxy *identity.FrontProxy // without Peer; nil for none
	frontCA    []byte               // its Roots, PEM
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

// Decode implements envconfig.Decoder: v is the document, the path of a file that holds it, or nothing. Unknown fields are refused, since a
// misspelt one would be a condition that is not checked.
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

// String is the document, for another program's environment. It holds no secret.
func (a *Authentication) String() string { return a.text }

func (a *Authentication) set(doc authenticationDocument) error {
	if len(doc.OIDC) > 0 {
		issuers := make([]identity.Issuer, len(doc.OIDC))
		for i, o := range doc.OIDC {
			issuers[i] = identity.Issuer{
				URL: o.URL, Audiences: o.Audiences, UsernameClaim: o.UsernameClaim, UsernamePrefix: o.UsernamePrefix,
				GroupsClaim: o.GroupsClaim, GroupsPrefix: o.GroupsPrefix, RequiredClaims: o.RequiredClaims, Skew: o.ClockSkew.Duration,
			}
			if o.CA != "" {
				var err error
				if issuers[i].CA, err = pool(o.CA); err != nil {
					return fmt.Errorf("oidc[%d].ca: %w", i, err)
				}
			}
		}
		oidc, err := identity.NewOIDC(issuers, time.Now)
		if err != nil {
			return err
		}
		a.bearer = append(a.bearer, oidc)
		a.oidc = oidc
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
			return errors.New("frontProxy.names: want the common names of the certificates that may say who calls, such as front-proxy-client")
		}
		a.frontCA = []byte(doc.FrontProxy.CA)
		a.frontProxy = &identity.FrontProxy{Roots: roots, Names: doc.FrontProxy.Names}
	}
	return nil
}

func pool(bundle string) (*x509.CertPool, error) {
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM([]byte(bundle)) {
		return nil, errors.New("holds no PEM certificate")
	}
	return p, nil
}

// chain is every configured method, in the order in which they are asked. A front proxy's certificate is none of the gateway's CA, and would
// be refused as one.
func (e *Env) chain(peer identity.Peer, p *passes.Verifier) (identity.Chain, error) {
	var c identity.Chain
	if fp := e.Authentication.frontProxy; fp != nil {
		if vouchesFor(e.Authentication.frontCA, e.ClientCA.PEM()) {
			return nil, &config.Error{Variable: "CLUSTERPASS_AUTHENTICATION", Problem: "frontProxy.ca has the CA of client certificates, or one above it; whoever has one named as a front proxy could be anybody"}
		}
		c = append(c, identity.FrontProxy{Roots: fp.Roots, Names: fp.Names, Peer: peer})
	}
	c = append(c, identity.X509{Roots: e.ClientCA.Pool(), Peer: peer, Inspect: p.Certificate})
	var bearer identity.Bearer
	if e.URL != "" {
		bearer = append(bearer, p)
	}
	if bearer = append(bearer, e.Authentication.bearer...); len(bearer) > 0 {
		c = append(c, bearer)
	}
	return c, nil
}

// vouchesFor reports whether a certificate of one CA could be taken for one of another: bundles of PEM, of which one has a key of the
// other's, or has signed one.
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

// parseCertificates reads what x509.CertPool.AppendCertsFromPEM takes, and passes over what it passes over.
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
