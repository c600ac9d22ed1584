// Package clustertest provides stores with registered clusters ([Installation]), and fake API servers of member
// clusters ([Member]), for tests.
package clustertest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/objects"
	objectsdir "github.com/clusterpass/clusterpass/shared/objects/dir"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/secrets"
	secretsdir "github.com/clusterpass/clusterpass/shared/secrets/dir"
)

// Installation has the stores, the client CA and the clock that all gateways of one installation share. Its methods
// fail the test on an error. Call them from the test's own goroutine.
type Installation struct {
	Dir     string // contains objects, secrets and the CA
	Objects objects.Store
	Secrets secrets.Store
	CA      *pki.CA // signs client certificates
	Clock   *Clock

	tb testing.TB
}

// NewInstallation returns an installation without clusters, in a directory that is removed when the test ends.
func NewInstallation(tb testing.TB) *Installation {
	tb.Helper()
	return open(tb, tb.TempDir(), &Clock{})
}

func open(tb testing.TB, dir string, clock *Clock) *Installation {
	tb.Helper()
	i := &Installation{Dir: dir, Clock: clock, tb: tb}
	objs, err := objectsdir.Open(filepath.Join(dir, "objects"))
	i.must(err)
	creds, err := secretsdir.Open(filepath.Join(dir, "secrets"))
	i.must(err)
	// A gateway may read in the background after its test. It must not create a lock file while the directory is removed.
	tb.Cleanup(func() { _, _ = objs.Close(), creds.Close() })
	i.Objects, i.Secrets = objs, creds
	i.CA, err = pki.LoadCA(dir, "client-ca")
	i.must(err)
	return i
}

// Reopen opens the stores once more, as another process would.
func (i *Installation) Reopen() *Installation {
	i.tb.Helper()
	return open(i.tb, i.Dir, i.Clock)
}

func (i *Installation) must(err error) {
	i.tb.Helper()
	if err != nil {
		i.tb.Fatal(err)
	}
}

// ClientCertificate returns a certificate of the CA by which a gateway identifies user.
func (i *Installation) ClientCertificate(user string, groups ...string) tls.Certificate {
	i.tb.Helper()
	cert, key, err := i.CA.Client(user, groups)
	i.must(err)
	pair, err := tls.X509KeyPair(cert, key)
	i.must(err)
	return pair
}

// AddCluster registers a cluster without any check. A nil kubeconfig stores no secret, and a nil edit changes nothing.
func (i *Installation) AddCluster(name string, kubeconfig []byte, edits ...func(*v1alpha1.ClusterSpec)) {
	i.tb.Helper()
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, edit := range edits {
		if edit != nil {
			edit(&c.Spec)
		}
	}
	value, err := json.Marshal(c)
	i.must(err)
	i.Create(v1alpha1.Prefix+name, string(value))
	if kubeconfig != nil {
		_, err = i.Secrets.Create(context.Background(), "clusters/"+name, secrets.NewValue(kubeconfig), nil)
		i.must(err)
	}
}

// EditCluster changes a cluster's object.
func (i *Installation) EditCluster(name string, edit func(*v1alpha1.Cluster)) {
	i.tb.Helper()
	o, err := i.Objects.Get(context.Background(), v1alpha1.Prefix+name)
	i.must(err)
	var c v1alpha1.Cluster
	i.must(json.Unmarshal(o.Value, &c))
	edit(&c)
	value, err := json.Marshal(&c)
	i.must(err)
	_, err = i.Objects.Update(context.Background(), o.Key, value, o.Revision)
	i.must(err)
}

// RotateSecret replaces a cluster's secret.
func (i *Installation) RotateSecret(name string, kubeconfig []byte) {
	i.tb.Helper()
	s, err := i.Secrets.Get(context.Background(), "clusters/"+name)
	i.must(err)
	_, err = i.Secrets.Replace(context.Background(), s.Name, s.Version, secrets.NewValue(kubeconfig))
	i.must(err)
}

// AddRegistry creates a ResourceRegistry with a spec in JSON.
func (i *Installation) AddRegistry(name, spec string) {
	i.tb.Helper()
	i.Create("resourceregistries/"+name, `{"metadata":{"name":"`+name+`"},"spec":`+spec+`}`)
}

// Grant gives a group a ClusterRole with rules, which are JSON objects separated by commas.
func (i *Installation) Grant(group, rules string) {
	i.tb.Helper()
	const meta = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":`
	i.Create("clusterroles/"+group, meta+`"ClusterRole","metadata":{"name":"`+group+`"},"rules":[`+rules+`]}`)
	i.Create("clusterrolebindings/"+group, meta+`"ClusterRoleBinding","metadata":{"name":"`+group+`"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"`+group+`"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"`+group+`"}]}`)
}

// Create stores an object.
func (i *Installation) Create(key, value string) {
	i.tb.Helper()
	_, err := i.Objects.Create(context.Background(), key, []byte(value))
	i.must(err)
}

// Delete deletes an object.
func (i *Installation) Delete(key string) {
	i.tb.Helper()
	o, err := i.Objects.Get(context.Background(), key)
	i.must(err)
	_, err = i.Objects.Delete(context.Background(), o.Key, o.Revision)
	i.must(err)
}

// Clock is the real time, moved forward. The zero value is the real time. It is safe for concurrent use.
type Clock struct{ ahead atomic.Int64 }

// Now returns the time of the clock.
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// Advance moves the clock forward.
func (c *Clock) Advance(d time.Duration) { c.ahead.Add(int64(d)) }

// InStores returns the installation with other stores. The CA and the clock stay.
func (i *Installation) InStores(objs objects.Store, creds secrets.Store) *Installation {
	moved := *i
	moved.Objects, moved.Secrets = objs, creds
	return &moved
}
