package gateway

import (
	"net/http"
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
	for name, user := range map[string]*identity.User{"pass": withPass, "certificate": withCertificate} {
		b.Run(name, func(b *testing.B) {
			c := &call{user: user, request: route.Request{Route: route.Route{Cluster: "member1"}}}
			attrs := access.Cluster("member1", http.MethodGet, nil)
			b.ReportAllocs()
			for b.Loop() {
				if err := g.checkStream(b.Context(), c, v1alpha1.Impersonate, attrs); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
