package hub

import (
	"strings"
	"testing"
)

// TestGuardConcerns: a caller with rights in the hub could read the credentials of every cluster by a request that the
// guard does not recognize.
func TestGuardConcerns(t *testing.T) {
	g := NewGuard(New(Config{Namespace: "store"}))
	for request, want := range map[string]bool{
		"GET /api/v1/namespaces/store/secrets":                                                              true,
		"GET /api/v1/namespaces/store/secrets/clusters.a":                                                   true,
		"GET /api/v1/namespaces/store/secrets?watch=true":                                                   true,
		"GET /api/v1/watch/namespaces/store/secrets":                                                        true,
		"GET /api/v1/watch/secrets":                                                                         true,
		"GET /api/v1/secrets":                                                                               true,
		"GET /api/v1/secrets?watch=1&fieldSelector=type%3DOpaque":                                           true,
		"HEAD /api/v1/secrets/":                                                                             true,
		"DELETE /api/v1/secrets":                                                                            true,
		"DELETE /api/v1/namespaces/store":                                                                   true,
		"PUT /api/v1/namespaces/store/finalize":                                                             true,
		"GET /api/v1/namespaces/store":                                                                      true,
		"DELETE /api/v1/namespaces":                                                                         true,
		"POST /api/v1/namespaces/store/pods":                                                                true,
		"GET /api/v1/namespaces/store/pods/gateway-0/exec?command=sh":                                       true,
		"POST /api/v1/namespaces/store/serviceaccounts/g/token":                                             true,
		"PATCH /apis/apps/v1/namespaces/store/deployments/gateway":                                          true,
		"GET /apis/store.clusterpass.io/v1/records":                                                         true,
		"GET /apis/store.clusterpass.io/v2/namespaces/other/records/a":                                      true,
		"DELETE /apis/store.clusterpass.io/v1/namespaces/store/records":                                     true,
		"DELETE /apis/apiextensions.k8s.io/v1/customresourcedefinitions/records.store.clusterpass.io":       true,
		"PATCH /apis/apiextensions.k8s.io/v1/customresourcedefinitions/records.store.clusterpass.io/status": true,
		"DELETE /apis/apiextensions.k8s.io/v1/customresourcedefinitions":                                    true,
		"DELETE /apis/apiregistration.k8s.io/v1/apiservices/v1.store.clusterpass.io":                        true,
		"PATCH /apis/apiregistration.k8s.io/v1/apiservices/v2.store.clusterpass.io/status":                  true,
		"DELETE /apis/apiregistration.k8s.io/v1/apiservices":                                                true,
		"GET /api/v1//namespaces/store/secrets":                                                             true,
		"GET /api/v1/namespaces/other/../store/secrets":                                                     true,
		"GET /api/v1/%6eamespaces/store/secrets":                                                            true,
		"GET /api/v1/namespaces%2Fstore/secrets":                                                            true,
		"GET /api/v1/./secrets":                                                                             true,

		"GET /apis/apiregistration.k8s.io/v1/apiservices/v1.store.clusterpass.io": false,
		"PUT /apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io":  false,
		"POST /apis/apiregistration.k8s.io/v1/apiservices":                        false,
		"GET /api":                                                    false,
		"GET /apis/store.clusterpass.io/v1":                           false,
		"GET /readyz":                                                 false,
		"GET /api/v1/pods":                                            false,
		"GET /api/v1/namespaces":                                      false,
		"GET /api/v1/namespaces?watch=true":                           false,
		"POST /api/v1/namespaces":                                     false,
		"GET /api/v1/namespaces/other/secrets":                        false,
		"GET /api/v1/namespaces/store2/secrets":                       false,
		"GET /apis/example.org/v1/secrets":                            false,
		"GET /api/v1/namespaces/other/configmaps/store":               false,
		"GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions": false,
		"GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions/records.store.clusterpass.io": false,
		"DELETE /apis/apiextensions.k8s.io/v1/customresourcedefinitions/records.example.org":       false,
		"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews":                              false,
	} {
		method, target, _ := strings.Cut(request, " ")
		path, query, _ := strings.Cut(target, "?")
		if got := g.Concerns(method, path, query); got != want {
			t.Errorf("%s: concerns the stores %t, want %t", request, got, want)
		}
	}
}

// TestReadKeys: a cluster that publishes no keys must not pass for another one than the hub.
func TestReadKeys(t *testing.T) {
	for text, want := range map[string]int{
		`{"keys":[{"kty":"RSA","kid":"1","n":"a","e":"AQAB"},{"kty":"EC","crv":"P-256","x":"b","y":"c"}]}`: 2,
		`{"keys":[{"kty":"RSA","kid":"1"}]}`: 0,
		`{"keys":[]}`:                        0,
		`{}`:                                 0,
		`<html>`:                             0,
	} {
		keys, err := ReadKeys(strings.NewReader(text))
		if len(keys) != want || (err == nil) != (want > 0) {
			t.Errorf("%s: %v, %v; want %d keys", text, keys, err, want)
		}
	}
}
