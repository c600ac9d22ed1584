package passes

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/status"
)

// While the store is down, callers must stay authenticated for MaxAge, but no longer: passes may be revoked.
func TestOutage(t *testing.T) {
	o := newTestGateway(t)
	token, cert := o.issue("token", nil), o.issue("cert", certificate)
	plain, key, err := o.CA.Client("bob", nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(plain, key)
	if err != nil {
		t.Fatal(err)
	}
	authenticators := map[string]func() (*identity.User, error){
		"token":       func() (*identity.User, error) { return o.authenticate(token) },
		"certificate": func() (*identity.User, error) { return o.authenticate(cert) },
		"plain":       func() (*identity.User, error) { return o.authenticateLeaf(pair.Leaf) },
	}
	users := map[string]*identity.User{}
	for name, a := range authenticators {
		if users[name], err = a(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	o.store.isDown.Store(true)
	for _, d := range []time.Duration{RemoteFresh, MaxAge - 2*RemoteFresh} {
		o.clock.Step(d)
		for name, a := range authenticators {
			if _, err := a(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	o.clock.Step(2 * RemoteFresh)
	for name, a := range authenticators {
		u, err := a()
		o.want(u, err, status.StoreUnavailable, "your credential cannot be checked: the gateway's store fails now")
		o.want(nil, users[name].Recheck(t.Context()), status.StoreUnavailable, "your credential cannot be checked")
	}
	unknown := newTestGateway(t)
	unknown.store.isDown.Store(true)
	u, err := unknown.authenticate(unknown.issue("new", nil))
	o.want(u, err, status.StoreUnavailable, "your credential cannot be checked")
	_, err = unknown.public(t.Context()) // read without a credential
	o.want(nil, err, status.StoreUnavailable, "the keys that verify passes cannot be read")
	o.store.isDown.Store(false)
	o.clock.Step(retry)
	for name, a := range authenticators {
		if _, err := a(); err != nil {
			t.Errorf("up again: %s: %v", name, err)
		}
	}
}
