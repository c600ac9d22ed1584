package assembly

import (
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/shared/tunnel"
)

// TestConnectionsForReads fails if a function or a bridge had no connections for reads.
func TestConnectionsForReads(t *testing.T) {
	i := clustertest.NewInstallation(t)
	i.AddCluster("m", fmt.Appendf(nil, memberKubeconfig, base64.StdEncoding.EncodeToString(i.CA.PEM())))
	p := &Parts{Objects: i.Objects, Stores: &stores.Stores{Secrets: i.Secrets}}
	for name, tunnel := range map[string]cluster.Tunnel{"function": nil, "bridge": &tunnel.Dialer{}} {
		t.Run(name, func(t *testing.T) {
			members := p.NewMembers(tunnel)
			defer members.Close()
			m, err := members.Get(t.Context(), "m")
			if err != nil {
				t.Fatal(err)
			}
			if m.Single == m.REST {
				t.Error("it has no connections for reads")
			}
		})
	}
}
