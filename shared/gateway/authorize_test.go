package gateway_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// as makes the next calls as another user.
func TestGrants(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	h.AddCluster("other", m.Kubeconfig(token))
	h.Grant("readers", `{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"resourceNames":["m"],"verbs":["get"]}`)
	h.LogIn("bob", "readers")
	tests := []struct {
		name, method, path string
		header             http.Header
		want               int
	}{
		{"reads", "GET", "/clusters/m/api/v1/pods", nil, 200},
		{"watches", "GET", "/clusters/m/api/v1/pods?watch=1", nil, 200},
		{"does not create", "POST", "/clusters/m/api/v1/pods", nil, 403},
		{"does not delete", "DELETE", "/m/api/v1/pods/p", nil, 403},
		{"does not exec by GET", "GET", "/clusters/m/api/v1/namespaces/a/pods/p/exec", http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, 403},
		{"does not reach another cluster", "GET", "/clusters/other/api/v1/pods", nil, 403},
		{"does not learn that a cluster is missing", "GET", "/clusters/nosuch/api/v1/pods", nil, 403},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp := h.Do(tt.method, tt.path, tt.header, "")
			if tt.want == 403 {
				gatewaytest.WantStatus(t, resp, 403, "forbidden", `User "bob" cannot `)
			} else if resp.StatusCode != tt.want {
				t.Errorf("%s", resp.Status)
			}
		})
	}
	if n := len(m.Requests()); n != 2 {
		t.Errorf("%d calls arrived", n)
	}
}

func TestImpersonation(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	h.AddCluster("direct", m.Kubeconfig(token), func(s *v1alpha1.ClusterSpec) { s.Identity, s.DirectUsers = v1alpha1.Direct, []string{"*"} })
	h.Grant("actors", `{"apiGroups":[""],"resources":["users"],"resourceNames":["carol"],"verbs":["impersonate"]},
		{"apiGroups":[""],"resources":["groups"],"resourceNames":["dev"],"verbs":["impersonate"]},
		{"apiGroups":[""],"resources":["serviceaccounts"],"resourceNames":["robot"],"verbs":["impersonate"]},
		{"apiGroups":["authentication.k8s.io"],"resources":["uids"],"resourceNames":["u1"],"verbs":["impersonate"]},
		{"apiGroups":["authentication.k8s.io"],"resources":["userextras/scopes"],"resourceNames":["view"],"verbs":["impersonate"]}`)
	h.Grant("system:serviceaccounts:ci", `{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"verbs":["*"]}`)
	h.LogIn("bob", "actors")
	tests := []struct {
		name   string
		header http.Header
		want   int
		reach  http.Header // the identity at the member
	}{
		{"all that is granted", http.Header{"Impersonate-User": {"carol"}, "Impersonate-Group": {"dev"}, "Impersonate-Uid": {"u1"}, "Impersonate-Extra-Scopes": {"view"}}, 200,
			http.Header{"Impersonate-User": {"carol"}, "Impersonate-Group": {"dev"}, "Impersonate-Uid": {"u1"}, "Impersonate-Extra-scopes": {"view"}, "Impersonate-Extra-clusterpass.io%2Foriginal-User": {"bob"}}},
		{"a service account", http.Header{"Impersonate-User": {"system:serviceaccount:ci:robot"}}, 200,
			http.Header{"Impersonate-User": {"system:serviceaccount:ci:robot"}, "Impersonate-Extra-clusterpass.io%2Foriginal-User": {"bob"}}},
		{"another user", http.Header{"Impersonate-User": {"root"}, "Impersonate-Group": {"dev"}}, 403, nil},
		{"another group", http.Header{"Impersonate-User": {"carol"}, "Impersonate-Group": {"dev", "system:masters"}}, 403, nil},
		{"another uid", http.Header{"Impersonate-User": {"carol"}, "Impersonate-Group": {"dev"}, "Impersonate-Uid": {"u2"}}, 403, nil},
		{"another extra", http.Header{"Impersonate-User": {"carol"}, "Impersonate-Group": {"dev"}, "Impersonate-Extra-Scopes": {"edit"}}, 403, nil},
		{"another service account", http.Header{"Impersonate-User": {"system:serviceaccount:ci:other"}}, 403, nil},
		{"who may not reach the cluster", http.Header{"Impersonate-User": {"carol"}}, 403, nil},
		{"no user", http.Header{"Impersonate-Group": {"dev"}}, 400, nil},
		{"two users", http.Header{"Impersonate-User": {"carol", "root"}}, 400, nil},
		{"an unknown part", http.Header{"Impersonate-User": {"carol"}, "Impersonate-Foo": {"x"}}, 400, nil},
		{"the gateway's own extra", http.Header{"Impersonate-User": {"carol"}, "Impersonate-Extra-Clusterpass.io%2Foriginal-User": {"x"}}, 400, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := len(m.Requests())
			resp := h.Do("GET", "/clusters/m/version", tt.header, "")
			if body, _ := io.ReadAll(resp.Body); resp.StatusCode != tt.want {
				t.Fatalf("%s: %s", resp.Status, body)
			}
			arrived := m.Requests()[before:]
			if tt.want != 200 {
				if len(arrived) > 0 {
					t.Errorf("arrived: %+v", arrived)
				}
				return
			}
			got := http.Header{}
			for k, v := range arrived[0].Header {
				if strings.HasPrefix(k, "Impersonate") {
					got[k] = v
				}
			}
			want := http.Header{}
			for k, v := range tt.reach {
				want[http.CanonicalHeaderKey(k)] = v
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("arrived %v, want %v", got, want)
			}
		})
	}
	t.Run("where it cannot be told", func(t *testing.T) {
		gatewaytest.WantStatus(t, h.Do("GET", "/clusters/direct/version", http.Header{"Impersonate-User": {"carol"}, "Impersonate-Group": {"dev"}}, ""), 403, "forbidden", "--as")
	})
}

