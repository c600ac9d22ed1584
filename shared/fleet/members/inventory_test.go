package members

import (
	"log/slog"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
)

// TestInventoryDigest fails if a probe of one cluster made discovery ask all clusters again, or if a change that counts
// did not.
func TestInventoryDigest(t *testing.T) {
	i := clustertest.NewInstallation(t)
	kubeconfig := clustertest.Kubeconfig("https://a.example.com", nil, `{token: t}`)
	i.AddCluster("a", kubeconfig)
	i.AddCluster("b", kubeconfig)
	i.AddRegistry("pods", `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"v1","kind":"Pod"}]}`)
	pool := NewPool(Config{Objects: i.Objects, Log: slog.New(slog.DiscardHandler)})
	digest := func() Digest {
		inv, err := pool.Inventory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return inv.Digest
	}
	for _, tt := range []struct {
		name    string
		change  func()
		changes bool
	}{
		{"nothing", func() {}, false},
		{"a probe", func() {
			i.EditCluster("a", func(c *clusterv1alpha1.Cluster) {
				c.Status.KubernetesVersion = "v1.36.3"
				c.Status.Conditions = []metav1.Condition{{Type: clusterv1alpha1.Ready, Status: metav1.ConditionTrue}}
			})
		}, false},
		{"a label", func() {
			i.EditCluster("a", func(c *clusterv1alpha1.Cluster) { c.Labels = map[string]string{"zone": "x"} })
		}, true},
		{"the specification", func() {
			i.EditCluster("b", func(c *clusterv1alpha1.Cluster) { c.Spec.Region = "eu-central-1" })
		}, true},
		{"another registry", func() { i.AddRegistry("all", `{}`) }, true},
		{"a removal", func() { i.Delete(clusterv1alpha1.Prefix + "b") }, true},
		{"a new cluster of the old name", func() {
			i.Delete(clusterv1alpha1.Prefix + "a")
			i.AddCluster("a", nil, func(s *clusterv1alpha1.ClusterSpec) {})
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := digest()
			tt.change()
			if after := digest(); (after != before) != tt.changes {
				t.Errorf("the digest changed: %v, want %v", after != before, tt.changes)
			}
		})
	}
}
