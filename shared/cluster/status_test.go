package cluster

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

const (
	isReady    = `"status":{"conditions":[{"type":"Ready","status":"True","reason":"ClusterReady"}]}`
	isTimeout  = `"status":{"conditions":[{"type":"Ready","status":"False","reason":"` + string(status.Timeout) + `"}]}`
	isUpgraded = `"status":{"kubernetesVersion":"v1.36.3"}`
)

// storedMember returns Members for a server, and a function that stores a new version of its object.
func storedMember(
	t *testing.T, server *httptest.Server, edits ...func(*Config),
) (get func() *Member, store func(object string)) {
	t.Helper()
	m, s, advance, _ := newMembers(t)
	m.cfg.Policy.AllowLoopback = true
	for _, edit := range edits {
		edit(&m.cfg)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	s.set(func() {
		s.object = `{"spec":{}}`
		s.secrets["clusters/m"] = secrets.Secret{Meta: secrets.Meta{Version: "1"}, Value: secrets.NewValue(fmt.Appendf(nil,
			`{contexts: [{name: x, context: {cluster: c, user: u}}], users: [{name: u, user: {token: t}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]}`,
			server.URL, base64.StdEncoding.EncodeToString(ca)))}
	})
	get = func() *Member {
		t.Helper()
		member, err := m.Get(t.Context(), "m")
		if err != nil {
			t.Fatal(err)
		}
		return member
	}
	return get, func(object string) {
		s.set(func() { s.object, s.rev = object, s.rev+1 })
		advance(Remote.Object)
	}
}

// TestStatusCostsNoConnections fails if each probe that finds a change closed the connections of all gateways, or if a
// request were sent with an outdated object.
func TestStatusCostsNoConnections(t *testing.T) {
	var connections atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("{}"))
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	get, store := storedMember(t, server)
	for _, tt := range []struct {
		name, object string
		want         int64 // connections so far
		version      string
	}{
		{"registered", `{"spec":{}}`, 1, ""},
		{"another version", `{"spec":{},` + isUpgraded + `}`, 1, "v1.36.3"},
		{"a probe without an answer", `{"spec":{},` + isTimeout + `}`, 1, ""},
		{"a probe with an answer", `{"spec":{},` + isReady + `}`, 1, ""},
		{"a label", `{"metadata":{"labels":{"zone":"x"}},"spec":{},` + isReady + `}`, 1, ""},
		{"another specification", `{"spec":{"identity":"direct"},` + isReady + `}`, 2, ""},
		{"its status", `{"spec":{"identity":"direct"},` + isUpgraded + `}`, 2, "v1.36.3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store(tt.object)
			member := get()
			if err := member.Call(t.Context(), http.MethodGet, "/version", nil, &struct{}{}); err != nil {
				t.Fatal(err)
			}
			if got := connections.Load(); got != tt.want {
				t.Errorf("%d connections, want %d", got, tt.want)
			}
			if got := get(); got != member {
				t.Error("one version of the object has two members")
			}
			if got := member.Cluster.Status.KubernetesVersion; got != tt.version {
				t.Errorf("the member has an outdated object, of version %q", got)
			}
		})
	}
}

// TestNoTrialsOfSilentMember fails if a process that serves one request at a time waited for a member that accepts
// connections and never answers. Callers could occupy all such processes with it.
func TestNoTrialsOfSilentMember(t *testing.T) {
	var connections atomic.Int64
	released := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-released:
		case <-r.Context().Done():
		}
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	get, store := storedMember(t, server, func(c *Config) { c.NoTrials = true })
	expectRefusals := func(when string) {
		t.Helper()
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
			err := try(ctx, t, get(), "/api/v1/pods")
			cancel()
			var e *status.Error
			if !errors.As(err, &e) || e.Reason != status.CircuitOpen || e.RetryAfter != 0 {
				t.Fatalf("%s: %v", when, err)
			}
		}
		if got := connections.Load(); got != 0 {
			t.Fatalf("%s: %d connections", when, got)
		}
	}
	store(`{"spec":{},` + isTimeout + `}`)
	expectRefusals("a process that starts")
	store(`{"spec":{},` + isReady + `}`)
	_ = get()
	store(`{"spec":{},` + isTimeout + `}`)
	expectRefusals("a process that used the member before")
	store(`{"spec":{"identity":"direct"},` + isTimeout + `}`)
	expectRefusals("another specification")
	close(released)
	if err := try(AsProbe(t.Context()), t, get(), "/version"); err != nil {
		t.Fatalf("a probe: %v", err)
	}
	if err := try(t.Context(), t, get(), "/api/v1/pods"); err != nil {
		t.Errorf("after a probe with an answer: %v", err)
	}
}

// TestClusterRegisteredAnewIsConnectedAnew fails if a new cluster got the connections of a deleted one of its name.
func TestClusterRegisteredAnewIsConnectedAnew(t *testing.T) {
	m, s, advance, _ := newMembers(t)
	old, err := m.Get(t.Context(), "m")
	if err != nil {
		t.Fatal(err)
	}
	s.set(func() { s.rev, s.created = 2, 2 })
	advance(Remote.Object)
	if now, err := m.Get(t.Context(), "m"); err != nil || now.breaker == old.breaker {
		t.Errorf("the circuit breaker is shared: %v", err)
	}
}

// TestStoredStatusAndCircuitBreaker fails if a stored status let requests wait for a member that accepts none. It also
// fails if a gateway ignored the condition Ready, which another process wrote.
func TestStoredStatusAndCircuitBreaker(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	server.Close()
	get, store := storedMember(t, server)
	now := time.Now() // stands still: a busy machine must not reach the next trial
	get().breaker.Now = func() time.Time { return now }
	expectTrials := func(when string, want int) {
		t.Helper()
		for n := range want + 1 {
			err := try(t.Context(), t, get(), "/version")
			if err == nil || isCircuitOpen(err) != (n == want) {
				t.Fatalf("%s: request %d: %v", when, n, err)
			}
		}
	}
	expectTrials("unreachable", 5)
	store(`{"spec":{},` + isUpgraded + `}`)
	expectTrials("another version", 0)
	older := get().record
	store(`{"spec":{},` + isTimeout + `}`)
	expectTrials("the failure is stored", 0)
	_ = get().withObject(older) // as a concurrent request does that read the object before
	expectTrials("an older object arrives late", 0)
	store(`{"spec":{},` + isReady + `}`)
	expectTrials("another process has reached it", 5)
	store(`{"spec":{},` + isUpgraded + `}`)
	expectTrials("no condition", 0)
	store(`{"spec":{"identity":"direct"}}`)
	get().breaker.Now = func() time.Time { return now }
	store(`{"spec":{"identity":"direct"},` + isTimeout + `}`)
	expectTrials("another process could not reach it", 1)
}
