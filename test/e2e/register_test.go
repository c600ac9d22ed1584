package e2e

import (
	"path/filepath"
	"testing"

	"github.com/clusterpass/clusterpass/shared/cluster"
	objectsdir "github.com/clusterpass/clusterpass/shared/objects/dir"
	"github.com/clusterpass/clusterpass/shared/registration"
	"github.com/clusterpass/clusterpass/shared/secrets"
	secretsdir "github.com/clusterpass/clusterpass/shared/secrets/dir"
)

// register adds a cluster to the running gateway's stores.
func register(t *testing.T, name string, kubeconfig []byte) {
	t.Helper()
	made.Document("the registration of "+name, kubeconfig)
	data := filepath.Join(gateway(t).dir, "data")
	sec, err := secretsdir.Open(filepath.Join(data, "secrets"))
	if err != nil {
		t.Fatal(err)
	}
	obj, err := objectsdir.Open(filepath.Join(data, "objects"))
	if err != nil {
		t.Fatal(err)
	}
	r := &registration.Registrar{Secrets: sec, Objects: obj, Policy: cluster.DialPolicy{AllowLoopback: true}}
	if _, err := r.Register(t.Context(), registration.Request{Name: name, Kubeconfig: secrets.NewValue(kubeconfig), DirectUsers: []string{"nobody"}, Replace: true}); err != nil {
		t.Fatal(err)
	}
	gateway(t).note()
}
