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

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
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
