package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

const consoleOrigin = "https://console.example.com"

func trustConsole(c *gateway.Config) { c.Origins = gateway.Origins{consoleOrigin} }

const crossSiteBinding = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding",
"metadata":{"name":"evil"},
"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},
"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"mallory"}]}`

// TestCrossOriginWritesAreRefused fails if a page can write with its visitor's client certificate, by a fetch without
// preflight.
func TestCrossOriginWritesAreRefused(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{Configure: trustConsole})
	h.AddCluster("m", m.Kubeconfig(`{token: t}`))
	host := strings.TrimPrefix(h.URL, "https://")
	for _, tt := range []struct {
		name, method, origin, site, authorization string
		refused                                   bool
	}{
		{"a cross-site page", "POST", "https://evil.example", "cross-site", "", true},
		{"a cross-site page without Sec-Fetch-Site", "POST", "https://evil.example", "", "", true},
		{"a page without Origin", "POST", "", "cross-site", "", true},
		{"a page of a sibling host", "PUT", "https://evil." + host, "same-site", "", true},
		{"a page of another port", "DELETE", "https://127.0.0.1:1", "same-site", "", true},
		{"a sandboxed page", "PATCH", "null", "cross-site", "", true},
		{"a sandboxed page of the gateway", "POST", "null", "same-origin", "", true},
		{"a page that lets the browser add a password", "POST", "https://evil.example", "cross-site", "Basic YTpi", true},
		{"a page of the gateway", "POST", "https://" + host, "same-origin", "", false},
		{"a trusted page", "POST", consoleOrigin, "cross-site", "", false},
		{"a program", "POST", "", "", "", false},
		{"a user who opens a URL", "GET", "", "none", "", false},
		{"a read of a cross-site page", "GET", "https://evil.example", "cross-site", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			header := http.Header{}
			for k, v := range map[string]string{
				"Origin": tt.origin, "Sec-Fetch-Site": tt.site, "Authorization": tt.authorization,
			} {
				if v != "" {
					header.Set(k, v)
				}
			}
			want := fmt.Sprintf("the write is refused: it comes from a page of %q", tt.origin)
			if tt.origin == "" { // there is no origin to trust
				want = "the write is refused: its header Sec-Fetch-Site names a page of another origin"
			}
			for _, prefix := range []string{"/clusters/m", "/bridge/clusters/m"} {
				resp := h.Do(tt.method, prefix+"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", header, crossSiteBinding)
				if tt.refused {
					gatewaytest.WantStatus(t, resp, http.StatusForbidden, "forbidden", want)
				} else if resp.StatusCode != http.StatusOK {
					t.Errorf("%s: %s", prefix, resp.Status)
				}
			}
			if calls := m.TakeRequests(); tt.refused == (len(calls) > 0) {
				t.Errorf("the member received %d requests", len(calls))
			}
			if tt.refused {
				for _, path := range []string{
					"/fleet/api/v1/namespaces/a/pods", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
				} {
					resp := h.Do(tt.method, path, header, crossSiteBinding)
					gatewaytest.WantStatus(t, resp, http.StatusForbidden, "forbidden", "the write is refused")
				}
			}
		})
	}
}

// With a 401, a page could learn that its visitor has no client certificate.
func TestCrossOriginWritesAreRefusedBeforeIdentity(t *testing.T) {
	h := newGateway(t, gatewaytest.Options{})
	h.LogOut()
	resp := h.Do("POST", "/clusters/m/api/v1/pods", http.Header{"Origin": {"https://evil.example"}}, "{}")
	gatewaytest.WantStatus(t, resp, http.StatusForbidden, "forbidden", "the write is refused")
}

// Dashboards relay the Origin of their users beside a bearer token.
func TestCrossOriginWritesWithBearerTokenPass(t *testing.T) {
	h := newGateway(t, gatewaytest.Options{})
	h.LogOut()
	header := http.Header{
		"Origin": {"https://dashboard.example"}, "Sec-Fetch-Site": {"cross-site"}, "Authorization": {"Bearer wrong"},
	}
	resp := h.Do("POST", "/clusters/m/api/v1/pods", header, "{}")
	gatewaytest.WantStatus(t, resp, http.StatusUnauthorized, "unauthenticated", "")
}

// A page of a hostile member on the gateway's origin could read every cluster with the visitor's certificate.
func TestAnswersOfMembersAreSandboxed(t *testing.T) {
	hostile := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{
			"Report-To", "NEL", "Reporting-Endpoints", "WWW-Authenticate", "Clear-Site-Data", "Strict-Transport-Security",
			"Content-Security-Policy-Report-Only", "Set-Cookie",
		} {
			w.Header().Set(name, "hostile")
		}
		w.Header().Set("Content-Security-Policy", "default-src *")
		w.Header().Add("Content-Security-Policy", "sandbox allow-scripts")
		w.Header().Set("X-Content-Type-Options", "sniff")
		w.Header().Set("Cross-Origin-Resource-Policy", "cross-origin")
		w.Header().Set("Content-Type", "text/html")
		if strings.HasSuffix(r.URL.Path, "/denied") {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = w.Write([]byte("<script>fetch('/clusters')</script>"))
	})
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", hostile.Kubeconfig(`{token: t}`))
	for _, path := range []string{
		"/clusters/m/api/v1/page", "/clusters/m/api/v1/denied", "/bridge/clusters/m/api/v1/page",
		"/clusters/m/api/v1/pods?watch=1",
		"/fleet/api/v1/namespaces/a/pods", "/clusters/unknown/api", "/nothing",
	} {
		t.Run(path, func(t *testing.T) {
			header := h.Do("GET", path, nil, "").Header
			for name, want := range map[string]string{
				"Content-Security-Policy": "sandbox", "X-Content-Type-Options": "nosniff",
				"Cross-Origin-Resource-Policy": "same-origin",
			} {
				if got := header[name]; len(got) != 1 || got[0] != want {
					t.Errorf("%s is %q, want %q alone", name, got, want)
				}
			}
			for name, values := range header {
				if strings.Contains(strings.Join(values, ","), "hostile") {
					t.Errorf("%s of the member reaches the client: %q", name, values)
				}
			}
		})
	}
}

// A malformed origin would never match, and its pages would fail without an explanation.
func TestOriginsMustBeOrigins(t *testing.T) {
	for _, bad := range []string{"null", "*", "console.example.com", "https://console.example.com/path", "https://"} {
		var o gateway.Origins
		if err := o.Decode(bad); err == nil {
			t.Errorf("%q is accepted as %q", bad, o)
		}
	}
	var o gateway.Origins
	err := o.Decode(" https://a.example , ,http://b.example:8080")
	if err != nil || len(o) != 2 || o[1] != "http://b.example:8080" {
		t.Errorf("got %q, %v", o, err)
	}
}