// TestImpersonatorSecret holds: the secret that spec.impersonatorSecretRef names is the one that callers are impersonated with.
func TestImpersonatorSecret(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig("{token: not-this-one}"), func(s *v1alpha1.ClusterSpec) {
		s.ImpersonatorSecretRef = &v1alpha1.LocalSecretReference{Name: "clusters/m.impersonator"}
	})
	if _, err := h.Secrets.Create(t.Context(), "clusters/m.impersonator", secrets.NewValue(m.Kubeconfig("{token: impersonator}")), nil); err != nil {
		t.Fatal(err)
	}
	resp := h.Do("GET", "/clusters/m/version", nil, "")
	_ = resp.Body.Close()
	arrived := m.Requests()
	if resp.StatusCode != http.StatusOK || len(arrived) != 1 || arrived[0].Header.Get("Authorization") != "Bearer impersonator" || arrived[0].Header.Get("Impersonate-User") == "" {
		t.Errorf("%s, and the member saw %+v", resp.Status, arrived)
	}
}

func TestPassthrough(t *testing.T) {
	m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer callers-own" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, "members words")
		}
	})
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(`{token: stored}`), func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Passthrough })
	bearer := func(t string) http.Header { return http.Header{"Authorization": {"Bearer " + t}} }
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/version", nil, ""), 403, "forbidden", "your credential for the gateway (x509) is not forwarded")
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/version", bearer("callers-own"), ""), 403, "forbidden", "your credential for the gateway (x509) is not forwarded")
	h.LogIn("eve") // who would learn nothing of the cluster
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/version", bearer("callers-own"), ""), 403, "forbidden", `User "eve" cannot get`)
	h.ClientTLS.Certificates = nil
	h.HTTPClient.Transport.(*http.Transport).CloseIdleConnections()
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/version", nil, ""), 401, "unauthenticated", "no credential")
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/version", bearer("k8s-aws-v1.abc"), ""), 401, "unauthenticated", "no credential")
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/version", bearer("gateways-token"), ""), 401, "unauthenticated", "no credential")
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/version", http.Header{"Authorization": {"Bearer callers-own"}, "Impersonate-User": {"root"}}, ""), 403, "forbidden", "--as")
	if n := len(m.Requests()); n > 0 {
		t.Fatalf("%d calls arrived", n)
	}
	if resp := h.Do("GET", "/m/version", bearer("callers-own"), ""); resp.StatusCode != 200 {
		t.Errorf("%s", resp.Status)
	}
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/api/v1/nodes/n/proxy/metrics", bearer("callers-own"), ""), 403, "forbidden", "spec.serviceProxy")
	resp := h.Do("GET", "/clusters/m/version", bearer("wrong"), "")
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 401 || string(body) != "members words" {
		t.Errorf("the member's own 401: %s %s", resp.Status, body)
	}
	for _, s := range m.Requests() {
		if strings.Contains(s.Header.Get("Authorization"), "stored") || s.Header.Get("Impersonate-User") != "" {
			t.Errorf("arrived %+v", s)
		}
	}
}

