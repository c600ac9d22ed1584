package control_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/agenttest"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
)

// The table of kubectl get clusters -o wide must show the reuse until the cluster joins again.
func TestTableShowsReusedAgentCredential(t *testing.T) {
	h := newInstallation(t)
	ctx := testContext(t)
	h.AddCluster("prod", nil, func(s *v1alpha1.ClusterSpec) { s.SyncMode = v1alpha1.Pull })
	d := h.gateway()
	issuer := &passes.Issuer{Objects: h.Objects, Secrets: h.Secrets, URL: gatewayURL}
	g := agenttest.Gateway{Issuer: issuer, Verifier: passes.NewVerifier(passes.Config{
		Objects: h.Objects, Secrets: h.Secrets, URL: gatewayURL,
	})}
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}
	bootstrap, err := issuer.EnrolAgent(ctx, c, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Exchange(ctx, "prod", possession.Credential{Token: bootstrap}); err != nil {
		t.Fatal(err)
	}
	if got := d.cell("prod", "Agent-Credential"); got != "" {
		t.Errorf("before: %v", got)
	}
	var reused *passes.ReusedError
	if _, err := g.Exchange(ctx, "prod", possession.Credential{Token: bootstrap}); !errors.As(err, &reused) {
		t.Fatalf("the second exchange: %v", err)
	}
	if err := issuer.EndAgents(ctx, reused.Agent, passes.Reuse{Time: time.Now(), From: "192.0.2.7"}); err != nil {
		t.Fatal(err)
	}
	if got := d.cell("prod", "Agent-Credential"); got != "Reused" {
		t.Errorf("after: %v", got)
	}
	if _, err := issuer.EnrolAgent(ctx, c, time.Hour); err != nil {
		t.Fatal(err)
	}
	if got := d.cell("prod", "Agent-Credential"); got != "" {
		t.Errorf("after the cluster has joined again: %v", got)
	}
}

func (d *server) cell(cluster, column string) any {
	d.t.Helper()
	table := d.table(clusters + "/" + cluster)
	i := slices.IndexFunc(table.ColumnDefinitions, func(c metav1.TableColumnDefinition) bool { return c.Name == column })
	if i < 0 || len(table.Rows) != 1 || table.ColumnDefinitions[i].Priority == 0 {
		d.t.Fatalf("no column %s with -o wide in %+v", column, table)
	}
	return table.Rows[0].Cells[i]
}

// table returns what kubectl get prints.
func (d *server) table(path string) metav1.Table {
	d.t.Helper()
	client, err := rest.HTTPClientFor(d.master())
	if err != nil {
		d.t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, d.URL+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	resp, err := client.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	var table metav1.Table
	if err := json.NewDecoder(resp.Body).Decode(&table); err != nil {
		d.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		d.t.Fatalf("%s: %s", path, resp.Status)
	}
	return table
}
