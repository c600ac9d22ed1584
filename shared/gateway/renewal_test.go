package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

func unauthorized(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnauthorized)
	_, _ = io.WriteString(w,
		`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized",`+
			`"reason":"Unauthorized","code":401}`)
}

// The gateway repeats a request only if the member itself refused it and its body is still in memory.
func TestRenewal(t *testing.T) {
	m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer second-token" {
			unauthorized(w)
		}
	})
	h := newGateway(t, gatewaytest.Options{Freshness: cluster.Freshness{Secret: time.Hour, Object: time.Hour}})
	h.AddCluster("m", m.Kubeconfig(token), func(s *v1alpha1.ClusterSpec) { s.ServiceProxy = []string{"services/n/s"} })
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/version", nil, ""), 502, "credential_refused",
		"refuses the gateway's credential")
	const behind = "/clusters/m/api/v1/namespaces/n/services/s/proxy/login"
	for _, tt := range []struct {
		name, method, path, body string
		chunked                  bool
		times                    int // how often the request reaches the member
	}{
		{"a read", "GET", "/clusters/m/api/v1/pods", "", false, 2},
		{"a write", "POST", "/clusters/m/api/v1/namespaces/n/configmaps", `{"a":1}`, false, 2},
		{"a write without a body", "DELETE", "/clusters/m/api/v1/namespaces/n/configmaps/c", "", false, 2},
		{"a write of unknown length", "POST", "/clusters/m/api/v1/namespaces/n/configmaps", `{"a":1}`, true, 1},
		{
			"a write with a large body", "POST", "/clusters/m/api/v1/namespaces/n/configmaps",
			strings.Repeat("x", 300<<10), false, 1,
		},
		{"a write that the member forwarded", "POST", behind, `{"a":1}`, false, 1},
		{"a read that the member forwarded", "GET", behind, "", false, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h.RotateSecret("m", m.Kubeconfig(`{token: first-token}`))
			h.Clock.Advance(2 * time.Hour)                                                   // expires all cache entries
			if resp := h.Do("GET", "/clusters/m/version", nil, ""); resp.StatusCode != 502 { // first-token is in the cache
				t.Fatalf("%s", resp.Status)
			}
			h.RotateSecret("m", m.Kubeconfig(`{token: second-token}`))
			h.Clock.Advance(10 * time.Second)
			before := len(m.Requests())
			req, err := http.NewRequestWithContext(t.Context(), tt.method, h.URL+tt.path, strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if tt.chunked {
				req.ContentLength = -1
			}
			resp, err := h.HTTPClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			arrived := m.Requests()[before:]
			want := 200
			if tt.times == 1 {
				want = 502
			}
			if resp.StatusCode != want || len(arrived) != tt.times {
				t.Errorf("%s after %d requests, want %d after %d", resp.Status, len(arrived), want, tt.times)
			}
			for _, a := range arrived {
				if a.Body != tt.body {
					t.Errorf("the member received %d bytes, want %d", len(a.Body), len(tt.body))
				}
			}
		})
	}
}

// A proxied service may require a password of its callers.
func TestUnauthorizedBehindAMember(t *testing.T) {
	answers := map[string]string{
		"text": "who are you?", "json": `{"error":"login required"}`, "empty": "",
		"long": `{"kind":"Status","apiVersion":"v1","reason":"Unauthorized","message":"` + strings.Repeat("x", 8<<10) + `"}`,
	}
	m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		if name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]; name == "server" {
			unauthorized(w)
		} else {
			w.Header().Set("Www-Authenticate", `Basic realm="grafana"`)
			if name != "text" {
				w.Header().Set("Content-Type", "application/json")
			}
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, answers[name])
		}
	})
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token), func(s *v1alpha1.ClusterSpec) { s.ServiceProxy = []string{"services/n/s"} })
	const behind = "/clusters/m/api/v1/namespaces/n/services/s/proxy/"
	for name, want := range answers {
		for _, method := range []string{"GET", "POST"} {
			resp := h.Do(method, behind+name, nil, "")
			body, err := io.ReadAll(resp.Body)
			if resp.StatusCode != 401 || string(body) != want || err != nil || resp.Header.Get("Www-Authenticate") != "" {
				t.Errorf("%s %s: %s %.80q, %v", method, name, resp.Status, body, err)
			}
		}
	}
	if n := len(m.Requests()); n != 2*len(answers) {
		t.Errorf("the member received %d requests", n)
	}
	gatewaytest.WantStatus(t, h.Do("GET", behind+"server", nil, ""), 502, "credential_refused",
		"refuses the gateway's credential")
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/api/v1/text", nil, ""), 502, "credential_refused",
		"refuses the gateway's credential")
}
