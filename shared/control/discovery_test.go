package control_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/clusterpass/clusterpass/shared/clustertest"
)

// If the control-plane cluster fails, users must still reach the gateway's own kinds, and get a warning.
func TestBadControlPlane(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"breaks off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"kind":`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"is no API server": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"fails": func(w http.ResponseWriter, r *http.Request) {
			if r.UserAgent() == "" {
				t.Errorf("the request for %s has no User-Agent", r.URL.Path)
			}
			w.WriteHeader(http.StatusInternalServerError)
		},
		"is down": nil,
	} {
		t.Run(name, func(t *testing.T) {
			m := httptest.NewUnstartedServer(answer)
			m.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
			m.StartTLS()
			defer m.Close()
			h := newInstallation(t)
			h.controlPlane = "behind"
			d := h.gateway()
			object := `{"apiVersion":"cluster.karmada.io/v1alpha1","kind":"Cluster","metadata":{"name":"behind"},` +
				`"spec":{"kubeconfig":` + strconv.Quote(string(clustertest.ServerKubeconfig(m, `{"token":"token"}`))) + `}}`
			if code, answer := d.call(d.master(), "POST", clusters, "application/json", object); code != http.StatusCreated {
				t.Fatal(answer)
			}
			if answer == nil {
				m.Close()
			}
			client, err := rest.HTTPClientFor(d.master())
			if err != nil {
				t.Fatal(err)
			}
			defer client.CloseIdleConnections()
			for path, want := range map[string]string{
				"/apis": `"cluster.karmada.io"`, "/api": `"APIVersions"`, "/apis/rbac.authorization.k8s.io/v1": `"clusterroles"`,
				"/openapi/v2": "cluster.karmada.io", "/openapi/v3": "apis/clusterpass.io/v1alpha1",
			} {
				resp, err := client.Get(d.URL + path)
				if err != nil {
					t.Errorf("%s: %v", path, err)
					continue
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusOK || err != nil || !strings.Contains(string(body), want) {
					t.Errorf("%s: %s, %v: %.300s", path, resp.Status, err, body)
				}
				if got := resp.Header.Get("Warning"); !strings.Contains(got,
					"control-plane cluster behind cannot be discovered") {
					t.Errorf("%s warns %q", path, got)
				}
			}
		})
	}
}

// TestFirstRequestsNeedNoOpenAPI fails if a cold start waited for OpenAPI before it answered a request that does not
// read it.
func TestFirstRequestsNeedNoOpenAPI(t *testing.T) {
	d := newInstallation(t).gateway()
	reads := d.api.CountOpenAPI()
	for _, tt := range []struct {
		path string
		want int
	}{
		{"/apis/clusterpass.io/v1alpha1/passes", 0}, {"/api", 0}, {"/apis", 0}, {"/version", 0},
		{"/apis/cluster.karmada.io/v1alpha1", 0}, {"/readyz", 0}, {"/openapi/v3", 1},
	} {
		if code, body := d.call(d.master(), http.MethodGet, tt.path, "", ""); code != http.StatusOK {
			t.Errorf("%s: %d %s", tt.path, code, body)
		}
		if got := reads(); got != tt.want {
			t.Errorf("after %s, OpenAPI was read %d times, want %d", tt.path, got, tt.want)
		}
	}
}
