package gateway_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/recording/policy"
	"github.com/clusterpass/clusterpass/shared/status"
)

// recordingRule is a gateway.RecordingPolicies with one level for all calls, and records the last call.
type recordingRule struct {
	level atomic.Value // policy.Level
	last  atomic.Value // policy.Call
	down  atomic.Bool
}

func (r *recordingRule) For(_ context.Context, c policy.Call) (policy.Rule, error) {
	r.last.Store(c)
	if r.down.Load() {
		return policy.Rule{}, status.New(status.StoreUnavailable, c.Cluster, "the policies cannot be read now")
	}
	return policy.Rule{Level: r.level.Load().(policy.Level), Policy: "strict"}, nil
}

// TestNoCallerEvadesRecording: where recordings are required, no caller may run commands through a connection that
// nothing records. Other requests must be unaffected.
func TestNoCallerEvadesRecording(t *testing.T) {
	var called atomic.Bool
	member := clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) {
		called.Store(true)
		w.WriteHeader(http.StatusNoContent)
	})
	rule := &recordingRule{}
	rule.level.Store(policy.Required)
	h := newGateway(t, gatewaytest.Options{Configure: func(c *gateway.Config) { c.Recordings = rule }})
	h.AddCluster("m", member.Kubeconfig(`{"token":"t"}`), func(s *v1alpha1.ClusterSpec) {
		s.ServiceProxy = []string{"nodes/*", "pods/*/*", "services/*/*"}
	})
	const ns = "/api/v1/namespaces/a"
	tests := []struct {
		method, path, upgrade string
		isRefused             bool
		wantNamespace         string
	}{
		{"POST", "/api/v1/nodes/n/proxy/run/a/p/c?cmd=id", "", true, ""},
		{"GET", "/api/v1/nodes/n/proxy/exec/a/p/c?command=id", "SPDY/3.1", true, ""},
		{"GET", "/api/v1/nodes/https:n:10250/proxy/healthz", "", true, ""},
		{"GET", "/api/v1/proxy/nodes/n/exec/a/p/c", "", true, ""},
		{"GET", ns + "/pods/https:p:10250/proxy/", "", true, "a"},
		{"GET", ns + "/services/https:kubelet:metrics/proxy/", "", true, "a"},
		{"GET", "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/v/console", "websocket", true, "a"},
		{"GET", "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachineinstances/v/portforward", "", true, "a"},
		{"GET", ns + "/pods/p/shell?watch=1", "websocket", true, "a"},
		{"GET", "/api/v1/watch/namespaces/a/pods/p/console", "websocket", true, "a"},
		{"GET", "/anything", "websocket", true, ""},
		{"GET", "/api/v1/watch/namespaces/a/pods/p", "websocket", true, "a"},
		{"GET", "/apis/example.io/v1/namespaces/a/pods/p/log?follow=1", "websocket", true, "a"},
		{"GET", ns + "/machines/m/log?follow=1", "websocket", true, "a"},
		{"PATCH", ns + "/pods/p/ephemeralcontainers", "", true, "a"},
		{"PUT", ns + "/pods/p/ephemeralcontainers?watch=1", "", true, "a"},
		{"POST", "/clusters/n/api/v1/nodes/x/proxy/run/a/p/c?cmd=id", "", true, ""},
		{"POST", "/n/api/v1/nodes/x/pro%78y/run/a/p/c?cmd=id", "", true, ""},
		{"POST", "/k8s%2Fclusters/n/api/v1/nodes/x%2Fproxy/run/a/p/c?cmd=id", "", true, ""},
		{"PATCH", "/clusters/n/api/v1/namespaces/a/pods/p/ephemeralcontainers", "", true, ""},
		{"POST", "/apis/kusionstack.io/Cluster/n/proxy/api/v1/nodes/x/proxy/run/a/p/c?cmd=id", "", true, ""},

		{"GET", "/openapi/v3/apis/apps/v1", "", false, ""},
		{"PUT", ns + "/pods/proxy/status", "", false, ""},
		{"GET", ns + "/services/proxy", "", false, ""},
		{"GET", ns + "/pods", "", false, ""},
		{"GET", ns + "/pods?watch=1", "websocket", false, ""},
		{"GET", ns + "/pods/p/log?follow=1", "websocket", false, ""},
		{"GET", ns + "/pods/p/log?follow=1", "", false, ""},
		{"GET", ns + "/pods/p/ephemeralcontainers", "", false, ""},
		{"PATCH", "/apis/example.io/v1/namespaces/a/pods/p/ephemeralcontainers", "", false, ""},
	}
	for _, tt := range tests {
		called.Store(false)
		rule.last.Store(policy.Call{})
		request := tt.method + " /clusters/m" + tt.path + " HTTP/1.1\nHost: x\n"
		if tt.upgrade != "" {
			request += "Connection: Upgrade\nUpgrade: " + tt.upgrade + "\n"
		}
		resp := h.SendRaw(request + "\n")
		if tt.isRefused != (resp.StatusCode == http.StatusForbidden) || tt.isRefused == called.Load() {
			t.Errorf("%s %s: %s, the member was called: %v", tt.method, tt.path, resp.Status, called.Load())
		}
		asked := rule.last.Load().(policy.Call)
		if (asked.User != nil) != tt.isRefused ||
			tt.isRefused && (asked.Cluster != "m" || asked.Namespace != tt.wantNamespace) {
			t.Errorf("%s %s: decided for %+v", tt.method, tt.path, asked)
		}
	}
	rule.level.Store(policy.BestEffort)
	if resp := h.Do("GET", "/clusters/m/api/v1/nodes/n/proxy/healthz", nil, ""); resp.StatusCode != http.StatusNoContent {
		t.Errorf("best effort: %s", resp.Status)
	}
	rule.down.Store(true)
	resp := h.Do("GET", "/clusters/m/api/v1/nodes/n/proxy/healthz", nil, "")
	gatewaytest.WantStatus(t, resp, http.StatusServiceUnavailable, "store_unavailable", "cannot be read")
}

