package passes_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/agenttest"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/status"
)

type agents struct {
	*clustertest.Installation
	agenttest.Gateway
	t *testing.T
	c *clusterv1alpha1.Cluster
}

func newAgents(t *testing.T) *agents {
	t.Helper()
	const url = "https://gateway.example.com"
	i := clustertest.NewInstallation(t)
	i.AddCluster("prod", nil, func(s *clusterv1alpha1.ClusterSpec) { s.SyncMode = clusterv1alpha1.Pull })
	return &agents{i, agenttest.Gateway{
		Issuer:   &passes.Issuer{Objects: i.Objects, Secrets: i.Secrets, URL: url, Now: i.Clock.Now},
		Verifier: passes.NewVerifier(passes.Config{Objects: i.Objects, Secrets: i.Secrets, URL: url, Now: i.Clock.Now}),
	}, t, &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}}
}

func (a *agents) connect(c possession.Credential) (*passes.Agent, error) {
	a.t.Helper()
	p, err := agenttest.Present(c, possession.Connect, "", a.Clock.Now())
	if err != nil {
		a.t.Fatal(err)
	}
	return a.Verifier.AuthenticateAgent(a.t.Context(), "prod", p)
}

func (a *agents) renewLater(c possession.Credential) possession.Credential {
	a.t.Helper()
	a.Clock.Advance(10 * time.Minute)
	got, err := a.Exchange(a.t.Context(), "prod", c)
	if err != nil {
		a.t.Fatal(err)
	}
	return got
}

func (a *agents) enrol() possession.Credential {
	a.t.Helper()
	c, err := a.Enrol(a.t.Context(), a.c, 24*time.Hour)
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

func (a *agents) conditions() []metav1.Condition {
	a.t.Helper()
	o, err := a.Objects.Get(a.t.Context(), clusterv1alpha1.Prefix+"prod")
	var c clusterv1alpha1.Cluster
	if err == nil {
		err = json.Unmarshal(o.Value, &c)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return c.Status.Conditions
}

// A log, or a proxy that ends TLS, may contain a copy of an agent's headers.
func TestCopiedRequestOfAnAgentIsRefused(t *testing.T) {
	a := newAgents(t)
	c := a.enrol()
	p, err := agenttest.Present(c, possession.Connect, "", a.Clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Verifier.AuthenticateAgent(t.Context(), "prod", p); err != nil {
		t.Fatal(err)
	}
	_, err = a.Verifier.AuthenticateAgent(t.Context(), "prod", p)
	if status.From(err).Reason != status.Unauthenticated || !strings.Contains(err.Error(), "used before") {
		t.Errorf("the same request again: %v", err)
	}
	if _, err := a.connect(c); err != nil {
		t.Errorf("the agent, with a new proof: %v", err)
	}
}

// A backup has an older generation than the agents. To refuse them would cut all private clusters off.
func TestRestoredStoreAcceptsNewerCredentials(t *testing.T) {
	a := newAgents(t)
	first := a.enrol()
	backup, err := a.Objects.Get(t.Context(), v1alpha1.AgentPrefix+"prod")
	if err != nil {
		t.Fatal(err)
	}
	third := a.renewLater(a.renewLater(first))
	now, err := a.Objects.Get(t.Context(), backup.Key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Objects.Update(t.Context(), backup.Key, backup.Value, now.Revision); err != nil {
		t.Fatal(err)
	}
	a.Clock.Advance(time.Minute) // the cached enrolment is read again
	if _, err := a.connect(third); err != nil {
		t.Error(err)
	}
	if _, err := a.connect(a.renewLater(third)); err != nil {
		t.Error(err)
	}
	var reused *passes.ReusedError
	if _, err := a.connect(third); err != nil {
		t.Errorf("within the overlap: %v", err)
	}
	if _, err := a.Exchange(t.Context(), "prod", third); !errors.As(err, &reused) {
		t.Errorf("a renewed credential is renewed again: %v", err)
	}
}

// Each renewal writes to the store. An agent in a loop must not use it up.
func TestRenewalsAreBounded(t *testing.T) {
	a := newAgents(t)
	first := a.enrol()
	var e *status.Error
	if _, err := a.Exchange(t.Context(), "prod", first); !errors.As(err, &e) || e.Reason != status.TooManyRequests {
		t.Errorf("at once: %v", err)
	}
	a.renewLater(first)
}

// The alarm of a copy may arrive after the cluster has joined again. It must not cut the new agents off.
func TestReuseEndsNoLaterEnrolment(t *testing.T) {
	a := newAgents(t)
	first := a.enrol()
	a.renewLater(first)
	a.Clock.Advance(10 * time.Minute)
	var reused *passes.ReusedError
	if _, err := a.connect(first); !errors.As(err, &reused) {
		t.Fatalf("an old generation: %v", err)
	}
	later := a.enrol()
	reuse := passes.Reuse{Time: time.Now(), From: "192.0.2.7"}
	if err := a.Issuer.EndAgents(t.Context(), reused.Agent, reuse); err != nil {
		t.Fatal(err)
	}
	if _, err := a.connect(later); err != nil {
		t.Error(err)
	}
	if got := a.conditions(); len(got) > 0 {
		t.Errorf("conditions %+v", got)
	}
}

// steppedStore calls before ahead of its call number step.
type steppedStore struct {
	objects.Store
	calls, step int
	before      func()
}

func (s *steppedStore) count() {
	if s.calls++; s.calls == s.step {
		s.before()
	}
}

func (s *steppedStore) Get(ctx context.Context, key string) (objects.Object, error) {
	s.count()
	return s.Store.Get(ctx, key)
}

func (s *steppedStore) Update(ctx context.Context, key string, value []byte, revision uint64) (objects.Object, error) {
	s.count()
	return s.Store.Update(ctx, key, value, revision)
}

// Two bridges may find copies of credentials while the cluster joins again. An administrator must see the condition as
// long as the agents cannot connect, and no longer.
func TestConditionFollowsTheLatestEnrolment(t *testing.T) {
	const thisBridge, otherBridge = "192.0.2.7", "192.0.2.8"
	for name, isReused := range map[string]bool{"which is in use": false, "which another bridge ends": true} {
		t.Run(name, func(t *testing.T) {
			for step := 1; ; step++ {
				a := newAgents(t)
				endBy := func(g agenttest.Gateway, from string) {
					t.Helper()
					first := a.enrol()
					a.renewLater(first)
					a.Clock.Advance(10 * time.Minute)
					var reused *passes.ReusedError
					if _, err := a.connect(first); !errors.As(err, &reused) {
						t.Fatalf("an old generation: %v", err)
					}
					reuse := passes.Reuse{Time: a.Clock.Now(), From: from}
					if err := g.Issuer.EndAgents(t.Context(), reused.Agent, reuse); err != nil {
						t.Fatal(err)
					}
				}
				want := ""
				stepped := &steppedStore{Store: a.Objects, step: step, before: func() {
					a.enrol()
					if isReused {
						endBy(a.Gateway, otherBridge)
						want = otherBridge
					}
				}}
				own := *a.Issuer
				own.Objects = stepped
				endBy(agenttest.Gateway{Issuer: &own, Verifier: a.Verifier}, thisBridge)
				if stepped.calls < step {
					if step < 4 {
						t.Fatalf("EndAgents called the store only %d times", stepped.calls)
					}
					return
				}
				if got := a.conditions(); want == "" && len(got) > 0 ||
					want != "" && (len(got) != 1 || !strings.Contains(got[0].Message, want)) {
					t.Errorf("before call %d of the store: conditions %+v, want one from %q", step, got, want)
				}
			}
		})
	}
}
