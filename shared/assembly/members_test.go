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

// TestConnectionsForReads fails if a function opened connections that no later call of it would use, or if a bridge had
// none.
func TestConnectionsForReads(t *testing.T) {
	i := clustertest.NewInstallation(t)
	i.AddCluster("m", fmt.Appendf(nil, memberKubeconfig, base64.StdEncoding.EncodeToString(i.CA.PEM())))
	p := &Parts{Objects: i.Objects, Stores: &stores.Stores{Secrets: i.Secrets}}
	for name, tt := range map[string]struct {
		tunnel cluster.Tunnel
		want   bool
	}{"function": {nil, false}, "bridge": {&tunnel.Dialer{}, true}} {
		t.Run(name, func(t *testing.T) {
			members := p.NewMembers(tt.tunnel)
			defer members.Close()
			m, err := members.Get(t.Context(), "m")
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Single != m.REST; got != tt.want {
				t.Errorf("it has connections for reads: %v", got)
			}
		})
	}
}
