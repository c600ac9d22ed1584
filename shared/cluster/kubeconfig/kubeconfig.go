// Package kubeconfig parses the kubeconfig in a member cluster's secret. It accepts only fields that a stateless
// function can use safely: inline data, https and one credential. Package eks replaces the exec plugin of EKS.
//
//   - Errors name the field and never its value, because values are credentials.
//   - A kubeconfig never makes the gateway read a file or run a program.
//   - TLS verification is disabled only if the Cluster allows that.
package kubeconfig

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/eks"
)

// MaxSize is the maximum size in bytes of a kubeconfig for Parse.
const MaxSize = 64 << 10

// Config is a validated kubeconfig. It prints as the server's URL, because the proxy's may contain a password.
type Config struct {
	Server *url.URL // https, without user, query or fragment; Path has no trailing slash
	// TLS has the roots, the server name, the verification and the client certificate. Clone it before use.
	TLS        *tls.Config
	ProxyURL   *url.URL // http, https, socks5 or socks5h; nil for none
	Credential Credential
}

// Format implements fmt.Formatter for every verb.
func (c Config) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "kubeconfig of %s", c.Server) }

// MarshalText implements encoding.TextMarshaler, also for log/slog and encoding/json.
func (c Config) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%v", c), nil }

// Credential authenticates to the member, in addition to TLS.Certificates. It prints as [hidden].
type Credential struct {
	Token              string
	Username, Password string
	// Certificate reports whether TLS has a client certificate. Expires is then the end of its validity.
	Certificate bool
	Expires     time.Time
	// EKS, if not nil, specifies a token of AWS.
	EKS *eks.Spec
	// Plugin, if not nil, returns the credential. Parse never sets it.
	Plugin Plugin
}

// Empty reports whether there is no credential.
func (c Credential) Empty() bool {
	return c.Token == "" && c.Username == "" && !c.Certificate && c.EKS == nil && c.Plugin == nil
}

// TokenExpires returns the expiry of a JWT. It returns zero for tokens whose expiry only the member knows.
func (c Credential) TokenExpires() time.Time {
	parts := strings.Split(c.Token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Exp float64 `json:"exp"` // seconds since 1970
	}
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Exp <= 0 || claims.Exp > 1e12 {
		return time.Time{}
	}
	return time.Unix(int64(claims.Exp), 0)
}

// Format implements fmt.Formatter for every verb.
func (Credential) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[hidden]")) }

// MarshalText implements encoding.TextMarshaler, also for log/slog and encoding/json.
func (Credential) MarshalText() ([]byte, error) { return []byte("[hidden]"), nil }

// Options restrict a kubeconfig.
type Options struct {
	Context string // name of the context; "" means current-context, or the only one
	// AllowInsecure permits insecure-skip-tls-verify.
	AllowInsecure bool
}

// FieldError is an invalid field. Its text contains no credential.
type FieldError struct{ Field, Problem string }

func (e *FieldError) Error() string { return "kubeconfig: " + e.Field + ": " + e.Problem }

