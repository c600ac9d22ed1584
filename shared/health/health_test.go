package health

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/cluster/plugintest"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/leaktest"
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

// TestProbeRunsNoPlugin: a plugin may open a browser, and one that fails would be started every 30 s.
func TestProbeRunsNoPlugin(t *testing.T) {
	m := clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	i := clustertest.NewInstallation(t)
	i.AddCluster("m", m.Kubeconfig("{}"), func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Direct })
	plugin := &plugintest.Latest{TB: t, Token: "expired"}
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
		plugin.Err = tt.err
		waittest.Until(t, tt.name, func() bool { // a probe has a short deadline
			ready, err := p.Probe(t.Context(), "m")
			if err != nil {
				t.Fatal(err)
			}
			return ready == tt.wantReady
		})
	}
}

// TestProbesAreBounded: every member is probed, with a limit of concurrent probes.
func TestProbesAreBounded(t *testing.T) {
	const members = 3 * atOnce
	var asked, together, most atomic.Int64
	answers := make(chan struct{})
	m := clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) {
		n := together.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		asked.Add(1)
		<-answers
		together.Add(-1)
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
	// No probe times out, since its end would make space for another.
	p := &Prober{Objects: i.Objects, Members: all, Log: slog.New(slog.DiscardHandler), Timeout: waittest.Patience}
	ended := make(chan error, 1)
	go func() { ended <- p.all(t.Context()) }()
	// There is one answer at a time, after as many probes as possible have begun. Surplus probes would begin meanwhile.
	for answered := range int64(members) {
		waittest.Until(t, "as many are asked as may be", func() bool {
			return asked.Load() >= min(answered+atOnce, members) || len(ended) > 0
		})
		if len(ended) > 0 {
			break
		}
		answers <- struct{}{}
	}
	close(answers)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if most.Load() != atOnce || asked.Load() != members {
		t.Errorf("%d were asked together and %d in all, want %d and %d", most.Load(), asked.Load(), atOnce, members)
	}
}
