// Package e2e is the harness of the end-to-end tests. They use the real kubectl, real clusters, and functions that run
// as on Lambda. Each area has its own package below, with two clusters and a gateway, so that areas run in parallel.
//
// Invariants:
//   - A test creates its objects in namespaces of NewNamespace, and deletes cluster-scoped objects.
//   - A test waits for conditions. [Idle] and [WaitForRegistries] wait for a time, where no condition can be observed.
//   - Tests that run in parallel change neither registries nor API servers that other tests use.
//   - Everything printed is searched for secrets when the tests end.
package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/clusterpass/clusterpass/infra/local/plugin"
	"github.com/clusterpass/clusterpass/shared/assembly/apiconfig"
	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/test/cluster"
)

// Clusters are member1 and member2, which the gateways of these tests have registered.
var Clusters *cluster.Set

// options disables the routing of aggregated APIs to endpoints. A kube-apiserver then accepts Services with external
// names, and reaches a gateway on loopback.
var options = cluster.Options{Clusters: []string{"member1", "member2"},
	APIServerArgs: []string{"--enable-aggregator-routing=false"}}

// Main runs the tests of an area on Clusters and exits. Call it from TestMain. It also checks the end of the shared
// gateway, its audit log, and the output for secrets.
func Main(m *testing.M) {
	plugin.Main() // gateways run credential plugins below this program
	slog.SetDefault(slog.New(slog.NewTextHandler(Printed, nil)))
	klog.SetSlogLogger(apiconfig.MachineryLog(slog.Default()))
	code := cluster.Main(m, options, func(s *cluster.Set) {
		Clusters = s
		for _, c := range s.Clusters() {
			Secrets.Document("the administrator of "+c.Name(), c.Kubeconfig())
		}
	})
	if err := endShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func endShared() error {
	var errs []error
	if shared != nil {
		shared.NoteSecrets()
		errs = append(errs, callShared()) // so that the audit log has an event, whatever tests ran
		shared.Stop()
		if err := <-shared.Stopped; err != nil {
			errs = append(errs, fmt.Errorf("the gateway ended: %w", err))
		}
		errs = append(errs, checkAudit(shared))
		errs = append(errs, os.RemoveAll(shared.Dir))
	}
	if text := Printed.String(); text != "" || shared != nil {
		if found := FindLeaks(text); len(found) > 0 {
			errs = append(errs, fmt.Errorf("the output shows the secrets of %v", found))
		}
	}
	return errors.Join(errs...)
}

func callShared() error {
	cfg, err := clientcmd.BuildConfigFromFlags("", shared.Kubeconfig)
	if err != nil {
		return err
	}
	cfg.Timeout = Patience
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	resp, err := client.Get(cfg.Host + "/version")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// checkAudit checks that each event is whole, and that each started response has completed. It adds the log to Printed.
func checkAudit(g *Gateway) error {
	data, err := os.ReadFile(filepath.Join(g.Dir, "audit.log"))
	if err != nil {
		return err
	}
	_, _ = Printed.Write(data)
	stages := map[audit.Stage]int{}
	for line := range strings.Lines(string(data)) {
		var e audit.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return fmt.Errorf("audit log: %w: %s", err, line)
		} else if e.AuditID == "" {
			return fmt.Errorf("audit log: an event without an id: %s", line)
		}
		stages[e.Stage]++
	}
	if stages[audit.ResponseComplete] < stages[audit.ResponseStarted] || stages[audit.ResponseComplete] == 0 ||
		stages[audit.Panic] > 0 {
		return fmt.Errorf("audit log: events by stage: %v", stages)
	}
	return nil
}
