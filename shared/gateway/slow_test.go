package gateway_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// hangingMember responds to /fast only, until release is called.
func hangingMember(t *testing.T) (m *clustertest.Member, release func()) {
	t.Helper()
	released := make(chan struct{})
	release = sync.OnceFunc(func() { close(released) })
	m = clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/fast" {
			select {
			case <-released:
			case <-r.Context().Done():
				return
			}
		}
		ok(w, r)
	})
	t.Cleanup(release)
	return m, release
}

const firstByte = 100 * time.Millisecond

func impatientFunction() *gateway.Function {
	f := gateway.NewFunction("https://bridge.example")
	f.FirstByte = firstByte
	return f
}

// 64 waiting reads would use up the concurrency that all members share.
func TestFunctionSendsReadsOfHangingMemberToBridge(t *testing.T) {
	hanging, _ := hangingMember(t)
	healthy := clustertest.NewMember(t, ok)
	fn := impatientFunction()
	h := newGateway(t, gatewaytest.Options{Function: fn})
	h.AddCluster("hanging", hanging.Kubeconfig(token))
	h.AddCluster("healthy", healthy.Kubeconfig(token))
	fn.FirstByte = waittest.Patience // connecting may last on a busy machine
	wantOK := func(path string) {
		t.Helper()
		if body, resp := h.DoText("GET", path, nil, ""); resp.StatusCode != http.StatusOK || body != "ok" {
			t.Errorf("%s: %s %q", path, resp.Status, body)
		}
	}
	wantOK("/clusters/hanging/fast")
	fn.FirstByte = firstByte
	for _, path := range []string{
		"/clusters/hanging/api/v1/pods?limit=5", "/clusters/hanging/api/v1/nodes", "/clusters/hanging/fast",
	} {
		resp := h.Do("GET", path, nil, "")
		if got := resp.Header.Get("Location"); got != "https://bridge.example/bridge"+path {
			t.Errorf("%s: Location is %q", path, got)
		}
		gatewaytest.WantStatus(t, resp, http.StatusTemporaryRedirect, "redirected", "/bridge"+path)
	}
	resp := h.Do("POST", "/clusters/hanging/api/v1/namespaces", nil, "{}")
	gatewaytest.WantStatus(t, resp, http.StatusTemporaryRedirect, "redirected", "answers slowly")
	if n := len(hanging.Requests()); n > 2 {
		t.Errorf("the member received %d requests, want at most 2", n)
	}
	fn.FirstByte = waittest.Patience
	wantOK("/clusters/healthy/api/v1/pods")
	h.LogIn("bob", "dev")
	wantOK("/clusters/hanging/fast") // slow paths are recorded by caller, and alice called this one
}

func TestFunctionWaitsForWrites(t *testing.T) {
	hanging, release := hangingMember(t)
	h := newGateway(t, gatewaytest.Options{Function: impatientFunction()})
	h.AddCluster("m", hanging.Kubeconfig(token))
	go func() {
		defer release()
		_ = waittest.Poll(t.Context(), func(context.Context) error {
			if len(hanging.Requests()) == 0 {
				return errors.New("the write has not arrived")
			}
			return nil
		})
		select {
		case <-time.After(3 * firstByte):
		case <-t.Context().Done():
		}
	}()
	body, resp := h.DoText("POST", "/clusters/m/api/v1/namespaces", nil, "{}")
	if resp.StatusCode != http.StatusOK || body != "ok" || len(hanging.Requests()) != 1 {
		t.Errorf("%s %q, %d requests", resp.Status, body, len(hanging.Requests()))
	}
}

func TestFunctionDeliversAnswersThatBeganInTime(t *testing.T) {
	began, ended := strings.Repeat("begun ", 10_000), "ended"
	for patience := 2 * firstByte; ; patience *= 2 {
		fn := impatientFunction()
		fn.FirstByte = patience
		m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, began)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(2 * patience):
			case <-r.Context().Done():
			}
			_, _ = io.WriteString(w, ended)
		})
		h := newGateway(t, gatewaytest.Options{Function: fn})
		h.AddCluster("m", m.Kubeconfig(token))
		body, resp := h.DoText("GET", "/clusters/m/api/v1/pods", nil, "")
		if resp.StatusCode == http.StatusTemporaryRedirect && patience < time.Minute {
			continue // the machine is too busy to begin in time
		}
		if resp.StatusCode != http.StatusOK || body != began+ended {
			t.Errorf("%s, %d bytes, want %d", resp.Status, len(body), len(began+ended))
		}
		return
	}
}

// silent stores that the last probe of a cluster got no answer.
func silent(t *testing.T, h *fixture, cluster string) {
	t.Helper()
	h.EditCluster(cluster, func(c *v1alpha1.Cluster) {
		c.Status.Conditions = []metav1.Condition{
			{Type: v1alpha1.Ready, Status: metav1.ConditionFalse, Reason: string(status.Timeout)},
		}
	})
}

