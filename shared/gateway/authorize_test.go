package gateway_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

func TestCallsNeedGrants(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	h.AddCluster("other", m.Kubeconfig(token))
	h.Grant("readers",
		`{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"resourceNames":["m"],"verbs":["get"]}`)
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
		{
			"does not exec by GET", "GET", "/clusters/m/api/v1/namespaces/a/pods/p/exec",
			http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, 403,
		},
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
		t.Errorf("the member received %d requests", n)
	}
}

// impersonations are requests of bob, who may impersonate carol, the group dev and the service account robot.
var impersonations = []struct {
	name   string
	header http.Header
	want   int
	member http.Header // the identity that the member receives
}{
	{
		"all that is granted",
		http.Header{
			"Impersonate-User": {"carol"}, "Impersonate-Group": {"dev"}, "Impersonate-Uid": {"u1"},
			"Impersonate-Extra-Scopes": {"view"},
		},
		200,
		http.Header{
			"Impersonate-User": {"carol"}, "Impersonate-Group": {"dev"}, "Impersonate-Uid": {"u1"},
			"Impersonate-Extra-scopes": {"view"}, "Impersonate-Extra-clusterpass.io%2Foriginal-User": {"bob"},
		},
	},
	{
		"a service account", http.Header{"Impersonate-User": {"system:serviceaccount:ci:robot"}}, 200,
		http.Header{
			"Impersonate-User": {"system:serviceaccount:ci:robot"},
			"Impersonate-Extra-clusterpass.io%2Foriginal-User": {"bob"},
		},
	},
	{"another user", http.Header{"Impersonate-User": {"root"}, "Impersonate-Group": {"dev"}}, 403, nil},
	{
		"another group",
		http.Header{"Impersonate-User": {"carol"}, "Impersonate-Group": {"dev", "system:masters"}}, 403, nil,
	},
	{
		"another uid", http.Header{"Impersonate-User": {"carol"}, "Impersonate-Group": {"dev"}, "Impersonate-Uid": {"u2"}},
		403, nil,
	},
	{
		"another extra",
		http.Header{"Impersonate-User": {"carol"}, "Impersonate-Group": {"dev"}, "Impersonate-Extra-Scopes": {"edit"}},
		403, nil,
	},
	{"another service account", http.Header{"Impersonate-User": {"system:serviceaccount:ci:other"}}, 403, nil},
	{"a user who may not reach the cluster", http.Header{"Impersonate-User": {"carol"}}, 403, nil},
	{"no user", http.Header{"Impersonate-Group": {"dev"}}, 400, nil},
	{"two users", http.Header{"Impersonate-User": {"carol", "root"}}, 400, nil},
	{"an unknown part", http.Header{"Impersonate-User": {"carol"}, "Impersonate-Foo": {"x"}}, 400, nil},
	{
		"the gateway's own extra",
		http.Header{"Impersonate-User": {"carol"}, "Impersonate-Extra-Clusterpass.io%2Foriginal-User": {"x"}}, 400, nil,
	},
}

