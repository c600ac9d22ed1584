package gateway_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/objects"
)

// countedObjects counts the reads of clusters.
type countedObjects struct {
	objects.Store
	reads atomic.Int64
}

func (s *countedObjects) Get(ctx context.Context, key string) (objects.Object, error) {
	s.reads.Add(1)
	return s.Store.Get(ctx, key)
}

func (s *countedObjects) List(ctx context.Context, prefix string, limit int, cont string) (objects.Page, error) {
	s.reads.Add(1)
	return s.Store.List(ctx, prefix, limit, cont)
}

// TestMadeUpTokensCostFewReads fails if each call with a made-up token and cluster reads the object store. AWS bills
// the reads, and throttles those of all other callers.
func TestMadeUpTokensCostFewReads(t *testing.T) {
	store, now := &countedObjects{}, time.Now()
	h := newGateway(t, gatewaytest.Options{Configure: func(c *gateway.Config) {
		c.Members = cluster.NewMembers(cluster.Config{
			Objects: store, Secrets: &observedSecrets{onGet: func() {}}, Freshness: cluster.Remote,
			Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler),
			Policy: cluster.DialPolicy{AllowLoopback: true},
		})
		t.Cleanup(c.Members.Close)
	}})
	store.Store = h.Objects
	h.AddCluster("open", nil, func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Passthrough })
	h.HTTPClient.Transport.(*http.Transport).TLSClientConfig.Certificates = nil
	for n := range 500 {
		text, resp := h.DoText("GET", fmt.Sprintf("/clusters/made-up-%d/api/v1/pods", n),
			http.Header{"Authorization": {fmt.Sprintf("Bearer made-up-%d", n)}}, "")
		if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(text, "Status") {
			t.Fatalf("cluster %d: %s %s", n, resp.Status, text)
		}
	}
	if reads := store.reads.Load(); reads > 50 {
		t.Errorf("500 made-up tokens cost %d reads of the object store", reads)
	}
}
