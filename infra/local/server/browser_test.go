package server

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"
)

var crossSite = http.Header{"Origin": {"https://evil.example"}, "Sec-Fetch-Site": {"cross-site"}}

// Another site's page must not create a binding in a member with its visitor's client certificate.
func TestCrossOriginWritesAreRefused(t *testing.T) {
	e := newEdges(t)
	stranger := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	}}
	visitor := e.client
	for name, path := range map[string]string{
		"function proxy":   "/clusters/m/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/size",
		"function fleet":   "/fleet/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		"function control": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		"bridge":           "/bridge/clusters/m/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/size",
	} {
		t.Run(name, func(t *testing.T) {
			for who, client := range map[string]*http.Client{"visitor": visitor, "stranger": stranger} {
				e.client = client
				resp, body := e.do(http.MethodPost, path, crossSite, strings.NewReader("{}"))
				if resp.StatusCode != http.StatusForbidden || !strings.Contains(string(body), "the write is refused") {
					t.Errorf("%s: %s %s, want 403", who, resp.Status, body)
				}
			}
			if n := e.writes.Load(); n != 0 {
				t.Errorf("the member got %d writes", n)
			}
			e.client = stranger
			resp, _ := e.do(http.MethodPost, path, nil, strings.NewReader("{}"))
			if resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("a stranger's program: %s, want 401", resp.Status)
			}
			e.client = visitor
			resp, body := e.do(http.MethodPost, path, nil, strings.NewReader("{}"))
			if resp.StatusCode == http.StatusUnauthorized || strings.Contains(string(body), "the write is refused") {
				t.Errorf("a program of the user: %s %s", resp.Status, body)
			}
			writes := e.writes.Swap(0) // the fleet writes to its only cluster, too
			if isMember := strings.HasSuffix(path, "/size"); isMember && (resp.StatusCode != http.StatusOK || writes != 1) {
				t.Errorf("a program of the user: %s %s", resp.Status, body)
			}
		})
	}
}

// The events of API Gateway have other headers than those of a load balancer. A page must not get through there either.
func TestCrossOriginWritesAreRefusedBehindAPIGateway(t *testing.T) {
	e := newEdges(t)
	api := e.behindAPI()
	const path = "/clusters/m/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/size"
	byPass := e.client
	e.client = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	resp, body := e.do(http.MethodPost, api+path, crossSite, strings.NewReader("{}"))
	if resp.StatusCode != http.StatusForbidden || !strings.Contains(string(body), "the write is refused") {
		t.Errorf("a page: %s %s, want 403", resp.Status, body)
	}
	resp, _ = e.do(http.MethodPost, api+path, nil, strings.NewReader("{}"))
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a stranger's program: %s, want 401", resp.Status)
	}
	e.client = byPass
	if resp, body := e.do(http.MethodPost, api+path, nil, strings.NewReader("{}")); resp.StatusCode != 200 {
		t.Errorf("a program of the user: %s %s", resp.Status, body)
	}
}