func TestImpersonation(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	h.AddCluster("direct", m.Kubeconfig(token),
		func(s *v1alpha1.ClusterSpec) { s.Identity, s.DirectUsers = v1alpha1.Direct, []string{"*"} })
	h.Grant("actors", `{"apiGroups":[""],"resources":["users"],"resourceNames":["carol"],"verbs":["impersonate"]},
		{"apiGroups":[""],"resources":["groups"],"resourceNames":["dev"],"verbs":["impersonate"]},
		{"apiGroups":[""],"resources":["serviceaccounts"],"resourceNames":["robot"],"verbs":["impersonate"]},
		{"apiGroups":["authentication.k8s.io"],"resources":["uids"],"resourceNames":["u1"],"verbs":["impersonate"]},
		{"apiGroups":["authentication.k8s.io"],"resources":["userextras/scopes"],"resourceNames":["view"],
			"verbs":["impersonate"]}`)
	h.Grant("system:serviceaccounts:ci",
		`{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"verbs":["*"]}`)
	h.LogIn("bob", "actors")
	for _, tt := range impersonations {
		t.Run(tt.name, func(t *testing.T) {
			before := len(m.Requests())
			resp := h.Do("GET", "/clusters/m/version", tt.header, "")
			if body, _ := io.ReadAll(resp.Body); resp.StatusCode != tt.want {
				t.Fatalf("%s: %s", resp.Status, body)
			}
			arrived := m.Requests()[before:]
			if tt.want != 200 {
				if len(arrived) > 0 {
					t.Errorf("the member received %+v", arrived)
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
			for k, v := range tt.member {
				want[http.CanonicalHeaderKey(k)] = v
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("the member received %v, want %v", got, want)
			}
		})
	}
	t.Run("a cluster without impersonation", func(t *testing.T) {
		header := http.Header{"Impersonate-User": {"carol"}, "Impersonate-Group": {"dev"}}
		gatewaytest.WantStatus(t, h.Do("GET", "/clusters/direct/version", header, ""), 403, "forbidden", "--as")
	})
}

// userAPI serves every path, and keeps the callers.
type userAPI struct{ users []*identity.User }

func (*userAPI) ServePublic(http.ResponseWriter, *http.Request, string) bool { return false }

func (a *userAPI) Serve(w http.ResponseWriter, _ *http.Request, c *gateway.APICall) (string, error) {
	a.users = append(a.users, c.User)
	w.WriteHeader(http.StatusNoContent)
	return "", nil
}

// TestImpersonatorKeepsItsGroups: otherwise a RecordingPolicy for a group would not cover its members' sessions as
// another user.
func TestImpersonatorKeepsItsGroups(t *testing.T) {
	api := &userAPI{}
	h := newGateway(t, gatewaytest.Options{Configure: func(c *gateway.Config) { c.API = api }})
	h.Grant("actors", `{"apiGroups":[""],"resources":["users"],"resourceNames":["carol"],"verbs":["impersonate"]}`)
	h.LogIn("bob", "actors")
	for _, header := range []http.Header{nil, {"Impersonate-User": {"carol"}}} {
		if resp := h.Do("GET", "/apis/clusterpass.io/v1alpha1/passes", header, ""); resp.StatusCode != http.StatusNoContent {
			t.Fatal(resp.Status)
		}
	}
	if got := api.users[0]; got.Impersonator != "" || got.ImpersonatorGroups != nil {
		t.Errorf("without --as: %+v", got)
	}
	want := []string{"actors", identity.Authenticated}
	if got := api.users[1]; got.Impersonator != "bob" || !slices.Equal(got.ImpersonatorGroups, want) || got.Groups != nil {
		t.Errorf("with --as: %+v, want the groups %q of bob", got, want)
	}
}

// TestImpersonatorSecret fails if the gateway uses another credential than the one of spec.impersonatorSecretRef.
func TestImpersonatorSecret(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig("{token: not-this-one}"), func(s *v1alpha1.ClusterSpec) {
		s.ImpersonatorSecretRef = &v1alpha1.LocalSecretReference{Name: "clusters/m.impersonator"}
	})
	if _, err := h.Secrets.Create(t.Context(), "clusters/m.impersonator",
		secrets.NewValue(m.Kubeconfig("{token: impersonator}")), nil); err != nil {
		t.Fatal(err)
	}
	resp := h.Do("GET", "/clusters/m/version", nil, "")
	_ = resp.Body.Close()
	arrived := m.Requests()
	if resp.StatusCode != http.StatusOK || len(arrived) != 1 ||
		arrived[0].Header.Get("Authorization") != "Bearer impersonator" || arrived[0].Header.Get("Impersonate-User") == "" {
		t.Errorf("%s, and the member received %+v", resp.Status, arrived)
	}
}

// TestPassthrough fails if the cluster receives the gateway's credential, or a token that the gateway accepts.
func TestPassthrough(t *testing.T) {
	m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer callers-own" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, "an error of the member")
		}
	})
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(`{token: stored}`), func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Passthrough })
	bearer := func(t string) http.Header { return http.Header{"Authorization": {"Bearer " + t}} }
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/version", nil, ""), 403, "forbidden",
		"your credential for the gateway (x509) is not forwarded")
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/version", bearer("callers-own"), ""), 403, "forbidden",
		"your credential for the gateway (x509) is not forwarded")
	h.LogIn("eve") // she has no rights, so her answer must not describe the cluster
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/version", bearer("callers-own"), ""), 403, "forbidden",
		`User "eve" cannot get`)
	h.ClientTLS.Certificates = nil
	h.HTTPClient.Transport.(*http.Transport).CloseIdleConnections()
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/version", nil, ""), 401, "unauthenticated", "no credential")
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/version", bearer("k8s-aws-v1.abc"), ""), 401, "unauthenticated",
		"no credential")
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/version", bearer("gateways-token"), ""), 401, "unauthenticated",
		"no credential")
	asRoot := http.Header{"Authorization": {"Bearer callers-own"}, "Impersonate-User": {"root"}}
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/version", asRoot, ""), 403, "forbidden", "--as")
	if n := len(m.Requests()); n > 0 {
		t.Fatalf("the member received %d requests", n)
	}
	if resp := h.Do("GET", "/m/version", bearer("callers-own"), ""); resp.StatusCode != 200 {
		t.Errorf("%s", resp.Status)
	}
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/api/v1/nodes/n/proxy/metrics", bearer("callers-own"), ""), 403,
		"forbidden", "spec.serviceProxy")
	resp := h.Do("GET", "/clusters/m/version", bearer("wrong"), "")
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 401 || string(body) != "an error of the member" {
		t.Errorf("the member's own 401: %s %s", resp.Status, body)
	}
	for _, s := range m.Requests() {
		if strings.Contains(s.Header.Get("Authorization"), "stored") || s.Header.Get("Impersonate-User") != "" {
			t.Errorf("the member received %+v", s)
		}
	}
}

