package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/cluster"
)

// NewNamespace returns a new namespace of the named Clusters, until the test ends. Pods can be created in it.
func NewNamespace(t *testing.T, clusters ...string) string {
	t.Helper()
	members := make([]*cluster.Cluster, len(clusters))
	for i, name := range clusters {
		members[i] = Clusters.Cluster(name)
	}
	return NewNamespaceIn(t, members...)
}

// NewNamespaceIn is NewNamespace for clusters that may be of another set.
func NewNamespaceIn(t *testing.T, members ...*cluster.Cluster) string {
	t.Helper()
	name := UniqueName(t)
	var clients []kubernetes.Interface
	for _, m := range members {
		client, err := kubernetes.NewForConfig(m.RESTConfig())
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, client)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
			t.Fatalf("create namespace %s in %s: %v", name, m.Name(), err)
		}
		t.Cleanup(func() { deleteNamespace(t, client, name) })
	}
	// A cluster adds these to each namespace, and refuses pods before.
	for _, client := range clients {
		waittest.UntilNoError(t, "objects of namespace "+name, func(ctx context.Context) error {
			_, err := client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
			if err == nil {
				_, err = client.CoreV1().ConfigMaps(name).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
			}
			return err
		})
	}
	return name
}

// deleteNamespace ignores errors, since a test may delete its own namespace, or stop the cluster.
func deleteNamespace(t *testing.T, client kubernetes.Interface, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Logf("delete namespace %s: %v", name, err)
	}
}

// UniqueName returns a name that no other test and no other run of this test has.
func UniqueName(t *testing.T) string {
	name, _, _ := strings.Cut(t.Name(), "/")
	name = strings.ToLower(strings.TrimPrefix(name, "Test"))
	return name[:min(len(name), 40)] + "-" + rand.String(5)
}
