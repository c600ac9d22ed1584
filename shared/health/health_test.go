package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const answer = `{"gitVersion":"v1.99.0"}`

// A rotated credential is no failure, even if the probe is the first to find the old one refused.
func TestProbeAfterRotation(t *testing.T) {
	var known atomic.Value
	known.Store("first")
	m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+known.Load().(string) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, answer)
	})
	i := clustertest.NewInstallation(t)
	i.AddCluster("m", m.Kubeconfig(`{token: first}`))
	clock := testingclock.NewFakeClock(time.Now())
	members := cluster.NewMembers(cluster.Config{
		Objects: i.Objects, Secrets: i.Secrets, Freshness: cluster.Freshness{Object: time.Hour, Secret: time.Hour},
		Policy: cluster.DialPolicy{AllowLoopback: true}, Log: slog.New(slog.DiscardHandler), Now: clock.Now,
	})
	defer members.Close()
	p := &Prober{Objects: i.Objects, Members: members, Log: slog.New(slog.DiscardHandler)}
	expectProbe := func(name string, wantReady bool, wantReason string) {
		t.Helper()
		for {
			clock.Step(10 * time.Second) // the last renewal is past
			ready, err := p.Probe(t.Context(), "m")
			if err != nil {
				t.Fatal(err)
			}
			o, err := i.Objects.Get(t.Context(), v1alpha1.Prefix+"m")
			if err != nil {
				t.Fatal(err)
			}
			var c v1alpha1.Cluster
			if err := json.Unmarshal(o.Value, &c); err != nil {
				t.Fatal(err)
			}
			found := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.Ready)
			switch {
			case found != nil && (found.Reason == string(status.Timeout) || found.Reason == string(status.StoreUnavailable)):
				continue // the machine was too slow
			case ready != wantReady || found == nil || found.Reason != wantReason:
				t.Errorf("%s: ready %v, %+v; want %s", name, ready, found, wantReason)
			}
			return
		}
	}
	expectProbe("at first", true, readyReason)
	i.RotateSecret("m", m.Kubeconfig(`{token: second}`))
	known.Store("second")
	expectProbe("after a rotation", true, readyReason)
	known.Store("nobody's")
	expectProbe("refused for good", false, "credential_refused")
}

// countingPlugin fails the test if a probe runs it.
type countingPlugin struct {
	kubeconfig.Plugin
	t   *testing.T
	err error
}

func (p *countingPlugin) Credential(context.Context) (kubeconfig.PluginCredential, error) {
	p.t.Error("a probe runs the plugin")
	return kubeconfig.PluginCredential{}, nil
}

func (p *countingPlugin) Latest() (kubeconfig.PluginCredential, error) {
	return kubeconfig.PluginCredential{Token: "expired"}, p.err
}

func (p *countingPlugin) Renew(context.Context, string) bool {
	p.t.Error("a probe runs the plugin again")
	return false
}

// TestProbeRunsNoPlugin: a plugin may open a browser, and one that fails would be started every 30 s.
func TestProbeRunsNoPlugin(t *testing.T) {
	m := clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	i := clustertest.NewInstallation(t)
	i.AddCluster("m", m.Kubeconfig("{}"), func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Direct })
	plugin := &countingPlugin{t: t}
	members := cluster.NewMembers(cluster.Config{
		Objects: i.Objects, Secrets: i.Secrets, Policy: cluster.DialPolicy{AllowLoopback: true},
		Log:     slog.New(slog.DiscardHandler),
		Plugins: cluster.Plugins{"m": {Plugin: plugin, Kubeconfig: secrets.NewValue(m.Kubeconfig("{}"))}},
	})
	defer members.Close()
	p := &Prober{Objects: i.Objects, Members: members, Log: slog.New(slog.DiscardHandler)}
	for _, tt := range []struct {
		name      string
		err       error
		wantReady bool
	}{
		{"an expired credential is no failure", nil, true},
		{"a failure of the plugin is one", errors.New("it exited with code 1"), false},
		{"until a request of a user succeeds", nil, true},
	} {
		plugin.err = tt.err
		waittest.Until(t, tt.name, func() bool { // a probe has a short deadline
			ready, err := p.Probe(t.Context(), "m")
			if err != nil {
				t.Fatal(err)
			}
			return ready == tt.wantReady
		})
	}
}

func isLate(t *testing.T, store objects.Store) bool {
	t.Helper()
	page, err := store.List(t.Context(), v1alpha1.Prefix, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(page.Objects, func(o objects.Object) bool {
		var c v1alpha1.Cluster
		if err := json.Unmarshal(o.Value, &c); err != nil {
			t.Fatal(err)
		}
		ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.Ready)
		return ready != nil && (ready.Reason == string(status.Timeout) || ready.Reason == string(status.StoreUnavailable))
	})
}

// TestProbesAreBounded: every member is probed, with a limit of concurrent probes.
func TestProbesAreBounded(t *testing.T) {
	for !bounded(t) {
		t.Log("the machine stood still: once more")
	}
}

// bounded returns false if a probe timed out and so made space for another.
func bounded(t *testing.T) bool {
	t.Helper()
	const members = 3 * atOnce
	var asked atomic.Int64
	full := make(chan struct{})
	m := clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		<-full
		_, _ = io.WriteString(w, answer)
	})
	i := clustertest.NewInstallation(t)
	for n := range members {
		i.AddCluster(fmt.Sprintf("m%d", n), m.Kubeconfig(`{token: token}`))
	}
	all := cluster.NewMembers(cluster.Config{
		Objects: i.Objects, Secrets: i.Secrets, Policy: cluster.DialPolicy{AllowLoopback: true},
		Log: slog.New(slog.DiscardHandler),
	})
	defer all.Close()
	p := &Prober{Objects: i.Objects, Members: all, Log: slog.New(slog.DiscardHandler)}
	began, ended := time.Now(), make(chan error, 1)
	go func() { ended <- p.all(t.Context()) }()
	waittest.Until(t, "as many are asked as may be", func() bool { return asked.Load() >= atOnce || len(ended) > 0 })
	<-time.After(200 * time.Millisecond) // a surplus probe would start within this time; nothing else can show its absence
	together, stood := asked.Load(), time.Since(began) > Timeout/2
	close(full)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if stood || isLate(t, i.Objects) {
		return false
	}
	if together != atOnce || asked.Load() != members {
		t.Errorf("%d were asked together and %d in all, want %d and %d", together, asked.Load(), atOnce, members)
	}
	return true
}