// After a 401, a client would discard a token that the cluster accepts.
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
		t.Error("the answer has no Retry-After")
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
		// kube-apiserver unescapes a path before it splits it.
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
		"/api/v1/namespaces/*/pods/p/proxy/":                   200, // the member has no such namespace
	} {
		for kind, header := range map[string]http.Header{
			"plain": nil, "an upgrade": {"Connection": {"Upgrade"}, "Upgrade": {"websocket"}},
		} {
			before := len(m.Requests())
			resp := h.Do("GET", "/clusters/m"+path, header, "")
			if arrived := len(m.Requests()) > before; resp.StatusCode != want || arrived != (want == 200) {
				t.Errorf("%s, %s: %s, want %d; the member received it: %v", path, kind, resp.Status, want, arrived)
			}
		}
	}
}

func TestStreamsEndWithTheirRight(t *testing.T) {
	t.Parallel() // the test waits more than it computes
	m := clustertest.NewMember(t, endlessStream)
	const (
		watch = "/clusters/m/api/v1/pods?watch=1"
		proxy = "/clusters/m/api/v1/namespaces/shop/services/web/proxy/"
	)
	asCarol := http.Header{"Impersonate-User": {"carol"}, "Impersonate-Group": {"dev"}}
	actor := func(h *fixture) {
		h.Grant("actors",
			`{"apiGroups":[""],"resources":["users","groups"],"resourceNames":["carol","dev"],"verbs":["impersonate"]}`)
		h.LogIn("bob", "actors")
	}
	direct := func(s *v1alpha1.ClusterSpec) { s.Identity, s.DirectUsers = v1alpha1.Direct, []string{"alice"} }
	passthrough := func(s *v1alpha1.ClusterSpec) {
		s.Identity, s.ServiceProxy = v1alpha1.Passthrough, []string{"services/shop/web"}
	}
	anonymous := func(h *fixture) { h.ClientTLS.Certificates = nil }
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
		{
			"the right to impersonate", nil, actor, watch, asCarol,
			func(h *fixture) { h.Delete("clusterrolebindings/actors") },
		},
		{
			"the right to impersonate in a fleet", nil, actor, "/fleet/api/v1/pods?watch=1", asCarol,
			func(h *fixture) { h.Delete("clusterrolebindings/actors") },
		},
		{
			"the right of the impersonated user", nil, actor, watch, asCarol,
			func(h *fixture) { h.Delete("clusterrolebindings/dev") },
		},
		{
			"an entry of spec.serviceProxy", func(s *v1alpha1.ClusterSpec) { s.ServiceProxy = []string{"services/shop/web"} },
			nil, proxy, nil,
			spec(func(s *v1alpha1.ClusterSpec) { s.ServiceProxy = []string{"services/shop/db"} }),
		},
		{
			"an entry of spec.serviceProxy, by passthrough", passthrough, anonymous, proxy, own,
			spec(func(s *v1alpha1.ClusterSpec) { s.ServiceProxy = nil }),
		},
		{
			"an entry of spec.directUsers", direct, nil, watch, nil,
			spec(func(s *v1alpha1.ClusterSpec) { s.DirectUsers = []string{"bob"} }),
		},
		{
			"passthrough", passthrough, anonymous, watch, own,
			spec(func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Impersonate }),
		},
		{"impersonation, for direct", nil, nil, watch, nil, spec(direct)},
		{"impersonation, for passthrough", nil, nil, watch, nil, spec(passthrough)},
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
			wantStreamEnd(t, h, tt.path, tt.header, tt.revoke)
		})
	}
}

// endlessStream responds to a list of pods, with which a watch of the fleet begins. Any other response never ends.
func endlessStream(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/api/v1/pods" && !r.URL.Query().Has("watch") {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"10"},"items":[]}`)
		return
	}
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

func wantStreamEnd(t *testing.T, h *fixture, path string, header http.Header, revoke func(*fixture)) {
	t.Helper()
	ended := make(chan error, 1)
	resp := h.Do("GET", path, header, "")
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	go func() { _, err := io.ReadAll(resp.Body); ended <- err }()
	// In this time, gatewaytest's gateway checks the right several times. The stream must continue while the right exists.
	select {
	case err := <-ended:
		t.Fatalf("the stream ended before its right: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	revoke(h)
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		t.Error("the stream goes on without its right")
	}
}
