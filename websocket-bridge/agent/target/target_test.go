package target_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/tunnel"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/target"
)

// TestNothingElse: an agent must not give the gateway access to the rest of its network.
func TestNothingElse(t *testing.T) {
	asked := false
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer srv.Close()
	to := srv.Listener.Addr().String()
	a := &target.APIServer{Cluster: "prod", Address: to, Services: []string{"tenant.svc:443"}}
	for name, tt := range map[string]struct{ method, host, service string }{
		"another method":              {http.MethodGet, "prod:443", ""},
		"another cluster":             {http.MethodConnect, "other:443", ""},
		"another port":                {http.MethodConnect, "prod:22", ""},
		"an address":                  {http.MethodConnect, to, ""},
		"a service that is not there": {http.MethodConnect, "prod:443", to},
		"a service's other port":      {http.MethodConnect, "prod:443", "tenant.svc:22"},
		"another cluster's service":   {http.MethodConnect, "other:443", "tenant.svc:443"},
	} {
		req := httptest.NewRequestWithContext(t.Context(), tt.method, "/", nil)
		req.Host = tt.host
		if tt.service != "" {
			req.Header.Set(tunnel.ServiceHeader, tt.service)
		}
		rec := httptest.NewRecorder()
		a.ServeHTTP(rec, req)
		var st metav1.Status
		if err := json.Unmarshal(rec.Body.Bytes(),
			&st); err != nil || rec.Code != http.StatusForbidden || st.Details == nil || st.Details.Name != "prod" {
			t.Errorf("%s: %d %s", name, rec.Code, rec.Body)
		}
	}
	if asked {
		t.Error("it has connected")
	}
}
