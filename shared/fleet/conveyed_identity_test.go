package fleet_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/fleet"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// TestFleetSkipsUnidentifiable fails if clusters are called without the caller's identity, or left out silently.
func TestFleetSkipsUnidentifiable(t *testing.T) {
	pod := func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			respond(201, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"new","namespace":"x"}}`)(w, r)
		case strings.HasSuffix(r.URL.Path, "/one"):
			respond(200, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"one","namespace":"x"}}`)(w, r)
		case strings.HasSuffix(r.URL.Path, "/nowhere"):
			respond(404, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",`+
				`"message":"pods \"nowhere\" not found","reason":"NotFound","details":{"name":"nowhere","kind":"pods"},`+
				`"code":404}`)(w, r)
		default:
			respond(200, podList("10", "x/one"))(w, r)
		}
	}
	h, _ := newFleet(t, gatewaytest.Options{BareWrites: fleet.BareAll}, pod)
	silent := clustertest.NewMember(t,
		func(http.ResponseWriter, *http.Request) {
			t.Error("a cluster is called that cannot identify the caller")
		})
	h.AddCluster("p", silent.Kubeconfig(`{token: t}`), func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Passthrough })
	h.AddCluster("d", silent.Kubeconfig(`{token: t}`),
		func(s *v1alpha1.ClusterSpec) { s.Identity, s.DirectUsers = v1alpha1.Direct, []string{"bob"} })
	const pods = "/fleet/api/v1/namespaces/x/pods"
	for _, tt := range []struct {
		method, path, body string
		code               int
	}{
		{"GET", pods, "", 200}, {"GET", pods + "/one", "", 200}, {"GET", pods + "/nowhere", "", 404},
		{"POST", pods, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"new"}}`, 201},
		{"PATCH", pods + "/one", `{"metadata":{"labels":{"a":"b"}}}`, 200}, {"DELETE", pods + "/one", "", 200},
		{"DELETE", pods, "", 200},
	} {
		header := http.Header{"Content-Type": {"application/json"}}
		if tt.method == "PATCH" {
			header.Set("Content-Type", "application/merge-patch+json")
		}
		resp := h.Do(tt.method, tt.path, header, tt.body)
		got := strings.Join(resp.Header["Warning"], "\n")
		if resp.StatusCode != tt.code || !strings.Contains(got, `cluster \"p\" needs your own bearer token (left out)`) ||
			!strings.Contains(got, `cluster \"d\" is registered with identity direct for other users`) {
			t.Errorf("%s %s: %d, %s", tt.method, tt.path, resp.StatusCode, got)
		}
	}
	gatewaytest.WantStatus(t, h.Do("GET", pods+"/one@p", nil, ""), 502, "members_failed",
		`cluster "p" needs your own bearer token`)
	gatewaytest.WantStatus(t, h.Do("GET", pods+"/nowhere?clusters=a,d", nil, ""), 502, "members_failed",
		`cluster "d" is registered with identity direct`)
	gatewaytest.WantStatus(t, h.Do("GET", pods+"/nowhere?strict=true", nil, ""), 502, "members_failed",
		`cluster "p" needs your own bearer token`)
}