func fieldError(field, format string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

// Parse reads and validates data. Its errors are *FieldError.
func Parse(data []byte, o Options) (*Config, error) {
	if len(data) > MaxSize {
		return nil, fieldError("(file)",
			"%d bytes are more than the limit of %d; keep one context: kubectl config view --raw --minify --flatten",
			len(data), MaxSize)
	}
	var kc clientcmdv1.Config
	if err := yaml.Unmarshal(data, &kc); err != nil {
		// The parser's error can quote the input.
		return nil, fieldError("(file)", "not the YAML or JSON of a kubeconfig")
	}
	if kc.Kind != "" && kc.Kind != "Config" {
		return nil, fieldError("kind", "%q, want Config", kc.Kind)
	}
	ctx, err := selectContext(&kc, o.Context)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(kc.Clusters, func(c clientcmdv1.NamedCluster) bool { return c.Name == ctx.Cluster })
	if i < 0 {
		return nil, fieldError("contexts.context.cluster", "there is no cluster %q in clusters", ctx.Cluster)
	}
	c := &Config{}
	if err := c.setCluster(&kc.Clusters[i].Cluster, fmt.Sprintf("clusters[%s].cluster.", ctx.Cluster),
		o.AllowInsecure); err != nil {
		return nil, err
	}
	if ctx.AuthInfo == "" {
		return c, nil
	}
	i = slices.IndexFunc(kc.AuthInfos, func(u clientcmdv1.NamedAuthInfo) bool { return u.Name == ctx.AuthInfo })
	if i < 0 {
		return nil, fieldError("contexts.context.user", "there is no user %q in users", ctx.AuthInfo)
	}
	if err := c.setUser(&kc.AuthInfos[i].AuthInfo, fmt.Sprintf("users[%s].user.", ctx.AuthInfo)); err != nil {
		return nil, err
	}
	return c, nil
}

func selectContext(kc *clientcmdv1.Config, name string) (*clientcmdv1.Context, error) {
	field := "contexts"
	if name == "" {
		name, field = kc.CurrentContext, "current-context"
	}
	if name == "" && len(kc.Contexts) == 1 {
		return &kc.Contexts[0].Context, nil
	}
	for i := range kc.Contexts {
		if kc.Contexts[i].Name == name && name != "" {
			return &kc.Contexts[i].Context, nil
		}
	}
	names := make([]string, 0, len(kc.Contexts))
	for _, c := range kc.Contexts {
		names = append(names, c.Name)
	}
	return nil, fieldError(field, "no such context: %q; there are: %s", name, strings.Join(names, ", "))
}

const inlineHint = "a path cannot be read by the gateway; inline it: kubectl config view --raw --minify --flatten"

func (c *Config) setCluster(in *clientcmdv1.Cluster, at string, allowInsecure bool) error {
	u, err := url.Parse(in.Server)
	switch {
	case in.Server == "" || err != nil || u.Host == "":
		return fieldError(at+"server", "want a URL such as https://10.0.0.1:6443")
	case u.Scheme != "https":
		return fieldError(at+"server", "%s would show credentials to the network; want https", u.Scheme)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "":
		return fieldError(at+"server", "want only scheme, host, port and path")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	c.Server = u
	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: in.TLSServerName}
	switch {
	case in.CertificateAuthority != "":
		return fieldError(at+"certificate-authority", inlineHint)
	case in.InsecureSkipTLSVerify && len(in.CertificateAuthorityData) > 0:
		return fieldError(at+"insecure-skip-tls-verify", "contradicts certificate-authority-data; keep one of them")
	case in.InsecureSkipTLSVerify && !allowInsecure:
		return fieldError(at+"insecure-skip-tls-verify",
			"not allowed for this cluster; give certificate-authority-data, or allow it by clusterpass cluster add "+
				"--insecure-skip-tls-verify, which sets spec.insecureSkipTLSVerification")
	case in.InsecureSkipTLSVerify:
		c.TLS.InsecureSkipVerify = true // the administrator allowed it for this cluster
	case len(in.CertificateAuthorityData) == 0:
		return fieldError(at+"certificate-authority-data",
			"missing; put the CA that signed the server's certificate there, for a public CA too")
	default:
		c.TLS.RootCAs = x509.NewCertPool()
		if !c.TLS.RootCAs.AppendCertsFromPEM(in.CertificateAuthorityData) {
			return fieldError(at+"certificate-authority-data", "contains no PEM certificate")
		}
	}
	if in.ProxyURL != "" {
		if c.ProxyURL, err = ParseProxyURL(in.ProxyURL); err != nil {
			return fieldError(at+"proxy-url", "%v", err)
		}
	}
	return nil
}

// ParseProxyURL parses a proxyURL. Its error does not quote the input, which may contain a password.
func ParseProxyURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme) {
		return nil, errors.New("want a URL with scheme http, https, socks5 or socks5h, such as http://proxy:3128")
	}
	return u, nil
}

// checkUser rejects fields that the gateway cannot use, and contradictions. at is the path of the user.
func checkUser(in *clientcmdv1.AuthInfo, at string) error {
	switch {
	case in.ClientCertificate != "":
		return fieldError(at+"client-certificate", inlineHint)
	case in.ClientKey != "":
		return fieldError(at+"client-key", inlineHint)
	case in.TokenFile != "":
		return fieldError(at+"tokenFile", inlineHint)
	case in.AuthProvider != nil:
		return fieldError(at+"auth-provider",
			"%q is not supported; use a token, a client certificate or basic authentication", in.AuthProvider.Name)
	case in.Exec != nil && (in.Token != "" || in.Username != "" || len(in.ClientCertificateData) > 0):
		return fieldError(at+"exec", "contradicts the other credential of the same user; keep one of them")
	case in.Impersonate != "" || in.ImpersonateUID != "" || len(in.ImpersonateGroups) > 0 ||
		len(in.ImpersonateUserExtra) > 0:
		return fieldError(at+"as",
			"impersonation in a stored kubeconfig is not supported; the gateway impersonates the caller")
	case in.Token != "" && in.Username != "":
		return fieldError(at+"token", "contradicts username; keep one of them")
	case (in.Username == "") != (in.Password == ""):
		return fieldError(at+"username", "username and password go together")
	case (len(in.ClientCertificateData) == 0) != (len(in.ClientKeyData) == 0):
		return fieldError(at+"client-certificate-data", "client-certificate-data and client-key-data go together")
	case !validHeaderValue(in.Token):
		return fieldError(at+"token", "contains characters that are not valid in a header")
	}
	return nil
}

func (c *Config) setUser(in *clientcmdv1.AuthInfo, at string) error {
	if err := checkUser(in, at); err != nil {
		return err
	}
	c.Credential = Credential{Token: in.Token, Username: in.Username, Password: in.Password}
	if in.Exec != nil {
		env := map[string]string{}
		for _, e := range in.Exec.Env {
			env[e.Name] = e.Value
		}
		var err error
		if c.Credential.EKS, err = eks.ParseExec(in.Exec.Command, in.Exec.Args, env); err != nil {
			return fieldError(at+"exec", "%v; or use a token, a client certificate or basic authentication", err)
		}
	}
	if len(in.ClientCertificateData) > 0 {
		pair, err := tls.X509KeyPair(in.ClientCertificateData, in.ClientKeyData)
		if err != nil {
			return fieldError(at+"client-certificate-data", "certificate and key are not a PEM pair")
		}
		c.TLS.Certificates = []tls.Certificate{pair}
		c.Credential.Certificate = true
		c.Credential.Expires = pair.Leaf.NotAfter
	}
	return nil
}

func validHeaderValue(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}