// TestDebugContainersOfTheFleet: the fleet writes to members itself, so it must refuse what a member's own URL refuses.
func TestDebugContainersOfTheFleet(t *testing.T) {
	var called atomic.Bool
	member := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		called.Store(r.Method == http.MethodPatch || called.Load())
		w.WriteHeader(http.StatusNotFound)
	})
	rule := &recordingRule{}
	rule.level.Store(policy.Required)
	h := newGateway(t, gatewaytest.Options{Configure: func(c *gateway.Config) { c.Recordings = rule }})
	h.AddCluster("m", member.Kubeconfig(`{"token":"t"}`))
	for path, want := range map[string]string{
		"a/pods/p@m/ephemeralcontainers": "a debug container can run a command",
		"a@m/pods/p/ephemeralcontainers": "a debug container can run a command",
		"a/pods/p/ephemeralcontainers":   "a debug container can run a command",
		"a/c/proxy/api/v1/nodes":         "could carry one that cannot be recorded",
	} {
		resp := h.Do("PATCH", "/fleet/api/v1/namespaces/"+path,
			http.Header{"Content-Type": {"application/merge-patch+json"}}, "{}")
		gatewaytest.WantStatus(t, resp, http.StatusForbidden, "forbidden", want)
		if asked := rule.last.Load().(policy.Call); asked.Cluster != "" || asked.Namespace != "a" || called.Load() {
			t.Errorf("%s: decided for %+v, the member was called: %v", path, asked, called.Load())
		}
	}
}

// controlPlaneAPI is a gateway.API that has no path of its own, and the control-plane cluster "m".
type controlPlaneAPI struct{}

func (controlPlaneAPI) ServePublic(http.ResponseWriter, *http.Request, string) bool { return false }

func (controlPlaneAPI) Serve(http.ResponseWriter, *http.Request, *gateway.APICall) (string, error) {
	return "m", nil
}

