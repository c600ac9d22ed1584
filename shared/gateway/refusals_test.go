package gateway_test

import (
	"crypto/tls"
	"encoding/pem"
	"net/http"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/pki"
)

// faultyMember redirects, refuses, hangs or aborts, as the path requests.
func faultyMember(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/401":
		w.WriteHeader(http.StatusUnauthorized)
	case "/inside":
		http.Redirect(w, r, "/api/v1/x%2Fy?z=1", http.StatusFound)
	case "/outside":
		http.Redirect(w, r, "https://evil.example/api", http.StatusTemporaryRedirect)
	case "/twice":
		w.Header()["Location"] = []string{"", "https://evil.example/steal"}
		w.WriteHeader(http.StatusFound)
	case "/climb":
		w.Header()["Location"] = []string{"/%2e%2e/prod/api"}
		w.WriteHeader(http.StatusTemporaryRedirect)
	case "/slow":
		<-r.Context().Done()
	case "/broken":
		panic(http.ErrAbortHandler)
	default:
		ok(w, r)
	}
}

var refusals = []struct {
	name, path      string
	header          http.Header
	code            int
	reason, message string
}{
	{"dot segments", "/clusters/m/a/%2e%2e/b", nil, 400, "bad_request", "'.' and '..' segments"},
	{"not a name", "/clusters/M/api", nil, 400, "bad_request", `"M" is not a cluster's name`},
	{
		"impersonation", "/clusters/m/api", http.Header{"Impersonate-User": {"root"}}, 403, "forbidden",
		`users "root" is forbidden: User "alice" cannot impersonate`,
	},
	{
		"impersonation, underscore", "/clusters/m/api", http.Header{"impersonate_group": {"root"}}, 400, "bad_request",
		"cannot be understood",
	},
	{"unknown cluster", "/clusters/nosuch/api", nil, 404, "unknown_cluster", `no cluster "nosuch"`},
	{"unknown path", "/nothing", nil, 404, "unknown_path", "/nothing"},
	{"a user outside spec.directUsers", "/clusters/others/api", nil, 403, "forbidden", "spec.directUsers"},
	{
		"upgrade to h2c", "/clusters/m/api", http.Header{"Connection": {"Upgrade"}, "Upgrade": {"h2c"}}, 400, "bad_request",
		"websocket or SPDY/3.1",
	},
	{"connection refused", "/clusters/gone/api", nil, 502, "unreachable", "connection refused"},
	{"no address", "/clusters/nowhere/api", nil, 502, "unreachable", "nowhere.invalid"},
	{"metadata", "/clusters/metadata/api", nil, 502, "misconfigured", "169.254.169.254"},
	{"untrusted", "/clusters/untrusted/api", nil, 502, "unreachable", "not trusted"},
	{"exec plugin", "/clusters/exec/api", nil, 502, "misconfigured", "users[u].user.exec"},
	{"no secret", "/clusters/no-secret/api", nil, 502, "misconfigured", `"clusters/no-secret"`},
	{"credential refused", "/clusters/m/401", nil, 502, "credential_refused", "register it again"},
	{"redirect to another host", "/clusters/m/outside", nil, 502, "bad_redirect", "another host"},
	{"redirect to two places", "/clusters/m/twice", nil, 502, "bad_redirect", "several places"},
	{"redirect to another member", "/clusters/m/climb", nil, 502, "bad_redirect", "out of its own path"},
	{"broken connection", "/clusters/m/broken", nil, 502, "unreachable", "broke the connection"},
}

func TestRefusals(t *testing.T) {
	m := clustertest.NewMember(t, faultyMember)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.Certificate().Raw})
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	h.AddCluster("gone", clustertest.Kubeconfig("https://127.0.0.1:1", ca, token))
	h.AddCluster("nowhere", clustertest.Kubeconfig("https://nowhere.invalid", ca, token))
	h.AddCluster("metadata", clustertest.Kubeconfig("https://169.254.169.254", ca, token))
	h.AddCluster("exec", m.Kubeconfig(`{exec: {command: steal, apiVersion: client.authentication.k8s.io/v1}}`))
	h.AddCluster("no-secret", nil)
	h.AddCluster("others", m.Kubeconfig(token), func(s *v1alpha1.ClusterSpec) {
		s.Identity, s.DirectUsers = v1alpha1.Direct, []string{"bob"}
	})
	other, err := pki.LoadCA(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	h.AddCluster("untrusted", clustertest.Kubeconfig(m.URL, other.PEM(), token))

	for _, tt := range refusals {
		t.Run(tt.name, func(t *testing.T) {
			gatewaytest.WantStatus(t, h.Do("GET", tt.path, tt.header, ""), tt.code, tt.reason, tt.message)
		})
	}
	t.Run("redirect inside", func(t *testing.T) {
		resp := h.Do("GET", "/apis/cluster.karmada.io/v1alpha1/clusters/m/proxy/inside", nil, "")
		if got := resp.Header.Get("Location"); resp.StatusCode != 302 ||
			got != "/apis/cluster.karmada.io/v1alpha1/clusters/m/proxy/api/v1/x%2Fy?z=1" {
			t.Errorf("%d to %q", resp.StatusCode, got)
		}
	})
	t.Run("an upgrade with a body", func(t *testing.T) {
		resp := h.SendRaw("POST /clusters/m/api HTTP/1.1\nHost: x\nConnection: Upgrade\nUpgrade: websocket\n" +
			"Transfer-Encoding: chunked\n\n")
		gatewaytest.WantStatus(t, resp, 400, "bad_request", "without a body")
	})
	t.Run("a refusal does not wait for the body", func(t *testing.T) {
		gatewaytest.WantStatus(t, h.SendRaw("POST /clusters/nosuch/api HTTP/1.1\nHost: x\nContent-Length: 10\n\n"), 404,
			"unknown_cluster", "nosuch")
	})
	for _, method := range []string{"TRACE", "PROPFIND", "get"} {
		t.Run(method, func(t *testing.T) {
			gatewaytest.WantStatus(t, h.SendRaw(method+" /clusters/m/api HTTP/1.1\nHost: x\n\n"), 400, "bad_request", "method")
		})
	}
	t.Run("no certificate", func(t *testing.T) {
		h.ClientTLS.Certificates = nil
		gatewaytest.WantStatus(t, h.SendRaw("GET /clusters/m/api HTTP/1.1\nHost: x\n\n"), 401, "unauthenticated",
			"client certificate of the gateway's CA")
	})
	t.Run("a stranger's certificate", func(t *testing.T) {
		cert, key, err := other.Client("alice", nil)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		h.ClientTLS.Certificates = []tls.Certificate{pair}
		gatewaytest.WantStatus(t, h.SendRaw("GET /clusters/m/api HTTP/1.1\nHost: x\n\n"), 401, "unauthenticated",
			"not one that the gateway's CA signed")
	})
	t.Run("a name that no header can carry", func(t *testing.T) {
		h.ClientTLS.Certificates = []tls.Certificate{h.ClientCertificate(" system:admin", "dev")}
		gatewaytest.WantStatus(t, h.SendRaw("GET /clusters/m/api HTTP/1.1\nHost: x\n\n"), 403, "forbidden",
			"is not valid in a header")
	})
	for _, s := range m.Requests() {
		if strings.HasPrefix(s.URI, "/api") {
			t.Errorf("the member received a refused request: %+v", s)
		}
	}
}
