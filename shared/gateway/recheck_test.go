package gateway

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	passv1alpha1 "github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/route"
)

// Otherwise a caller stays connected to a member that was removed, because another one got its name. A stream must not
// end with each probe, which may write the cluster's status.
func TestStreamEndsWhenItsClusterIsReplaced(t *testing.T) {
	const name = "member1"
	for change, tt := range map[string]struct {
		edit func(*clustertest.Installation)
		want string // part of the error; "" for none
	}{
		"nothing": {func(*clustertest.Installation) {}, ""},
		"status": {func(i *clustertest.Installation) {
			i.EditCluster(name, func(c *v1alpha1.Cluster) { c.Status.KubernetesVersion = "v1.36.0" })
		}, ""},
		"identity": {func(i *clustertest.Installation) {
			i.EditCluster(name, func(c *v1alpha1.Cluster) { c.Spec.Identity = v1alpha1.Passthrough })
		}, "the identity mode of cluster \"member1\" changed"},
		"replacement": {func(i *clustertest.Installation) {
			i.Delete(v1alpha1.Prefix + name)
			i.AddCluster(name, nil) // the secret is still there
		}, "another one was added under its name"},
		"removal": {func(i *clustertest.Installation) { i.Delete(v1alpha1.Prefix + name) }, "no cluster \"member1\""},
	} {
		t.Run(change, func(t *testing.T) {
			i := clustertest.NewInstallation(t)
			i.Grant("dev", `{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"verbs":["*"]}`)
			i.AddCluster(name, clustertest.Kubeconfig("https://192.0.2.1", i.CA.PEM(), `{"token":"t"}`))
			members := cluster.NewMembers(cluster.Config{Objects: i.Objects, Secrets: i.Secrets})
			defer members.Close()
			g := New(Config{Members: members, Access: access.NewAuthorizer(access.Config{Store: i.Objects})})
			member, err := members.Get(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			tt.edit(i)
			c := &call{
				user:    &identity.User{Name: "ann", Groups: []string{"dev"}},
				request: route.Request{Route: route.Route{Cluster: name}},
			}
			err = g.checkStream(t.Context(), c, member, access.Cluster(name, http.MethodGet, nil))
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("the stream ends: %v", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// BenchmarkRecheck measures one check of an open stream, with the caches of a gateway on AWS. The bridge makes one for
// each stream at each interval.
func BenchmarkRecheck(b *testing.B) {
	const url = "https://gateway.example.com"
	i := clustertest.NewInstallation(b)
	i.Grant("dev", `{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"verbs":["*"]}`)
	i.AddCluster("member1", clustertest.Kubeconfig("https://192.0.2.1", i.CA.PEM(), `{"token":"t"}`))
	verifier := passes.NewVerifier(passes.Config{
		Objects: i.Objects, Secrets: i.Secrets, URL: url, Fresh: passes.RemoteFresh,
	})
	issuer := &passes.Issuer{Objects: i.Objects, Secrets: i.Secrets, URL: url}
	issued, err := issuer.Create(b.Context(), &passv1alpha1.Pass{
		ObjectMeta: metav1.ObjectMeta{Name: "ann"},
		Spec: passv1alpha1.PassSpec{
			User: "ann", Groups: []string{"dev"}, Clusters: []string{passv1alpha1.Any}, Verbs: []string{passv1alpha1.Any},
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	withPass, err := verifier.AuthenticateToken(b.Context(), string(issued.Token.Reveal()))
	if err != nil {
		b.Fatal(err)
	}
	leaf := i.ClientCertificate("ann", "dev").Leaf
	withCertificate := &identity.User{Name: "ann", Groups: []string{"dev"}, Expires: leaf.NotAfter}
	if err := verifier.CheckCertificate(b.Context(), leaf, withCertificate); err != nil {
		b.Fatal(err)
	}
	members := cluster.NewMembers(cluster.Config{Objects: i.Objects, Secrets: i.Secrets, Freshness: cluster.Remote})
	defer members.Close()
	g := New(Config{Members: members, Access: access.NewAuthorizer(access.Config{Store: i.Objects})})
	member, err := members.Get(b.Context(), "member1")
	if err != nil {
		b.Fatal(err)
	}
	for name, user := range map[string]*identity.User{"pass": withPass, "certificate": withCertificate} {
		b.Run(name, func(b *testing.B) {
			c := &call{user: user, request: route.Request{Route: route.Route{Cluster: "member1"}}}
			attrs := access.Cluster("member1", http.MethodGet, nil)
			b.ReportAllocs()
			for b.Loop() {
				if err := g.checkStream(b.Context(), c, member, attrs); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
