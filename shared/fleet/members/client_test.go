package members

import (
	"net/url"
	"testing"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
)

// TestIsOnThisMachine fails if the lists of a far cluster were not compressed because an agent reaches it by loopback.
func TestIsOnThisMachine(t *testing.T) {
	for _, tt := range []struct {
		server, proxy string
		want          bool
	}{
		{"127.0.0.1", "", true}, {"203.0.113.9", "", false}, {"127.0.0.1", "https://bridge.example.com:9443/agents/a", false},
	} {
		m := &cluster.Member{Cluster: &v1alpha1.Cluster{}, Server: &url.URL{Scheme: "https", Host: tt.server + ":6443"}}
		m.Cluster.Spec.ProxyURL = tt.proxy
		if got := isOnThisMachine(m); got != tt.want {
			t.Errorf("%s by the proxy %q: %v", tt.server, tt.proxy, got)
		}
	}
}
