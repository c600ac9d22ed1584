package gateway_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// roles is a store whose roles and bindings cannot be read before asked is closed.
type roles struct {
	objects.Store
	asked chan struct{}
}

func (s *roles) wait(ctx context.Context) error {
	select {
	case <-s.asked:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *roles) Revision(ctx context.Context) (uint64, error) {
	if err := s.wait(ctx); err != nil {
		return 0, err
	}
	return s.Store.Revision(ctx)
}

func (s *roles) List(ctx context.Context, prefix string, limit int, cont string) (objects.Page, error) {
	if err := s.wait(ctx); err != nil {
		return objects.Page{}, err
	}
	return s.Store.List(ctx, prefix, limit, cont)
}

// credentials closes asked once it is asked for a secret.
type credentials struct {
	secrets.Store
	asked func()
}

func (s *credentials) Get(ctx context.Context, name string) (*secrets.Secret, error) {
	s.asked()
	return s.Store.Get(ctx, name)
}

// TestFirstCall holds: a process that has read nothing yet reads a cluster's credential beside the roles that decide, not after them.
func TestFirstCall(t *testing.T) {
	objs := &roles{asked: make(chan struct{})}
	creds := &credentials{asked: sync.OnceFunc(func() { close(objs.asked) })}
	h := newHouseFresh(t, gateway.NewFunction(""), cluster.Freshness{}, func(c *gateway.Config) {
		c.Access = access.NewAuthorizer(access.Config{Store: objs, Log: slog.New(slog.DiscardHandler)})
		c.Members = cluster.NewMembers(cluster.Config{
			Objects: objs, Secrets: creds, Log: slog.New(slog.DiscardHandler), Policy: cluster.DialPolicy{AllowLoopback: true},
		})
		t.Cleanup(c.Members.Close)
	})
	objs.Store, creds.Store = h.objects, h.secrets
	m := newMember(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	h.add("m", m.kubeconfig("{token: members-token}"), nil)
	// One call, or, where the machine is slow and roles were waited for long enough, some more.
	for end := time.Now().Add(2 * time.Minute); ; {
		resp := h.do("GET", "/clusters/m/api/v1/pods", nil, "")
		if resp.StatusCode == http.StatusOK {
			return
		}
		if resp.StatusCode != http.StatusServiceUnavailable || time.Now().After(end) {
			t.Fatal(resp.Status)
		}
	}
}
