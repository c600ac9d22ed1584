package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/hub"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/version"
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

// guardedCluster are a member and a hub. The stores are in the namespace "store" of the hub.
type guardedCluster struct {
	hub           http.HandlerFunc // publishes hubKeys if it is nil
	keys          http.HandlerFunc // answers the check of the member
	prefix        string           // the path in the member's server URL
	isPassthrough bool
}

func (c guardedCluster) member(t *testing.T) (*Member, *received) {
	t.Helper()
	hubServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != hub.KeysPath {
			t.Errorf("the hub gets %s", r.URL)
		}
		if c.hub != nil {
			c.hub(w, r)
			return
		}
		_, _ = io.WriteString(w, hubKeys)
	}))
	t.Cleanup(hubServer.Close)
	requests := &received{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.add(r)
		if r.URL.Path == c.prefix+hub.KeysPath {
			c.keys(w, r)
		}
	}))
	t.Cleanup(server.Close)
	hubURL, err := url.Parse(hubServer.URL)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(server.URL + c.prefix)
	if err != nil {
		t.Fatal(err)
	}
	guard := hub.NewGuard(hub.New(hub.Config{Transport: http.DefaultTransport, Server: hubURL, Namespace: "store"}))
	kc := &kubeconfig.Config{Server: u, TLS: &tls.Config{MinVersion: tls.VersionTLS12}}
	o := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	if c.isPassthrough {
		o.Spec.Identity = v1alpha1.Passthrough
	}
	m := NewMember(o, kc, DialPolicy{AllowLoopback: true, Stores: guard}, nil)
	t.Cleanup(m.Close)
	return m, requests
}

func publish(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func refuse(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "the member's own")
	}
}

// call sends a GET request through transport. If isOpaque is set, it has the form of package forward.
func call(t *testing.T, m *Member, transport http.RoundTripper, path string, isOpaque bool) (*http.Response, error) {
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
		t.Cleanup(func() { _ = resp.Body.Close() })
	}
	return resp, err
}

const pathOfStore, pathOfOther = "/api/v1/namespaces/store/secrets", "/api/v1/namespaces/default/secrets"

// TestStoreGuard: a member that is the hub must not give away the credentials of all clusters, and other members must
// serve every request.
func TestStoreGuard(t *testing.T) {
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
		"forbidden": {refuse(http.StatusForbidden), "may have the gateway's stores"},
		"redirect": {
			func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) },
			"may have the gateway's stores",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, requests := guardedCluster{keys: tt.keys, prefix: "/prefix"}.member(t)
			for _, transport := range []http.RoundTripper{m.REST, m.Streams, m.Merged, m.Upgrade} {
				for _, isOpaque := range []bool{true, false} {
					if _, err := call(t, m, transport, pathOfOther, isOpaque); err != nil {
						t.Fatalf("request to another namespace: %v", err)
					}
					_, err := call(t, m, transport, pathOfStore, isOpaque)
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
					wantCheck(t, r)
				} else if tt.want != "" && strings.HasSuffix(r.URL.Path, pathOfStore) {
					t.Errorf("the member got %s", r.URL)
				}
			}
			if wantOne := !strings.HasPrefix(tt.want, "may"); checks == 0 || wantOne && checks != 1 {
				t.Errorf("%d checks of the member", checks)
			}
		})
	}
}

func wantCheck(t *testing.T, r *http.Request) {
	t.Helper()
	if r.Header.Get("Authorization") != "Bearer member" || r.Header.Get("Impersonate-User") != "" ||
		r.UserAgent() != version.UserAgent() {
		t.Errorf("headers of the check are %v", r.Header)
	}
}

