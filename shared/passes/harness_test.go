package passes

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/status"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const gatewayURL = "https://gateway.example.com"

type failingStore struct {
	objects.Store
	isDown atomic.Bool
	keys   atomic.Int64 // reads of sets of keys
}

func (d *failingStore) Get(ctx context.Context, key string) (objects.Object, error) {
	if strings.HasPrefix(key, "keys/") {
		d.keys.Add(1)
	}
	if d.isDown.Load() {
		return objects.Object{}, objects.Unavailable(errors.New("out of order"), time.Second)
	}
	return d.Store.Get(ctx, key)
}

type testGateway struct {
	*Issuer
	*Verifier
	t     *testing.T
	clock *testingclock.FakeClock
	store *failingStore
}

func newTestGateway(t *testing.T) *testGateway {
	t.Helper()
	o := &testGateway{t: t, clock: testingclock.NewFakeClock(time.Now())}
	i := clustertest.NewInstallation(t)
	o.store = &failingStore{Store: i.Objects}
	o.Issuer = &Issuer{Objects: i.Objects, Secrets: i.Secrets, URL: gatewayURL, CA: i.CA, Now: o.clock.Now}
	o.Verifier = NewVerifier(Config{
		Objects: o.store, Secrets: i.Secrets, URL: gatewayURL, Fresh: RemoteFresh, Now: o.clock.Now,
	})
	return o
}

func (o *testGateway) issue(name string, change func(*v1alpha1.PassSpec)) *Issued {
	o.t.Helper()
	p := &v1alpha1.Pass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PassSpec{
		User: "ann", Groups: []string{"ops", "dev"}, Clusters: []string{"member1"}, Verbs: []string{"get"},
	}}
	if change != nil {
		change(&p.Spec)
	}
	issued, err := o.Create(o.t.Context(), p)
	if err != nil {
		o.t.Fatal(err)
	}
	return issued
}

func certificate(s *v1alpha1.PassSpec) { s.Form = v1alpha1.Certificate }

func (o *testGateway) authenticate(issued *Issued) (*identity.User, error) {
	o.t.Helper()
	if issued.Pass.Spec.Form == v1alpha1.Token {
		return o.AuthenticateToken(o.t.Context(), string(issued.Token.Reveal()))
	}
	pair, err := tls.X509KeyPair(issued.Certificate, issued.Key.Reveal())
	if err != nil {
		o.t.Fatal(err)
	}
	return o.authenticateLeaf(pair.Leaf)
}

func (o *testGateway) authenticateLeaf(leaf *x509.Certificate) (*identity.User, error) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
	return identity.X509{
		CA: identity.NewClientCA(o.CA.Pool(), o.clock.Now), Peer: identity.TLSPeer, Inspect: o.CheckCertificate,
	}.Authenticate(r)
}

func (o *testGateway) wantRefused(u *identity.User, err error, message string) {
	o.t.Helper()
	o.want(u, err, status.Unauthenticated, message)
}

func (o *testGateway) want(u *identity.User, err error, reason status.Reason, message string) {
	o.t.Helper()
	if err == nil {
		o.t.Fatalf("accepted as %+v, want: %s", u, message)
	}
	if e := status.From(err); u != nil || e.Reason != reason || !strings.Contains(e.Message, message) {
		o.t.Errorf("%+v, %s: %s (%v)\nwant %s: %s", u, e.Reason, e.Message, e.Err, reason, message)
	}
}

var forms = map[string]func(*v1alpha1.PassSpec){"token": nil, "certificate": certificate}
