package kubeconfig

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/pki"
)

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

const secret = "sesame-open"

type parseTest struct {
	name, in  string
	opts      Options
	wantField string // the error's; "" for no error
}

func build(cluster, user string) string {
	return fmt.Sprintf(`{kind: Config, current-context: x, contexts: [
{name: x, context: {cluster: c, user: u}}, {name: other, context: {cluster: gone, user: u}}],
clusters: [{name: c, cluster: {%s}}], users: [{name: u, user: {%s}}]}`, cluster, user)
}

const goodUser = "token: " + secret

type pieces struct{ ca, cert, key, otherKey []byte }

func newPieces(t *testing.T) pieces {
	t.Helper()
	ca, err := pki.LoadCA(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Client("admin", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, otherKey, err := ca.Client("other", nil)
	if err != nil {
		t.Fatal(err)
	}
	return pieces{ca.PEM(), cert, key, otherKey}
}

func (p pieces) cluster() string {
	return "server: 'https://10.0.0.1:6443/base/', certificate-authority-data: " + b64(p.ca)
}

func (p pieces) with(more string) string {
	return build(p.cluster()+", "+more, goodUser)
}

func (p pieces) user(fields string) string {
	return build(p.cluster(), fields)
}

func (p pieces) accepted() []parseTest {
	with, user := p.with, p.user
	return []parseTest{
		{"token", user(goodUser), Options{}, ""},
		{"basic", user("username: u, password: " + secret), Options{}, ""},
		{"certificate", user(fmt.Sprintf("client-certificate-data: %s, client-key-data: %s", b64(p.cert), b64(p.key))),
			Options{}, ""},
		{"no credential", user(""), Options{}, ""},
		{"proxy", with("proxy-url: 'socks5://p:1080'"), Options{}, ""},
		{"proxy with a password", with("proxy-url: 'http://u:" + secret + "@p:3128'"), Options{}, ""},
		{"insecure, allowed", build("server: 'https://x', insecure-skip-tls-verify: true", goodUser),
			Options{AllowInsecure: true}, ""},
		{"only context", strings.Replace(strings.Replace(user(goodUser), ", {name: other, context: {cluster: gone, user: u}}",
			"", 1), "current-context: x, ", "", 1), Options{}, ""},
	}
}

func (p pieces) rejected() []parseTest {
	with, user := p.with, p.user
	return []parseTest{
		{"not YAML", "{" + secret, Options{}, "(file)"},
		{"other kind", "kind: Secret", Options{}, "kind"},
		{"too long", strings.Repeat("#", MaxSize+1), Options{}, "(file)"},
		{"no such context", user(goodUser), Options{Context: "z"}, "contexts"},
		{"no current context", strings.Replace(user(goodUser), "current-context: x, ", "", 1), Options{}, "current-context"},
		{"no such cluster", user(goodUser), Options{Context: "other"}, "contexts.context.cluster"},
		{"no such user", strings.Replace(user(goodUser), "users: [{name: u", "users: [{name: v", 1), Options{},
			"contexts.context.user"},
		{"no server", build("certificate-authority-data: "+b64(p.ca), goodUser), Options{}, "clusters[c].cluster.server"},
		{"http", build("server: 'http://x'", goodUser), Options{}, "clusters[c].cluster.server"},
		{"user in server", build("server: 'https://u:"+secret+"@x'", goodUser), Options{}, "clusters[c].cluster.server"},
		{"missing CA", build("server: 'https://x'", goodUser), Options{}, "clusters[c].cluster.certificate-authority-data"},
		{"broken CA", build("server: 'https://x', certificate-authority-data: "+b64([]byte("x")), goodUser), Options{},
			"clusters[c].cluster.certificate-authority-data"},
		{"CA path", build("server: 'https://x', certificate-authority: /ca", goodUser), Options{},
			"clusters[c].cluster.certificate-authority"},
		{"insecure, not allowed", build("server: 'https://x', insecure-skip-tls-verify: true", goodUser), Options{},
			"clusters[c].cluster.insecure-skip-tls-verify"},
		{"insecure and CA", with("insecure-skip-tls-verify: true"), Options{AllowInsecure: true},
			"clusters[c].cluster.insecure-skip-tls-verify"},
		{"proxy scheme", with("proxy-url: 'ftp://u:" + secret + "@p'"), Options{}, "clusters[c].cluster.proxy-url"},
		{"certificate path", user("client-certificate: /c"), Options{}, "users[u].user.client-certificate"},
		{"key path", user("client-key: /c"), Options{}, "users[u].user.client-key"},
		{"token path", user("tokenFile: /c"), Options{}, "users[u].user.tokenFile"},
		{"exec of EKS",
			user("exec: {command: aws, args: [--region, eu-west-1, eks, get-token, --cluster-name, demo], " +
				"env: [{name: AWS_STS_REGIONAL_ENDPOINTS, value: regional}]}"), Options{}, ""},
		{"exec", user("exec: {command: steal, apiVersion: client.authentication.k8s.io/v1}"), Options{},
			"users[u].user.exec"},
		{"exec of EKS with a profile",
			user("exec: {command: aws, args: [eks, get-token, --cluster-name, demo], env: [{name: AWS_PROFILE, value: " +
				secret + "}]}"), Options{}, "users[u].user.exec"},
		{"exec and token", user("exec: {command: aws, args: [eks, get-token, --cluster-name, demo]}, token: " + secret),
			Options{}, "users[u].user.exec"},
		{"auth provider", user("auth-provider: {name: gcp}"), Options{}, "users[u].user.auth-provider"},
		{"impersonation", user("token: " + secret + ", as: root"), Options{}, "users[u].user.as"},
		{"two credentials", user("token: " + secret + ", username: u, password: p"), Options{}, "users[u].user.token"},
		{"half of basic", user("username: u"), Options{}, "users[u].user.username"},
		{"half of a pair", user("client-key-data: " + b64(p.key)), Options{}, "users[u].user.client-certificate-data"},
		{"mismatched pair",
			user(fmt.Sprintf("client-certificate-data: %s, client-key-data: %s", b64(p.cert), b64(p.otherKey))),
			Options{}, "users[u].user.client-certificate-data"},
		{"token with newline", user(`token: "` + secret + `\n"`), Options{}, "users[u].user.token"},
	}
}

func TestParse(t *testing.T) {
	p := newPieces(t)
	for _, tt := range slices.Concat(p.accepted(), p.rejected()) {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse([]byte(tt.in), tt.opts)
			var fe *FieldError
			switch {
			case tt.wantField == "" && err != nil:
				t.Fatal(err)
			case tt.wantField != "" && (!errors.As(err, &fe) || fe.Field != tt.wantField):
				t.Fatalf("error %v, want one of field %s", err, tt.wantField)
			case err != nil && strings.Contains(err.Error(), secret):
				t.Errorf("the error shows the secret: %v", err)
			case err == nil && strings.Contains(formatted(t, c, *c, c.Credential, &c.Credential, struct{ C *Config }{c},
				struct{ C Credential }{c.Credential}), secret):
				t.Errorf("printing shows the secret")
			case c != nil && c.Credential.Empty() != (tt.name == "no credential"):
				t.Errorf("Empty() is %v", c.Credential.Empty())
			case c != nil && (c.Credential.EKS != nil) != (tt.name == "exec of EKS"):
				t.Errorf("EKS %v", c.Credential.EKS)
			case tt.name == "token" && c.Server.String() != "https://10.0.0.1:6443/base":
				t.Errorf("server %s", c.Server)
			}
		})
	}
}

func formatted(t *testing.T, values ...any) string {
	t.Helper()
	var out strings.Builder
	for _, v := range values {
		_, _ = fmt.Fprintf(&out, "%v %+v %#v %s\n", v, v, v, v)
		for _, h := range []slog.Handler{slog.NewJSONHandler(&out, nil), slog.NewTextHandler(&out, nil)} {
			slog.New(h).Info("printed", "value", v)
		}
	}
	return out.String()
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{contexts: [{name: x, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "https://x"}}], users: [{name: u, user: {token: t}}]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		c, err := Parse(in, Options{})
		if err == nil && (c.Server.Scheme != "https" || c.TLS.InsecureSkipVerify) {
			t.Fatalf("accepted %q", in)
		}
	})
}