// TestFailedCheckIsExplained: a caller must learn what has failed, and whether to try again. The gateway must renew a
// credential that has expired, as after any other request.
func TestFailedCheckIsExplained(t *testing.T) {
	unreachable := func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }
	for name, tt := range map[string]struct {
		guardedCluster

		code int // the status code, if the caller gets the member's own response
		want status.Reason
		text string
	}{
		"credential refused": {guardedCluster: guardedCluster{keys: refuse(401)}, code: 401},
		"overloaded":         {guardedCluster: guardedCluster{keys: refuse(429)}, code: 429},
		"failed":             {guardedCluster: guardedCluster{keys: refuse(503)}, code: 503},
		"forbidden": {
			guardedCluster: guardedCluster{keys: refuse(403)}, want: status.Forbidden, text: "let its account read that path",
		},
		"forbidden to a caller": {
			guardedCluster: guardedCluster{keys: refuse(403), isPassthrough: true}, want: status.Forbidden,
			text: "your own token may not read /openid/v1/jwks",
		},
		"missing": {
			guardedCluster: guardedCluster{keys: refuse(404)}, want: status.Forbidden,
			text: `name a namespace other than "store", or call the cluster directly`,
		},
		"is the hub": {
			guardedCluster: guardedCluster{keys: publish(hubKeys)}, want: status.Forbidden,
			text: `name a namespace other than "store", or call the cluster directly`,
		},
		"broke off": {guardedCluster: guardedCluster{keys: unreachable}, want: status.Unreachable, text: "broke"},
		"the hub fails": {
			guardedCluster: guardedCluster{keys: publish(hubKeys), hub: refuse(403)}, want: status.StoreUnavailable,
			text: "the gateway cannot read /openid/v1/jwks of the cluster of its stores now; try again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, requests := tt.member(t)
			resp, err := call(t, m, m.REST, pathOfStore, true)
			if tt.code != 0 {
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				if err != nil || resp.StatusCode != tt.code || string(body) != "the member's own" ||
					resp.Header.Get("Retry-After") != "7" || resp.Request.Header.Get("Authorization") != "Bearer member" {
					t.Errorf("%d %v %q, %v", resp.StatusCode, resp.Header, body, err)
				}
			} else if err == nil {
				t.Fatal("no error")
			} else if e := CallFailure("m", m.Server.Host, err); e.Reason != tt.want || !strings.Contains(e.Message, tt.text) {
				t.Errorf("%s: %v, want %s: %q", e.Reason, e, tt.want, tt.text)
			}
			for _, r := range requests.all() {
				if r.URL.Path != hub.KeysPath {
					t.Errorf("the member got %s", r.URL)
				}
			}
		})
	}
	t.Run("circuit open", func(t *testing.T) {
		m, _ := guardedCluster{keys: publish(hubKeys)}.member(t)
		guarded, ok := m.REST.(*guardedTransport)
		if !ok {
			t.Fatalf("REST is a %T", m.REST)
		}
		open := status.New(status.CircuitOpen, "m", "the circuit is open")
		resp, err := guarded.stores.check(httptest.NewRequest(http.MethodGet, pathOfStore, nil),
			func(*http.Request) (*http.Response, error) { return nil, open })
		if resp != nil || !errors.Is(err, open) {
			t.Errorf("%v, %v", resp, err)
		}
	})
}

// TestStoreGuardReadsWholePaths: a cluster may be registered at an address whose path leads into the stores.
func TestStoreGuardReadsWholePaths(t *testing.T) {
	for prefix, path := range map[string]string{
		"": pathOfStore, "/k8s/clusters/c-1": pathOfStore, "/api/v1/namespaces/store": "/secrets",
		"/api/v1/namespaces": "/store/secrets/a",
	} {
		m, requests := guardedCluster{keys: publish(hubKeys), prefix: prefix}.member(t)
		for _, isOpaque := range []bool{true, false} {
			if _, err := call(t, m, m.REST, path, isOpaque); err == nil {
				t.Errorf("prefix %q: no error", prefix)
			}
		}
		for _, r := range requests.all() {
			if strings.HasSuffix(r.URL.Path, path) {
				t.Errorf("prefix %q: the member got %s", prefix, r.URL)
			}
		}
	}
}

// TestChecksAreShared: a fleet's first list of Secrets must not send one check for each caller. A caller with a bad
// token must not fail the others, and neither must one that leaves.
func TestChecksAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hubURL, err := url.Parse("https://hub")
		if err != nil {
			t.Fatal(err)
		}
		published := func(text string) *http.Response {
			w := httptest.NewRecorder()
			_, _ = io.WriteString(w, text)
			return w.Result()
		}
		guard := hub.NewGuard(hub.New(hub.Config{Server: hubURL, Namespace: "store", Transport: transportFunc(
			func(*http.Request) (*http.Response, error) { return published(hubKeys), nil })}))
		g := &storeGuard{guard: guard, cluster: "m", server: hubURL}
		var checks atomic.Int64
		send := func(r *http.Request) (*http.Response, error) {
			checks.Add(1)
			if r.Header.Get("Authorization") == "Bearer bad" {
				return &http.Response{StatusCode: http.StatusUnauthorized, Body: http.NoBody, Header: http.Header{}}, nil
			}
			time.Sleep(time.Second)
			return published(strings.Replace(hubKeys, "hub", "other", 1)), nil
		}
		var callers sync.WaitGroup
		check := func(ctx context.Context, token string) (*http.Response, error) {
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, pathOfStore, nil)
			r.Header.Set("Authorization", "Bearer "+token)
			return g.check(r, send)
		}
		ctx, leave := context.WithCancel(t.Context())
		callers.Go(func() {
			if _, err := check(ctx, "good"); !errors.Is(err, context.Canceled) {
				t.Errorf("of a caller that left: %v", err)
			}
		})
		synctest.Wait()
		leave()
		for range 20 {
			callers.Go(func() {
				if resp, err := check(t.Context(), "good"); resp != nil || err != nil {
					t.Errorf("%v, %v", resp, err)
				}
			})
		}
		if resp, err := check(t.Context(), "bad"); err != nil || resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("bad token: %v, %v", resp, err)
		} else {
			_ = resp.Body.Close()
		}
		callers.Wait()
		if n := checks.Load(); n != 2 {
			t.Errorf("%d checks", n)
		}
	})
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestNilStoreGuard: a gateway whose stores are in no cluster sends no checks.
func TestNilStoreGuard(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/secrets", nil)
	var g *storeGuard
	if resp, err := g.check(r, nil); resp != nil || err != nil {
		t.Error(resp, err)
	}
}
