package fleet_test

import (
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestFleetDefaultRegistry: the first command of a new user must list the pods of all clusters.
func TestFleetDefaultRegistry(t *testing.T) {
	ns := e2e.CreatePods(t)
	dir := t.TempDir()
	h := e2e.StartGateway(t, dir, server.Inline)
	stop := func() {
		h.Stop()
		if err := <-h.Stopped; err != nil {
			t.Error(err)
		}
	}
	k := e2e.Kubectl{Kubeconfig: h.Kubeconfig, Context: "fleet"}
	pods := k.Must(t, "get", "pods", "-A", "--no-headers")
	for _, m := range e2e.Members {
		if !strings.Contains(pods, "on-"+m) || !strings.Contains(pods, ns) {
			t.Errorf("the fleet lacks the pods of %s:\n%s", m, pods)
		}
	}
	own := e2e.Kubectl{Kubeconfig: h.Kubeconfig, Context: "clusterpass"}
	e2e.WantText(t, own.Must(t, "get", "resourceregistries"), "default")
	own.Must(t, "delete", "resourceregistry", "default")
	waittest.Until(t, "the fleet is empty", func() bool { return k.Run(t, "get", "pods", "-A").Code != 0 })
	stop()
	h = e2e.StartGateway(t, dir, server.Inline)
	defer stop()
	k.Kubeconfig = h.Kubeconfig
	if r := k.Run(t, "get", "pods", "-A"); r.Code == 0 || !strings.Contains(r.Stderr, "no kind is global") {
		t.Errorf("the next start restores the registry: %v", r)
	}
}
