package forward

import (
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/route"
)

func TestRewriteLocation(t *testing.T) {
	server, err := url.Parse("https://10.0.0.1:6443/base")
	if err != nil {
		t.Fatal(err)
	}
	rt, err := route.Parse("/clusters/m/api/v1/pods")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		in   []string
		want string // "" means refused
	}{
		{[]string{"/base/api/v1/x%2Fy?a=b"}, "/clusters/m/api/v1/x%2Fy?a=b"},
		{[]string{"https://10.0.0.1:6443/base/x"}, "/clusters/m/x"},
		{[]string{"other"}, "/clusters/m/api/v1/other"},
		{[]string{"/base"}, "/clusters/m"},
		{[]string{"?"}, "/clusters/m/api/v1/pods?"},
		{[]string{"https://10.0.0.1:6443@evil.example/base/x"}, ""},
		{[]string{"https://user@10.0.0.1:6443/base/x"}, ""},
		{[]string{"http://10.0.0.1:6443/base/x"}, ""},
		{[]string{"//evil.example/base/x"}, ""},
		{[]string{"/elsewhere"}, ""},
		{[]string{"/based"}, ""},
		{[]string{"/base//evil.example"}, ""},
		{[]string{"/base/%2e%2e/prod/api"}, ""},
		{[]string{"/base/../prod"}, ""},
		{[]string{""}, ""},
		{[]string{"/base/x", "/base/y"}, ""},
		{[]string{"https://%zz"}, ""},
	}
	for _, tt := range tests {
		got, err := rewriteLocation(tt.in, rt, server)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("rewriteLocation(%q) = %q, %v; want %q", tt.in, got, err, tt.want)
		}
	}
}

func TestImpersonate(t *testing.T) {
	const robot, accounts, inCI = "system:serviceaccount:ci:robot", "system:serviceaccounts", "system:serviceaccounts:ci"
	for name, tt := range map[string]struct {
		user identity.User
		want http.Header
	}{
		"all parts": {
			identity.User{
				Name: "ann", UID: "u-1", Groups: []string{"system:authenticated", "dev,ops"},
				Extra: map[string][]string{"Example.com/Scopes": {"a", "b"}, "ü": {"c"}},
			},
			http.Header{
				"Impersonate-User": {"ann"}, "Impersonate-Uid": {"u-1"}, "Impersonate-Group": {"dev,ops"},
				"Impersonate-Extra-example.com%2Fscopes": {"a", "b"}, "Impersonate-Extra-%C3%BC": {"c"},
			},
		},
		"a service account": {
			identity.User{Name: robot, Groups: []string{inCI, accounts, "system:authenticated"}},
			http.Header{"Impersonate-User": {robot}},
		},
		"a service account in another group": {
			identity.User{Name: robot, Groups: []string{accounts, inCI, "x"}},
			http.Header{"Impersonate-User": {robot}, "Impersonate-Group": {accounts, inCI, "x"}},
		},
		"a service account in one of its groups and another": {
			identity.User{Name: robot, Groups: []string{accounts, "x"}},
			http.Header{"Impersonate-User": {robot}, "Impersonate-Group": {accounts, "x"}},
		},
		"a service account in one of its groups": {
			identity.User{Name: robot, Groups: []string{accounts}},
			http.Header{"Impersonate-User": {robot}, "Impersonate-Group": {accounts}},
		},
		"the groups of another's service account": {
			identity.User{Name: "ann", Groups: []string{accounts, inCI}},
			http.Header{"Impersonate-User": {"ann"}, "Impersonate-Group": {accounts, inCI}},
		},
		"the anonymous": {
			identity.User{Name: "system:anonymous", Groups: []string{"system:authenticated"}},
			http.Header{"Impersonate-User": {"system:anonymous"}, "Impersonate-Group": {"system:authenticated"}},
		},
	} {
		h := http.Header{}
		if err := impersonate(h, &tt.user); err != nil || !reflect.DeepEqual(h, tt.want) {
			t.Errorf("%s: %v, %v, want %v", name, h, err, tt.want)
		}
	}
	for _, u := range []identity.User{
		{Name: ""}, {Name: " a"}, {Name: "a\n"}, {Name: "a", Groups: []string{"b\x00"}}, {Name: "a", UID: "b "},
		{Name: "a", Extra: map[string][]string{"k": {""}}},
	} {
		if err := impersonate(http.Header{}, &u); err == nil {
			t.Errorf("%+v was accepted", u)
		}
	}
}

func FuzzRequestHeader(f *testing.F) {
	f.Add("Impersonate-User", "root", "Impersonate-User")
	f.Add("x_remote-USER", "root", "close")
	f.Add("Sec-Websocket-Protocol", "a, base64url.bearer.authorization.k8s.io.c2VjcmV0,b", "Upgrade")
	f.Add("Transfer_Encoding", "chunked", "X-Keep,  Accept")
	f.Fuzz(func(t *testing.T, name, value, connection string) {
		in := http.Header{http.CanonicalHeaderKey(name): {value}, "Connection": {connection}, "Accept": {"*/*"}}
		out := requestHeader(in)
		for k, values := range out {
			lower := strings.ToLower(strings.ReplaceAll(k, "_", "-"))
			for _, p := range []string{
				"impersonate-", "x-remote-", "x-forwarded-", "forwarded", "authorization", "cookie", "x-amzn-", "connection",
				"upgrade", "transfer-encoding", "te", "trailer", "proxy-authorization",
			} {
				if lower == strings.TrimSuffix(p, "-") && !strings.HasSuffix(p, "-") ||
					strings.HasSuffix(p, "-") && strings.HasPrefix(lower, p) {
					t.Fatalf("%q: %q goes on", k, values)
				}
			}
			for _, v := range values {
				if k == "Sec-Websocket-Protocol" && strings.Contains(v, "base64url.bearer.authorization.k8s.io.") {
					t.Fatalf("the bearer goes on: %q", v)
				}
			}
		}
		if in["Connection"][0] != connection {
			t.Fatal("the request's own header was changed")
		}
	})
}
