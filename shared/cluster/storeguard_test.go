package cluster

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/hub"
	"github.com/clusterpass/clusterpass/shared/status"
)

const hubKeys = `{"keys":[{"kty":"RSA","n":"hub","e":"AQAB"}]}`

// received has the requests that a member got.
type received struct {
	mu       sync.Mutex
	requests []*http.Request
}

func (r *received) add(request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, request)
}

func (r *received) all() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// newMemberOf returns a member that publishes keys below /prefix. The stores are in the namespace "store" of a hub.
func newMemberOf(t *testing.T, keys http.HandlerFunc) (*Member, *received) {
	t.Helper()
	hubServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != hub.KeysPath {
			t.Errorf("the hub gets %s", r.URL)
		}
		_, _ = io.WriteString(w, hubKeys)
	}))
	t.Cleanup(hubServer.Close)
	requests := &received{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.add(r)
		if r.URL.Path == "/prefix"+hub.KeysPath {
			keys(w, r)
		}
	}))
	t.Cleanup(server.Close)
	hubURL, err := url.Parse(hubServer.URL)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(server.URL + "/prefix")
	if err != nil {
		t.Fatal(err)
	}
	guard := hub.NewGuard(hub.New(hub.Config{Transport: http.DefaultTransport, Server: hubURL, Namespace: "store"}))
	kc := &kubeconfig.Config{Server: u, TLS: &tls.Config{MinVersion: tls.VersionTLS12}}
	m := NewMember(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "m"}}, kc,
		DialPolicy{AllowLoopback: true, Stores: guard}, nil)
	t.Cleanup(m.Close)
	return m, requests
}

func publish(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// call sends a GET request through transport. If isOpaque is set, it has the form of package forward.
func call(t *testing.T, m *Member, transport http.RoundTripper, path string, isOpaque bool) error {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, m.Server.String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if isOpaque {
		r.URL.Opaque, r.URL.Path, r.URL.RawPath = r.URL.EscapedPath(), "", ""
	}
	r.Header.Set("Authorization", "Bearer member")
	r.Header.Set("Impersonate-User", "ann")
	resp, err := transport.RoundTrip(r)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

// TestStoreGuard: a member that is the hub must not give away the credentials of all clusters, and other members must
// serve every request.
func TestStoreGuard(t *testing.T) {
	const ofStore, other = "/api/v1/namespaces/store/secrets", "/api/v1/namespaces/default/secrets"
	for name, tt := range map[string]struct {
		keys http.HandlerFunc
		want string // in the error of a request to the store
	}{
		"hub":           {publish(hubKeys), "has the gateway's stores"},
		"other cluster": {publish(strings.Replace(hubKeys, "hub", "other", 1)), ""},
		"one key of two is the hub's": {
			publish(strings.Replace(hubKeys, "[", `[{"kty":"RSA","n":"older","e":"AQAB"},`, 1)), "has the gateway's stores",
		},
		"no keys":   {publish(`{"keys":[]}`), "may have the gateway's stores"},
		"no JSON":   {publish("<html>"), "may have the gateway's stores"},
		"forbidden": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, "may have the gateway's stores"},
		"redirect": {
			func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) },
			"may have the gateway's stores",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, requests := newMemberOf(t, tt.keys)
			for _, transport := range []http.RoundTripper{m.REST, m.Streams, m.Merged, m.Upgrade} {
				for _, isOpaque := range []bool{true, false} {
					if err := call(t, m, transport, other, isOpaque); err != nil {
						t.Fatalf("request to another namespace: %v", err)
					}
					err := call(t, m, transport, ofStore, isOpaque)
					var e *status.Error
					switch {
					case tt.want == "" && err != nil:
						t.Errorf("error %v", err)
					case tt.want == "":
					case !errors.As(err, &e) || e.Reason != status.Forbidden || !strings.Contains(e.Message, tt.want):
						t.Errorf("error %v, want %q", err, tt.want)
					}
				}
			}
			checks := 0
			for _, r := range requests.all() {
				if strings.HasSuffix(r.URL.Path, hub.KeysPath) {
					checks++
					if r.Header.Get("Authorization") != "Bearer member" || r.Header.Get("Impersonate-User") != "" {
						t.Errorf("headers of the check are %v", r.Header)
					}
				} else if tt.want != "" && strings.HasSuffix(r.URL.Path, ofStore) {
					t.Errorf("the member got %s", r.URL)
				}
			}
			if wantOne := !strings.HasPrefix(tt.want, "may"); checks == 0 || wantOne && checks != 1 {
				t.Errorf("%d checks of the member", checks)
			}
		})
	}
}

// TestNilStoreGuard: a gateway whose stores are in no cluster sends no checks.
func TestNilStoreGuard(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/secrets", nil)
	var g *storeGuard
	if err := g.check(r, nil); err != nil {
		t.Error(err)
	}
}
