package fleet_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// TestFleetVersionWarns fails if a client learns nothing of a cluster that cannot report its version. It also fails if
// the page of a broken proxy passes as a version.
func TestFleetVersionWarns(t *testing.T) {
	good := respond(200, `{"major":"1"}`)
	for name, tt := range map[string]struct {
		first, second http.HandlerFunc
		warning       string
		code          int
		reason        string
	}{
		"a refusal": {
			good, refuse(403, "Forbidden", "not for you"), `cluster \"b\": not for you (left out)`, 403, "members_refused",
		},
		"a page": {
			respond(200, "<html>"), good, `cluster \"a\" sends a version that is not a JSON object (left out)`, 502,
			"members_failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newFleet(t, gatewaytest.Options{}, tt.first, tt.second)
			text, resp := h.DoText("GET", "/fleet/version", nil, "")
			if got := resp.Header.Get("Warning"); resp.StatusCode != 200 || text != `{"major":"1"}` ||
				got != `299 clusterpass "`+tt.warning+`"` {
				t.Errorf("%s %s, warning %s", resp.Status, text, got)
			}
			gatewaytest.WantStatus(t, h.Do("GET", "/fleet/version?strict=true", nil, ""), tt.code, tt.reason, "cluster ")
		})
	}
}

// TestFleetWithoutClusters fails if kubectl and dashboards cannot start on a new gateway, or if strangers learn of it.
func TestFleetWithoutClusters(t *testing.T) {
	h := newGateway(t, gatewaytest.Options{})
	const warning = `299 clusterpass "the gateway has no clusters yet; register one with: clusterpass cluster add"`
	for _, prefix := range []string{"/fleet", "/fleet/@"} {
		for path, want := range map[string]string{
			"/api": `"APIVersions"`, "/apis": `"authorization.k8s.io"`, "/apis/authentication.k8s.io/v1": `"selfsubjectreviews"`,
			"/apis?strict=true": `"authorization.k8s.io"`,
		} {
			text, resp := h.DoText("GET", prefix+path, nil, "")
			if got := resp.Header.Get("Warning"); resp.StatusCode != 200 || !strings.Contains(text, want) || got != warning {
				t.Errorf("%s%s: %s %s, warning %s", prefix, path, resp.Status, text, got)
			}
		}
		gatewaytest.WantStatus(t, h.Do("GET", prefix+"/api/v1/pods", nil, ""), 404, "unknown_cluster", "no clusters yet")
		gatewaytest.WantStatus(t, h.Do("GET", prefix+"/api?clusters=a", nil, ""), 404, "unknown_cluster", `no cluster "a"`)
	}
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		if text, resp := h.DoText("GET", "/fleet"+path, nil, ""); text != "ok" {
			t.Errorf("%s: %s %s", path, resp.Status, text)
		}
	}
	h.LogIn("bob", "strangers")
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/api", nil, ""), 403, "forbidden", "no cluster of the fleet")
}

// TestFleetLargeDiscovery fails if a member whose compressed discovery is too large breaks discovery of the others.
func TestFleetLargeDiscovery(t *testing.T) {
	const list = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[`
	core := func(resource string) string {
		return list + `{"metadata":{},"versions":[{"version":"v1","resources":[{"resource":"` + resource +
			`","responseKind":{"kind":"Pod"},"scope":"Namespaced","verbs":["get"]}]}]}]`
	}
	discovers := func(resource string, padding int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer func() { _ = z.Close() }()
			switch r.URL.Path {
			case "/api":
				_, _ = io.WriteString(z, core(resource)+strings.Repeat(" ", padding)+"}")
			case "/apis":
				_, _ = io.WriteString(z, list+"]}")
			}
		}
	}
	h, _ := newFleet(t, gatewaytest.Options{}, discovers("pods", 0), discovers("others", 4<<20), discovers("more", 3<<20))
	h.AddRegistry("all", `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"v1","kind":"*"}]}`)
	got, resp := h.DoText("GET", "/fleet/api/v1", nil, "")
	warnings := strings.Join(resp.Header["Warning"], "\n")
	if resp.StatusCode != 200 || !strings.Contains(got, `"pods"`) || strings.Contains(got, `"others"`) ||
		!strings.Contains(got, `"more"`) {
		t.Errorf("%s: %s", resp.Status, got)
	}
	if !strings.Contains(warnings, `cluster \"b\": it is over 4 MiB`) || strings.Contains(warnings, `\"c\"`) {
		t.Errorf("warnings %s", warnings)
	}
}
