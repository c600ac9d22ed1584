package gateway_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/passes"
)

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

// AWS bills the reads, and throttles those of all other callers.
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

// A malformed token may contain the gateway's own, which a proxy folded with another.
func TestMalformedTokenReachesNoMember(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{Configure: func(c *gateway.Config) {
		c.Passes = passes.NewVerifier(passes.Config{URL: "https://gateway.example.com"})
	}})
	h.AddCluster("m", m.Kubeconfig(token), func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Passthrough })
	h.ClientTLS.Certificates = nil
	own := "h." + base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"https://gateway.example.com"}`)) + ".s"
	for name, bearer := range map[string]string{
		"the gateway's own":               own,
		"folded with another":             own + ",Bearer a.b.c",
		"folded with another and a space": own + ", Bearer a.b.c",
		"a list":                          "a, b",
		"of EKS behind a space":           "x k8s-aws-v1.abc",
		"not ASCII":                       "caf\xc3\xa9",
	} {
		resp := h.Do("GET", "/clusters/m/version", http.Header{"Authorization": {"Bearer " + bearer}}, "")
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %s, want 401", name, resp.Status)
		}
	}
	if requests := m.Requests(); len(requests) > 0 {
		t.Errorf("the member received %d requests", len(requests))
	}
}
