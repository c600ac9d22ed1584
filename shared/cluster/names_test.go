package cluster

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/status"
)

// In an outage, made-up names must not cut off the users of passthrough clusters.
func TestCachedClustersServePassthroughCallersWhileTheStoreIsDown(t *testing.T) {
	m, s, pass, _ := newMembers(t)
	s.set(func() { s.object = `{"spec":{"identity":"passthrough"}}` })
	if _, err := m.Mode(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	pass(staleObject / 2)
	s.set(func() { s.objErr = fmt.Errorf("%w: down", objects.ErrUnavailable) })
	for n := range 5 * unidentifiedBurst {
		_, err := m.Mode(t.Context(), fmt.Sprintf("made-up-%d", n))
		if status.From(err).Code() != http.StatusServiceUnavailable {
			t.Fatalf("a made-up name: %v", err)
		}
	}
	if mode, err := m.Mode(t.Context(), "m"); err != nil || mode != v1alpha1.Passthrough {
		t.Errorf("a cluster that is cached: %q, %v", mode, err)
	}
}

// DynamoDB bills every read, and throttles all callers beyond its limit.
func TestMadeUpNamesCostFewReads(t *testing.T) {
	m, s, pass, _ := newMembers(t)
	s.set(func() { s.object = `{"spec":{"identity":"passthrough"}}` })
	for n := range 500 {
		if _, err := m.Mode(t.Context(), fmt.Sprintf("made-up-%d", n)); status.From(err).Reason != status.UnknownCluster {
			t.Fatalf("cluster %d: %v", n, err)
		}
	}
	if s.reads > unidentifiedBurst+1 {
		t.Errorf("500 names cost %d reads", s.reads)
	}
	for range 10 {
		if mode, err := m.Mode(t.Context(), "m"); err != nil || mode != v1alpha1.Passthrough {
			t.Fatalf("a cluster that exists: %q, %v", mode, err)
		}
	}
	if s.reads > unidentifiedBurst+2 {
		t.Errorf("one name more costs %d reads", s.reads)
	}

	// While the store is down, a name that is not cached may well exist.
	pass(staleObject + time.Minute)
	s.set(func() { s.objErr = fmt.Errorf("%w: down", objects.ErrUnavailable) })
	for n := range 20 {
		_, err := m.Mode(t.Context(), fmt.Sprintf("other-%d", n))
		if status.From(err).Code() != http.StatusServiceUnavailable {
			t.Fatalf("while the store is down: %v", err)
		}
	}
}