// TestPassthroughWithoutStore holds: while it cannot be known whether a cluster takes a token, the answer is none that has a client throw
// it away.
func TestPassthroughWithoutStore(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token), func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Passthrough })
	h.ClientTLS.Certificates = nil
	log := filepath.Join(h.Dir, "objects", "objects.log")
	if err := os.Truncate(log, 1); err != nil {
		t.Fatal(err)
	}
	resp := h.Do("GET", "/clusters/m/version", http.Header{"Authorization": {"Bearer callers-own"}}, "")
	gatewaytest.WantStatus(t, resp, 503, "store_unavailable", `the gateway cannot read its record of cluster "m" now`)
	if resp.Header.Get("Retry-After") == "" {
		t.Error("it does not say when to try again")
	}
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/version", nil, ""), 401, "unauthenticated", "no credential")
}

func TestServiceProxy(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token), func(s *v1alpha1.ClusterSpec) {
		s.ServiceProxy = []string{"services/shop/web", "services/shop/api:8080", "pods/*/p", "nodes/n1"}
	})
	for path, want := range map[string]int{
		"/api/v1/namespaces/shop/services/web/proxy/":               200,
		"/api/v1/namespaces/shop/services/https:web:443/proxy/a/b":  200,
		"/api/v1/namespaces/shop/services/https%3Aweb%3A443/proxy/": 200,
		"/api/v1/namespaces/shop/services/api:8080/proxy/":          200,
		"/api/v1/namespaces/shop/services/api/proxy/":               403,
		"/api/v1/namespaces/shop/services/api:9090/proxy/":          403,
		"/api/v1/namespaces/other/services/web/proxy/":              403,
		"/api/v1/namespaces/other/pods/p:80/proxy/":                 200,
		"/api/v1/namespaces/other/pods/q/proxy/":                    403,
		"/api/v1/nodes/n1/proxy/metrics":                            200,
		"/api/v1/nodes/n2/proxy/metrics":                            403,
		"/api/v1/proxy/namespaces/shop/services/db/":                403,
		// As a kube-apiserver reads them, which unescapes first.
		"/api/v1/namespaces/shop/services/web%2Fproxy/":        200,
		"/api/v1/namespaces/shop/services/db%2Fproxy/":         403,
		"/api/v1/namespaces/shop/services/db%2fproxy%2fweb":    403,
		"/api/v1/namespaces/shop/services/db/%70roxy/":         403,
		"/api/v1/namespaces/shop/%73ervices/db/proxy":          403,
		"/api/v1/watch/namespaces/shop/services/db/proxy/":     403,
		"/api/v1/watch/nodes/n2/proxy/metrics":                 403,
		"//api/v1/namespaces/shop/services/db/proxy/":          400,
		"/api/v1//namespaces/shop/services/db/proxy/":          400,
		"/api/v1//nodes/n2/proxy/run":                          400,
		"/api/v1/%2Fnodes/n2/proxy/run":                        400,
		"/api/v1/namespaces/shop/services/db/proxy//":          403,
		"/api/v1/namespaces/shop/services/db/proxy//web":       403,
		"/api/v1/namespaces/shop/services/db/proxy/?path=web":  403,
		"/api/v1/namespaces/shop/services/web:80:db/proxy/":    403,
		"/api/v1/namespaces/shop/services/a:b:web:80/proxy/":   403,
		"/api/v1/namespaces/shop/services/db/proxy?watch=true": 403,
		"/api/v1/namespaces/shop/services/*/proxy/":            403,
		"/api/v1/namespaces/*/pods/p/proxy/":                   200, // the member knows no such namespace
	} {
		for kind, header := range map[string]http.Header{"plain": nil, "an upgrade": {"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}} {
			before := len(m.Requests())
			resp := h.Do("GET", "/clusters/m"+path, header, "")
			if arrived := len(m.Requests()) > before; resp.StatusCode != want || arrived != (want == 200) {
				t.Errorf("%s, %s: %s, want %d; arrived: %v", path, kind, resp.Status, want, arrived)
			}
		}
	}
}

