package passes_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
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
	o, err := a.Objects.Get(t.Context(), clusterv1alpha1.Prefix+"prod")
	var c clusterv1alpha1.Cluster
	if err == nil {
		err = json.Unmarshal(o.Value, &c)
	}
	if err != nil || len(c.Status.Conditions) > 0 {
		t.Errorf("conditions %+v, %v", c.Status.Conditions, err)
	}
}
