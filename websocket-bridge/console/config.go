package console

import (
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/clusterpass/clusterpass/shared/config"
)

// SignIn configures how users of the console sign in. Without an issuer, they use a client certificate or a pass.
type SignIn struct {
	Issuer        Issuer   `envconfig:"CLUSTERPASS_CONSOLE_ISSUER" desc:"URL of the OpenID Connect issuer at which users of the console sign in. CLUSTERPASS_AUTHENTICATION must accept its ID tokens. Default: the console offers client certificates and passes." example:"https://login.example.com"`
	ClientID      string   `envconfig:"CLUSTERPASS_CONSOLE_CLIENT_ID" desc:"Client ID of the console at that issuer: a public client with PKCE. Its redirect URI is the gateway's URL with /console/." example:"clusterpass"`
	Scopes        []string `envconfig:"CLUSTERPASS_CONSOLE_SCOPES" default:"openid,email,profile" desc:"Scopes that the console requests: a comma-separated list." example:"openid,groups,offline_access"`
	IssuerOrigins Origins  `envconfig:"CLUSTERPASS_CONSOLE_ISSUER_ORIGINS" desc:"Origins of the issuer's token endpoint, if it has another origin than the issuer: a comma-separated list." example:"https://sign-in.auth.eu-central-1.amazoncognito.com"`
}

// Issuer is the URL of an issuer.
type Issuer string

// Decode implements envconfig.Decoder.
func (i *Issuer) Decode(v string) error {
	u, err := url.Parse(v)
	if v != "" && (err != nil || u.Scheme != "https" || !isPolicySource(u.Host) || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "") {
		return errors.New("want a URL of https without a query")
	}
	*i = Issuer(v)
	return nil
}

// Origins are origins that the page may reach, such as https://login.example.com.
type Origins []string

// Decode implements envconfig.Decoder.
func (o *Origins) Decode(v string) error {
	*o = nil
	for origin := range strings.SplitSeq(v, ",") {
		if origin = strings.TrimSpace(origin); origin == "" {
			continue
		}
		u, err := url.Parse(origin)
		if err != nil || !isPolicySource(u.Host) || *u != (url.URL{Scheme: "https", Host: u.Host}) {
			return errors.New("want origins such as https://login.example.com, separated by commas")
		}
		*o = append(*o, origin)
	}
	return nil
}

// isPolicySource reports whether a host can be part of a Content-Security-Policy. Other characters could add to it.
func isPolicySource(host string) bool {
	return host != "" && !strings.ContainsFunc(host, func(c rune) bool {
		isAllowed := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(".-:[]", c)
		return !isAllowed
	})
}

// Validate implements config.Validator.
func (s *SignIn) Validate() error {
	switch {
	case s.Issuer != "" && s.ClientID == "":
		return &config.Error{
			Variable: "CLUSTERPASS_CONSOLE_CLIENT_ID", Problem: "CLUSTERPASS_CONSOLE_ISSUER needs it", Example: "clusterpass",
		}
	case s.Issuer != "" && !slices.Contains(s.Scopes, "openid"):
		return &config.Error{
			Variable: "CLUSTERPASS_CONSOLE_SCOPES", Problem: "the scope openid is missing", Example: "openid,email",
		}
	}
	return nil
}

// origins returns the origins besides its own that the page may reach.
func (s *SignIn) origins() []string {
	if s.Issuer == "" {
		return nil
	}
	u, err := url.Parse(string(s.Issuer))
	if err != nil {
		return nil // Decode has parsed it
	}
	return append([]string{u.Scheme + "://" + u.Host}, s.IssuerOrigins...)
}

// pageConfig is config.json.
type pageConfig struct {
	OIDC *oidc `json:"oidc,omitempty"`
}

type oidc struct {
	Issuer   string   `json:"issuer"`
	ClientID string   `json:"clientID"`
	Scopes   []string `json:"scopes"`
}

func (s *SignIn) page() pageConfig {
	if s.Issuer == "" {
		return pageConfig{}
	}
	return pageConfig{OIDC: &oidc{Issuer: string(s.Issuer), ClientID: s.ClientID, Scopes: s.Scopes}}
}