// TestStreamsEndWithTheirRight holds: an open stream does not outlive anything that it was opened by.
func TestStreamsEndWithTheirRight(t *testing.T) {
	t.Parallel() // it waits more than it computes
	m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/pods" && !r.URL.Query().Has("watch") { // a watch of the fleet begins with a list
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"10"},"items":[]}`)
			return
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	const (
		watch = "/clusters/m/api/v1/pods?watch=1"
		proxy = "/clusters/m/api/v1/namespaces/shop/services/web/proxy/"
	)
	asCarol := http.Header{"Impersonate-User": {"carol"}, "Impersonate-Group": {"dev"}}
	actor := func(h *fixture) {
		h.Grant("actors", `{"apiGroups":[""],"resources":["users","groups"],"resourceNames":["carol","dev"],"verbs":["impersonate"]}`)
		h.LogIn("bob", "actors")
	}
	direct := func(s *v1alpha1.ClusterSpec) { s.Identity, s.DirectUsers = v1alpha1.Direct, []string{"alice"} }
	passthrough := func(s *v1alpha1.ClusterSpec) {
		s.Identity, s.ServiceProxy = v1alpha1.Passthrough, []string{"services/shop/web"}
	}
	nobody := func(h *fixture) { h.ClientTLS.Certificates = nil }
	own := http.Header{"Authorization": {"Bearer callers-own"}}
	spec := func(edit func(*v1alpha1.ClusterSpec)) func(*fixture) {
		return func(h *fixture) { h.EditCluster("m", func(c *v1alpha1.Cluster) { edit(&c.Spec) }) }
	}
	tests := []struct {
		name   string
		spec   func(*v1alpha1.ClusterSpec)
		caller func(h *fixture) // nil for alice
		path   string
		header http.Header
		revoke func(h *fixture)
	}{
		{"the grant", nil, nil, watch, nil, func(h *fixture) { h.Delete("clusterrolebindings/dev") }},
		{"the cluster", nil, nil, watch, nil, func(h *fixture) { h.Delete("clusters/m") }},
		{"the right to act as another", nil, actor, watch, asCarol, func(h *fixture) { h.Delete("clusterrolebindings/actors") }},
		{"the right to act as another, of a fleet's", nil, actor, "/fleet/api/v1/pods?watch=1", asCarol, func(h *fixture) { h.Delete("clusterrolebindings/actors") }},
		{"the right of another", nil, actor, watch, asCarol, func(h *fixture) { h.Delete("clusterrolebindings/dev") }},
		{"a place in spec.serviceProxy", func(s *v1alpha1.ClusterSpec) { s.ServiceProxy = []string{"services/shop/web"} }, nil, proxy, nil,
			spec(func(s *v1alpha1.ClusterSpec) { s.ServiceProxy = []string{"services/shop/db"} })},
		{"a place in spec.serviceProxy, by passthrough", passthrough, nobody, proxy, own, spec(func(s *v1alpha1.ClusterSpec) { s.ServiceProxy = nil })},
		{"a place in spec.directUsers", direct, nil, watch, nil, spec(func(s *v1alpha1.ClusterSpec) { s.DirectUsers = []string{"bob"} })},
		{"passthrough", passthrough, nobody, watch, own, spec(func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Impersonate })},
		{"impersonation", nil, nil, watch, nil, spec(direct)},
		{"what is no passthrough", nil, nil, watch, nil, spec(passthrough)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newGateway(t, gatewaytest.Options{})
			h.AddCluster("m", m.Kubeconfig(token), tt.spec)
			h.AddCluster("n", m.Kubeconfig(token))
			h.AddRegistry("pods", `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"v1","kind":"Pod"}]}`)
			if tt.caller != nil {
				tt.caller(h)
			}
			ended := make(chan error, 1)
			resp := h.Do("GET", tt.path, tt.header, "")
			if resp.StatusCode != http.StatusOK {
				t.Fatal(resp.Status)
			}
			go func() { _, err := io.ReadAll(resp.Body); ended <- err }()
			select {
			case err := <-ended:
				t.Fatalf("it ended by itself: %v", err)
			case <-time.After(200 * time.Millisecond):
			}
			tt.revoke(h)
			select {
			case <-ended:
			case <-time.After(2 * time.Minute):
				t.Error("it goes on")
			}
		})
	}
}
