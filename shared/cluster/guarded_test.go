package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/status"
)

func newGuardedMember(t *testing.T, server string, edits ...func(*v1alpha1.Cluster)) *Member {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	for _, edit := range edits {
		edit(c)
	}
	kc := &kubeconfig.Config{Server: u, TLS: &tls.Config{MinVersion: tls.VersionTLS12}}
	m := NewMember(c, kc, DialPolicy{AllowLoopback: true}, nil)
	t.Cleanup(m.Close)
	now := time.Now() // stands still: a busy machine must not reach the next trial
	m.REST.(*guardedTransport).breaker.Now = func() time.Time { return now }
	return m
}

func try(ctx context.Context, t *testing.T, m *Member, path string) error {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.Server.String()+path, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := m.REST.RoundTrip(r)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

func isCircuitOpen(err error) bool {
	var e *status.Error
	return errors.As(err, &e) && e.Reason == status.CircuitOpen && e.RetryAfter > 0 &&
		e.Code() == http.StatusServiceUnavailable
}

const unreachable = "http://127.0.0.1:1"

// Each request to an unreachable member would wait for a connection, and use up what all members share.
func TestUnreachableMemberIsNotCalledForAWhile(t *testing.T) {
	m := newGuardedMember(t, unreachable)
	for i := range 5 {
		if err := try(t.Context(), t, m, "/version"); err == nil || isCircuitOpen(err) {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	if err := try(t.Context(), t, m, "/version"); !isCircuitOpen(err) {
		t.Errorf("after failed connections: %v", err)
	}
}

// A caller of a slow path, or one that leaves, must not switch the member off for others.
func TestCallersCannotOpenTheCircuit(t *testing.T) {
	arrived := make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // net/http notices only then that the client leaves
		if r.URL.Path == "/hangs" {
			arrived <- struct{}{}
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	m := newGuardedMember(t, server.URL)
	for range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-arrived; cancel() }()
		if err := try(ctx, t, m, "/hangs"); err == nil {
			t.Fatal("the path does not hang")
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 {
		_ = try(gone, t, m, "/version")
	}
	invalid, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	invalid.Header["Invalid"] = []string{"a\nb"}
	for range 10 {
		if resp, err := m.REST.RoundTrip(invalid); err == nil {
			_ = resp.Body.Close()
			t.Fatal("an invalid header is sent")
		}
	}
	if err := try(t.Context(), t, m, "/version"); err != nil {
		t.Errorf("the member is switched off: %v", err)
	}
}

// A member that accepts connections and never answers fails no connection. The gateway's own probe finds it.
func TestProbesDecideAboutHangingMember(t *testing.T) {
	var answers atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if !answers.Load() {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	m := newGuardedMember(t, server.URL)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := try(AsProbe(ctx), t, m, "/version"); err == nil {
		t.Fatal("the member answers")
	}
	trial, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := try(trial, t, m, "/version"); err == nil || isCircuitOpen(err) {
		t.Fatalf("the trial after a probe without an answer: %v", err)
	}
	if err := try(t.Context(), t, m, "/version"); !isCircuitOpen(err) {
		t.Fatalf("after that trial: %v", err)
	}
	server.CloseClientConnections()
	answers.Store(true)
	if err := try(AsProbe(t.Context()), t, m, "/version"); err != nil {
		t.Fatal(err)
	}
	if err := try(t.Context(), t, m, "/version"); err != nil {
		t.Errorf("after a probe with an answer: %v", err)
	}
}

// The error of a tunnel names what is missing. A refusal in its place would outlast the agents' reconnection.
func TestTunnelErrorsDoNotOpenTheCircuit(t *testing.T) {
	noAgent := status.New(status.Unreachable, "m", "none of its agents is connected")
	ctx := t.Context()
	if got := outcome(ctx, fmt.Errorf("dial: %w", noAgent)); got != limits.Ignored {
		t.Errorf("no agent: outcome %v", got)
	}
	late := status.New(status.Timeout, "m", "no agent answers")
	if got := outcome(ctx, late); got != limits.Failure {
		t.Errorf("silent agents: outcome %v", got)
	}
}

// A function's process handles one request at a time, and learns only from the Cluster what the probes found.
func TestConditionReadyMakesTheFirstCallATrial(t *testing.T) {
	silent := func(c *v1alpha1.Cluster) {
		c.Status.Conditions = []metav1.Condition{
			{Type: v1alpha1.Ready, Status: metav1.ConditionFalse, Reason: string(status.Timeout)},
		}
	}
	m := newGuardedMember(t, unreachable, silent)
	if err := try(t.Context(), t, m, "/version"); err == nil || isCircuitOpen(err) {
		t.Fatalf("the trial: %v", err)
	}
	if err := try(t.Context(), t, m, "/version"); !isCircuitOpen(err) {
		t.Errorf("after one failed trial: %v", err)
	}
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	m = newGuardedMember(t, server.URL, silent)
	for range 2 {
		if err := try(t.Context(), t, m, "/version"); err != nil {
			t.Errorf("a member that is back: %v", err)
		}
	}
}
