package agentserver

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpass/clusterpass/shared/metrictest"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/tunnel"
)

// TestStreamsOfOneAgent: a connection above an agent's maximum is refused with a time to wait, and is not counted.
func TestStreamsOfOneAgent(t *testing.T) {
	s := &session{cluster: "prod", agent: "a"}
	r := &registry{max: 1, byCluster: map[string][]*session{}}
	if err := r.add(s); err != nil {
		t.Fatal(err)
	}
	s.streams.Store(maxStreams)
	_, err := r.open(t.Context(), tunnel.Destination{Cluster: "prod"})
	var e *status.Error
	if !errors.As(err, &e) || e.Code() != http.StatusTooManyRequests || e.RetryAfter == 0 || e.Cluster != "prod" ||
		!strings.Contains(e.Message, "1024 connections through this bridge, the limit for one agent at one bridge") {
		t.Errorf("%v", err)
	}
	if s.streams.Load() != maxStreams || r.streams.Load() != 0 {
		t.Errorf("%d streams of the agent and %d in all are counted", s.streams.Load(), r.streams.Load())
	}
}

func TestAgentResponseIsNotTruncated(t *testing.T) {
	bridge, agent := newTunnel(t)
	var size atomic.Int64
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size.Load())) })}
	go func() { _ = srv.Serve(agent) }()
	t.Cleanup(func() { _ = srv.Close() })
	s := &session{mux: bridge}
	for _, tt := range []struct {
		size      int64
		isRefused bool
	}{{maxResponse, false}, {maxResponse + 1, true}} {
		size.Store(tt.size)
		got, err := s.call(t.Context(), http.MethodGet, CredentialPath, nil)
		if (err != nil) != tt.isRefused || err == nil && len(got) != int(tt.size) {
			t.Errorf("of %d bytes: %d bytes, %v", tt.size, len(got), err)
		}
	}
}

func TestAgentsOfOneCluster(t *testing.T) {
	r := &registry{max: maxPerCluster + 1, byCluster: map[string][]*session{}}
	for n := range maxPerCluster {
		if err := r.add(&session{cluster: "prod", agent: fmt.Sprint(n)}); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(cluster, why string) {
		t.Helper()
		var e *status.Error
		if err := r.add(&session{
			cluster: cluster, agent: "more",
		}); !errors.As(err, &e) || e.Code() != http.StatusTooManyRequests || e.RetryAfter == 0 || e.Cluster != cluster ||
			!strings.Contains(e.Message, why) {
			t.Errorf("one more of %s: %v", cluster, err)
		}
	}
	refused("prod", `cluster "prod" has 16 agents at this bridge, the limit for one cluster`)
	if err := r.add(&session{cluster: "other", agent: "0"}); err != nil {
		t.Errorf("another cluster's: %v", err)
	}
	refused("third", "this bridge has 17 agents, its limit")
	metrics := prometheus.NewPedanticRegistry()
	metrics.MustRegister(agentCounts{r})
	for cluster, want := range map[string]float64{"prod": maxPerCluster, "other": 1, "third": 0} {
		if n := metrictest.Value(t, metrics, "clusterpass_cluster_agents", "cluster="+cluster); n != want {
			t.Errorf("%s has %v agents, want %v", cluster, n, want)
		}
	}
	r.remove(r.sessionsOf("prod")[0])
	if err := r.checkCapacity("prod", "more"); err != nil || r.size() != maxPerCluster {
		t.Errorf("of %d, one has gone: %v", r.size(), err)
	}
}
