package gateway_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// A function's response ends after seconds and at 6 MB.
func TestFunctionSendsToTheBridge(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{Function: gateway.NewFunction("")})
	h.AddCluster("m", m.Kubeconfig(token))
	tests := []struct {
		name, method, path, body string
		header                   http.Header
	}{
		{"watch", "GET", "/clusters/m/api/v1/pods?watch=1&a=%2F", "", nil},
		{"follow", "GET", "/m/api/v1/namespaces/a/pods/p/log?follow=true", "", nil},
		{
			"exec", "POST",
			"/apis/cluster.karmada.io/v1alpha1/clusters/m/proxy/api/v1/namespaces/a/pods/p/exec?command=ls", "", nil,
		},
		{"upgrade", "GET", "/clusters/m/api/v1/x", "", http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}},
		{"large body", "PUT", "/clusters/m/api/v1/namespaces/a/configmaps/c", strings.Repeat("x", 300_000), nil},
		{"the gateway's own API", "GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles", "", nil},
		{"deletecollection", "DELETE", "/clusters/m/api/v1/namespaces/a/configmaps", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			resp := h.Do(tt.method, tt.path, tt.header, tt.body)
			if got := resp.Header.Get("Location"); got != "/bridge"+tt.path {
				t.Errorf("Location %q", got)
			}
			gatewaytest.WantStatus(t, resp, 307, "redirected", "/bridge"+tt.path)
		})
	}
	if n := len(m.Requests()); n > 0 {
		t.Errorf("the member received %d requests", n)
	}
	if body, _ := io.ReadAll(h.Do("GET", "/clusters/m/api/v1/pods", nil, "").Body); string(body) != "ok" {
		t.Errorf("a plain call: %q", body)
	}
}

// The redirect of an oversized response must not repeat a write.
func TestOverflow(t *testing.T) {
	tests := []struct {
		method, uri  string
		code         int // status code of the oversized response
		want         int
		wantLocation string
	}{
		{"GET", "/clusters/m/api/v1/pods?limit=5", 200, 307, "https://bridge.example/bridge/clusters/m/api/v1/pods?limit=5"},
		{
			"PATCH", "/clusters/m/api/v1/namespaces/a/configmaps/c?fieldManager=x", 200, 303,
			"https://bridge.example/bridge/clusters/m/api/v1/namespaces/a/configmaps/c",
		},
		{
			"PUT", "/m/api/v1/namespaces/a/configmaps/c", 200, 303,
			"https://bridge.example/bridge/m/api/v1/namespaces/a/configmaps/c",
		},
		{
			"PUT", "/m/api/v1/namespaces/a/configmaps/c?dryRun=All", 200, 307,
			"https://bridge.example/bridge/m/api/v1/namespaces/a/configmaps/c?dryRun=All",
		},
		{
			"PATCH", "/m/api/v1/namespaces/a/configmaps/c?fieldManager=xdryRun=All", 200, 303,
			"https://bridge.example/bridge/m/api/v1/namespaces/a/configmaps/c",
		},
		{
			"PATCH", "/m/api/v1/namespaces/a/configmaps/c?xdryRun=All", 200, 303,
			"https://bridge.example/bridge/m/api/v1/namespaces/a/configmaps/c",
		},
		{"DELETE", "/m/api/v1/namespaces/a/configmaps/c?dryRun=All", 200, 200, ""},
		{"PUT", "/m/api/v1/namespaces/a/configmaps/c", 422, 502, ""},
		{"POST", "/m/api/v1/namespaces/a/configmaps", 201, 201, ""},
		{"DELETE", "/m/api/v1/namespaces/a/configmaps/c", 200, 200, ""},
	}
	for _, tt := range tests {
		fn := gateway.NewFunction("https://bridge.example/")
		r := httptest.NewRequest(tt.method, tt.uri, nil)
		w := httptest.NewRecorder()
		fn.Overflow(r, tt.code, nil).ServeHTTP(w, r)
		if w.Code != tt.want || w.Header().Get("Location") != tt.wantLocation {
			t.Errorf("%s %s: %d to %q, want %d to %q", tt.method, tt.uri, w.Code, w.Header().Get("Location"), tt.want,
				tt.wantLocation)
		}
	}
}

func TestOverflowIsRemembered(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	fn := gateway.NewFunction("")
	h := newGateway(t, gatewaytest.Options{Function: fn})
	h.AddCluster("m", m.Kubeconfig(token))
	r := httptest.NewRequest("GET", "/clusters/m/api/v1/pods", nil)
	fn.Overflow(r, 200, nil).ServeHTTP(httptest.NewRecorder(), r)
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/api/v1/pods", nil, ""), 307, "redirected",
		"/bridge/clusters/m/api/v1/pods")
	if resp := h.Do("GET", "/clusters/m/api/v1/pods?limit=1", nil, ""); resp.StatusCode != 200 {
		t.Errorf("another query: %d", resp.StatusCode)
	}
	if resp := h.Do("POST", "/clusters/m/api/v1/pods", nil, "{}"); resp.StatusCode != 200 {
		t.Errorf("a creation in the listed collection: %d", resp.StatusCode)
	}
	if n := len(m.Requests()); n != 2 {
		t.Errorf("the member received %d requests", n)
	}
}

// TestThaw fails if a call is lost or a write repeated on a connection that the member closed during a freeze.
func TestThaw(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	for i := range 20 {
		h.Members.Thaw()
		resp := h.Do("POST", "/clusters/m/api/v1/pods", nil, "{}")
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 {
			t.Fatalf("call %d: %d %s", i, resp.StatusCode, body)
		}
		m.CloseClientConnections()
	}
	if n := len(m.Requests()); n != 20 {
		t.Errorf("the member received %d writes, want 20", n)
	}
}

// TestFrozenProcessReadsByHTTP1 fails if a process that thaws before each call never read by HTTP/1.1, or used that for
// a write.
func TestFrozenProcessReadsByHTTP1(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	fn := gateway.NewFunction("")
	fn.FirstByte = waittest.Patience // a slow read would be redirected
	h := newGateway(t, gatewaytest.Options{Function: fn, MaxReadConns: 1})
	h.AddCluster("m", m.Kubeconfig(token))
	waittest.Until(t, "a read uses HTTP/1.1", func() bool {
		h.Members.Thaw()
		if resp := h.Do("GET", "/clusters/m/api/v1/pods", nil, ""); resp.StatusCode != 200 {
			t.Fatalf("the call has %d", resp.StatusCode)
		}
		requests := m.TakeRequests()
		return requests[len(requests)-1].Proto == "HTTP/1.1"
	})
	h.Members.Thaw()
	h.Do("POST", "/clusters/m/api/v1/pods", nil, "{}")
	if sent := m.Requests(); len(sent) != 1 || sent[0].Proto != "HTTP/2.0" {
		t.Errorf("the member received %+v, want one write by HTTP/2", sent)
	}
}