// TestControlPlaneIsCovered: sessions with the control-plane cluster, by the gateway's root, must not be unrecorded.
func TestControlPlaneIsCovered(t *testing.T) {
	var called atomic.Bool
	member := clustertest.NewMember(t, func(http.ResponseWriter, *http.Request) { called.Store(true) })
	rule := &recordingRule{}
	rule.level.Store(policy.Required)
	h := newGateway(t, gatewaytest.Options{Configure: func(c *gateway.Config) {
		c.Recordings, c.API = rule, controlPlaneAPI{}
	}})
	h.AddCluster("m", member.Kubeconfig(`{"token":"t"}`), func(s *v1alpha1.ClusterSpec) {
		s.ServiceProxy = []string{"nodes/*"}
	})
	for path, want := range map[string]int{
		"/api/v1/namespaces/a/pods/p/exec":                http.StatusServiceUnavailable,
		"/api/v1/namespaces/a/pods/p/ephemeralcontainers": http.StatusForbidden,
		"/api/v1/nodes/n/proxy/run/a/p/c?cmd=id":          http.StatusForbidden,
	} {
		resp := h.Do("POST", path, nil, "")
		asked := rule.last.Load().(policy.Call)
		if resp.StatusCode != want || asked.Cluster != "m" || called.Load() {
			t.Errorf("%s: %s, decided for %+v, the member was called: %v", path, resp.Status, asked, called.Load())
		}
	}
}

// TestSessionsWithoutABridge: a program without a recorder must not serve a session whose recording is required. The
// audit log must show that another one was not recorded.
func TestSessionsWithoutABridge(t *testing.T) {
	member := clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})
	rule := &recordingRule{}
	h := newGateway(t, gatewaytest.Options{Configure: func(c *gateway.Config) { c.Recordings = rule }})
	h.AddCluster("m", member.Kubeconfig(`{"token":"t"}`))
	for _, subresource := range []string{"exec", "attach", "portforward"} {
		path := "/clusters/m/api/v1/namespaces/a/pods/p/" + subresource
		rule.level.Store(policy.Required)
		gatewaytest.WantStatus(t, h.Do("POST", path, nil, ""), http.StatusServiceUnavailable, "recording_failed",
			`RecordingPolicy "strict" requires its recording`)
		h.Audit.Events(t, 2)
		for _, level := range []policy.Level{policy.None, policy.BestEffort} {
			rule.level.Store(level)
			if resp := h.Do("POST", path, nil, ""); resp.StatusCode != http.StatusNoContent {
				t.Errorf("%s with the level %q: %s", subresource, level, resp.Status)
			}
			a := h.Audit.Events(t, 2)[1].Annotations[audit.UnrecordedAnnotation]
			if (a != "") != (level == policy.BestEffort) {
				t.Errorf("%s with the level %q: unrecorded %q", subresource, level, a)
			}
		}
	}
}

// TestUnrecordedStreamsEnd: a session that is open when a policy begins to require recordings would stay unrecorded.
func TestUnrecordedStreamsEnd(t *testing.T) {
	for _, path := range []string{"/namespaces/a/pods/p/exec", "/nodes/n/proxy/"} {
		ended := make(chan struct{})
		member := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			close(ended)
		})
		rule := &recordingRule{}
		rule.level.Store(policy.BestEffort)
		h := newGateway(t, gatewaytest.Options{Configure: func(c *gateway.Config) {
			c.Recordings, c.Recheck = rule, 1
		}})
		h.AddCluster("m", member.Kubeconfig(`{"token":"t"}`), func(s *v1alpha1.ClusterSpec) {
			s.ServiceProxy = []string{"nodes/*"}
		})
		resp := h.Do("GET", "/clusters/m/api/v1"+path, nil, "")
		rule.level.Store(policy.Required)
		<-ended
		_ = resp.Body.Close()
		if e := h.Audit.Events(t, 2)[1]; !strings.Contains(e.ResponseStatus.Message, `RecordingPolicy "strict"`) {
			t.Errorf("%s: ended for %+v", path, e.ResponseStatus)
		}
	}
}
