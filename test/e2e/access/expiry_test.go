package access_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	objectsdir "github.com/clusterpass/clusterpass/shared/objects/dir"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/pki"
	secretsdir "github.com/clusterpass/clusterpass/shared/secrets/dir"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestExpiry: a stream must not outlive its caller's credential. TestPage does the same with an OpenID token.
func TestExpiry(t *testing.T) {
	const user = "expires"
	e2e.Grant(t, "member1", user)
	k := e2e.Kubectl{Kubeconfig: e2e.CertificateKubeconfig(t, user), Context: "member1"}
	waittest.Until(t, "user may call member1", func() bool {
		return k.Run(t, "get", "--raw", "/bridge/clusters/member1/version").Code == 0
	})
	h := e2e.Shared(t)
	data := filepath.Join(h.Dir, "data")
	ca, err := pki.LoadCA(filepath.Join(data, "pki"), "client-ca")
	if err != nil {
		t.Fatal(err)
	}
	sec, err := secretsdir.Open(filepath.Join(data, "secrets"))
	if err != nil {
		t.Fatal(err)
	}
	obj, err := objectsdir.Open(filepath.Join(data, "objects"))
	if err != nil {
		t.Fatal(err)
	}
	gw, err := kubeconfig.Read(h.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	const ttl = time.Hour // the issuer's clock is nearly as long ago
	pass := func(form v1alpha1.Form) func(t *testing.T, until time.Time) *clientcmdapi.AuthInfo {
		return func(t *testing.T, until time.Time) *clientcmdapi.AuthInfo {
			t.Helper()
			issuer := &passes.Issuer{Objects: obj, Secrets: sec, URL: gw.URL, CA: ca, Now: func() time.Time {
				return until.Add(-ttl)
			}}
			p := &v1alpha1.Pass{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("expires-%s-%d", form, until.Unix())},
				Spec: v1alpha1.PassSpec{
					User: user, Clusters: []string{"*"}, Verbs: []string{"*"}, TTL: metav1.Duration{Duration: ttl}, Form: form,
				}}
			issued, err := issuer.Create(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			h.NoteSecrets()
			return &clientcmdapi.AuthInfo{Token: string(issued.Token.Reveal()), ClientCertificateData: issued.Certificate,
				ClientKeyData: issued.Key.Reveal()}
		}
	}
	for name, credential := range map[string]func(t *testing.T, until time.Time) *clientcmdapi.AuthInfo{
		"a pass that is a token":       pass(v1alpha1.Token),
		"a pass that is a certificate": pass(v1alpha1.Certificate),
		"a certificate": func(t *testing.T, until time.Time) *clientcmdapi.AuthInfo {
			t.Helper()
			cert, key, err := ca.ClientUntil(user, nil, until)
			if err != nil {
				t.Fatal(err)
			}
			return &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e2e.CheckStreamsExpire(t, h, credential)
		})
	}
}