// One caller could occupy all processes: each would try the cluster, and a write lasts until the end of a process. The
// bridge waits without cost.
func TestFunctionLeavesSilentClusterToBridge(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{Function: gateway.NewFunction("https://bridge.example")})
	h.AddCluster("m", m.Kubeconfig(token))
	h.AddRegistry("pods", `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"v1","kind":"Pod"}]}`)
	silent(t, h, "m")
	const unanswered = `cluster "m" did not answer the gateway's last probe`
	for range 3 {
		for _, tt := range []struct{ method, path, body string }{
			{"POST", "/clusters/m/api/v1/namespaces", "{}"},
			{"GET", "/clusters/m/api/v1/namespaces/a", ""},
			{"GET", "/fleet/api/v1/namespaces/a/pods/p@m/log", ""},
		} {
			resp := h.Do(tt.method, tt.path, nil, tt.body)
			if got := resp.Header.Get("Location"); got != "https://bridge.example/bridge"+tt.path {
				t.Errorf("%s %s: Location is %q", tt.method, tt.path, got)
			}
			gatewaytest.WantStatus(t, resp, http.StatusTemporaryRedirect, "redirected",
				unanswered+"; follow the redirect to the bridge at ")
		}
		for _, method := range []string{"GET", "DELETE"} {
			path := "/fleet/api/v1/namespaces/a/pods/p@m"
			text, resp := h.DoText(method, path, nil, "")
			if resp.StatusCode < http.StatusInternalServerError || !strings.Contains(text, quoted(unanswered)) {
				t.Errorf("%s %s: %s %s", method, path, resp.Status, text)
			}
		}
	}
	if n := len(m.TakeRequests()); n != 0 {
		t.Errorf("a function sent %d requests to a silent cluster", n)
	}
	h.EditCluster("m", func(c *v1alpha1.Cluster) { c.Status.Conditions[0].Status = metav1.ConditionTrue })
	if body, resp := h.DoText("POST", "/clusters/m/api/v1/namespaces", nil, "{}"); body != "ok" {
		t.Errorf("after a probe with an answer: %s %q", resp.Status, body)
	}
}

// A member can answer probes and nothing else. Its callers could occupy each process for most of the time.
func TestFunctionSendsRequestsLikeSlowOnesToBridge(t *testing.T) {
	slowly := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodGet {
			_ = http.NewResponseController(w).Flush() // the response begins in time
		}
		select {
		case <-time.After(3 * firstByte):
		case <-r.Context().Done():
		}
		ok(w, r)
	}
	const path = "/clusters/m/api/v1/namespaces"
	bob := func(h *fixture) { h.LogIn("bob", "dev") }
	logOut := func(h *fixture) { h.LogOut() }
	bearer := func(text string) http.Header { return http.Header{"Authorization": {"Bearer " + text}} }
	for _, tt := range []struct {
		name, method   string
		identity       v1alpha1.Identity
		login          func(*fixture) // before the first request
		header, second http.Header
		next           func(*fixture) // before the second request
		nextMethod     string
		want           int
	}{
		{name: "a write", method: "POST", nextMethod: "POST", want: 307},
		{name: "a write of another user", method: "POST", next: bob, nextMethod: "POST", want: 307},
		{name: "a read after a write", method: "POST", nextMethod: "GET", want: 200},
		{name: "a read that trickles", method: "GET", nextMethod: "GET", want: 307},
		{name: "a write after a read", method: "GET", nextMethod: "POST", want: 307},
		{name: "a read of another user", method: "GET", next: bob, nextMethod: "GET", want: 200},
		{
			name: "reads with made-up tokens", method: "GET", identity: v1alpha1.Passthrough, login: logOut,
			header: bearer("one"), second: bearer("two"), nextMethod: "GET", want: 307,
		},
		{
			name: "writes with made-up tokens", method: "POST", identity: v1alpha1.Passthrough, login: logOut,
			header: bearer("one"), second: bearer("two"), nextMethod: "POST", want: 307,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := clustertest.NewMember(t, slowly)
			fn := impatientFunction()
			fn.FirstByte = 2 * firstByte
			h := newGateway(t, gatewaytest.Options{Function: fn})
			h.AddCluster("m", m.Kubeconfig(token), func(s *v1alpha1.ClusterSpec) {
				if tt.identity != "" {
					s.Identity = tt.identity
				}
			})
			if tt.login != nil {
				tt.login(h)
			}
			// On a busy machine, a read may be redirected because its response did not begin in time.
			if _, resp := h.DoText(tt.method, path, tt.header, ""); tt.method == "POST" && resp.StatusCode != http.StatusOK {
				t.Fatal(resp.Status)
			}
			if tt.next != nil {
				tt.next(h)
			}
			fn.FirstByte = waittest.Patience
			if _, resp := h.DoText(tt.nextMethod, path, tt.second, ""); resp.StatusCode != tt.want {
				t.Errorf("%s, want %d", resp.Status, tt.want)
			}
		})
	}
}

// Each list of the fleet waits for a hanging cluster. Its callers could occupy all processes of the fleet's function.
func TestFunctionSendsSlowFleetRequestsToBridge(t *testing.T) {
	hanging, _ := hangingMember(t)
	fn := impatientFunction()
	h := newGateway(t, gatewaytest.Options{Function: fn, FleetDeadline: 2 * firstByte})
	h.AddCluster("m", hanging.Kubeconfig(token))
	h.AddRegistry("pods", `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"v1","kind":"Pod"}]}`)
	const path = "/fleet/api/v1/pods"
	if text, resp := h.DoText("GET", path, nil, ""); resp.StatusCode < http.StatusInternalServerError {
		t.Fatalf("%s %s", resp.Status, text)
	}
	gatewaytest.WantStatus(t, h.Do("GET", path, nil, ""), http.StatusTemporaryRedirect, "redirected", "answer slowly")
	fn.FirstByte = waittest.Patience
	h.LogIn("bob", "dev")
	if text, resp := h.DoText("GET", path, nil, ""); resp.StatusCode < http.StatusInternalServerError {
		t.Errorf("another caller: %s %s", resp.Status, text)
	}
}
