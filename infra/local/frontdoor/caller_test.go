package frontdoor

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/route"
)

func loadCA(t *testing.T) *pki.CA {
	t.Helper()
	ca, err := pki.LoadCA(t.TempDir(), "client-ca")
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func clientCertificate(t *testing.T, ca *pki.CA, user string) *tls.ConnectionState {
	t.Helper()
	chain, _, err := ca.Client(user, nil)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(chain)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
}

// A caller that could choose its key would have a share for each key, and so all processes.
func TestCallerKey(t *testing.T) {
	ca := loadCA(t)
	pool := x509.NewCertPool()
	pool.AddCert(ca.Cert)
	key := CallerKey(pool, limits.PeerSource)
	alice, again := clientCertificate(t, ca, "alice"), clientCertificate(t, ca, "alice")
	foreignCert := clientCertificate(t, loadCA(t), "alice")
	type request struct {
		tls    *tls.ConnectionState
		header http.Header
	}
	bearer := func(values ...string) http.Header { return http.Header{"Authorization": values} }
	for name, tt := range map[string]struct {
		a, b   request
		isSame bool
	}{
		"two certificates of one user":      {request{alice, nil}, request{again, nil}, true},
		"a certificate with a junk token":   {request{alice, nil}, request{alice, bearer("Bearer junk")}, true},
		"a certificate of another CA":       {request{foreignCert, nil}, request{nil, nil}, true},
		"one token in two spellings":        {request{nil, bearer("Bearer a")}, request{nil, bearer("bearer   a ")}, true},
		"no credential":                     {request{nil, nil}, request{nil, bearer("Basic x")}, true},
		"another user":                      {request{alice, nil}, request{clientCertificate(t, ca, "bob"), nil}, false},
		"another token":                     {request{nil, bearer("Bearer a")}, request{nil, bearer("Bearer b")}, false},
		"a token, and none":                 {request{nil, bearer("Bearer a")}, request{nil, nil}, false},
		"a certificate, and none":           {request{alice, nil}, request{nil, nil}, false},
		"several tokens, which are refused": {request{nil, bearer("Bearer a", "Bearer b")}, request{nil, nil}, true},
	} {
		t.Run(name, func(t *testing.T) {
			keys := [2]string{}
			for i, r := range []request{tt.a, tt.b} {
				req := httptest.NewRequest(http.MethodGet, "/", nil)
				req.TLS = r.tls
				if r.header != nil {
					req.Header = r.header
				}
				keys[i] = key(req)
			}
			if keys[0] == "" || (keys[0] == keys[1]) != tt.isSame {
				t.Errorf("keys %q, want the same: %t", keys, tt.isSame)
			}
		})
	}
	hidden := httptest.NewRequest(http.MethodGet, "/", nil)
	if got := CallerKey(pool, limits.NoSource)(hidden); got != "" {
		t.Errorf("a request of an unknown source has the key %q", got)
	}
}

// With the balancer's address as the source of every request, a limit of one source would be one of all callers.
func TestFunctionsGetTheSourceAddress(t *testing.T) {
	for name, tt := range map[string]struct {
		mode      limits.SourceMode
		forwarded []string
		want      string
	}{
		"peer":      {limits.PeerSource, []string{"198.51.100.1"}, "192.0.2.1:1234"},
		"default":   {"", []string{"198.51.100.1"}, "192.0.2.1:1234"},
		"forwarded": {limits.ForwardedSource, []string{"203.0.113.9, 198.51.100.1"}, "198.51.100.1:0"},
		"IPv6":      {limits.ForwardedSource, []string{"2001:db8::1"}, "[2001:db8::1]:0"},
		"unread":    {limits.ForwardedSource, nil, ""},
		"none":      {limits.NoSource, []string{"198.51.100.1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := "not called"
			function := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.RemoteAddr })
			front := &Server{Functions: map[route.Backend]http.Handler{route.ToProxy: function}, Source: tt.mode}
			r := httptest.NewRequest(http.MethodGet, "/clusters/m/api/v1/pods", nil)
			r.Header["X-Forwarded-For"] = tt.forwarded
			front.ServeHTTP(httptest.NewRecorder(), r)
			if got != tt.want {
				t.Errorf("the function got the address %q, want %q", got, tt.want)
			}
		})
	}
}

// A request to the fleet that names one cluster hangs with that cluster, like one to the cluster itself.
func TestClusterOf(t *testing.T) {
	for path, want := range map[string]string{
		"/clusters/m/api/v1/pods":                    "m",
		"/fleet/api/v1/namespaces/x/pods/p@m":        "m",
		"/fleet/@/api/v1/namespaces/x/pods/p@m":      "m",
		"/fleet/api/v1/namespaces/x@m/pods":          "m",
		"/fleet/api/v1/namespaces/x/pods/a%40b@m":    "m",
		"/fleet/api/v1/namespaces/x/pods/p":          "",
		"/fleet/api/v1/pods":                         "",
		"/apis/clusterpass.io/v1alpha1/clusters/m@x": "",
		"/clusters/m/../n":                           "",
	} {
		if got := clusterOf(&http.Request{Method: http.MethodGet, RequestURI: path}); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
