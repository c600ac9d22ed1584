package awssecrets

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/secrets/storetest"
	"github.com/clusterpass/clusterpass/shared/storesuite"
)

const patience = 5 * time.Minute

var (
	moto     *mototest.Server
	prefixes atomic.Int64
)

func TestMain(m *testing.M) { mototest.Main(m, &moto) }

func front(t *testing.T) (*mototest.Front, func() *Store) {
	t.Helper()
	f := mototest.NewFront(t, moto.URL)
	prefix := fmt.Sprintf("test-%d/", prefixes.Add(1))
	return f, func() *Store {
		s, err := New(Config{AWS: mototest.Config(f.URL), Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		s.timeout = patience
		return s
	}
}

func startMoto(t *testing.T) (*mototest.Front, *Store) {
	t.Helper()
	f, open := front(t)
	s := open()
	if _, err := s.Create(t.Context(), storesuite.SampleName, secrets.NewValue([]byte("v")), nil); err != nil {
		t.Fatal(err)
	}
	return f, s
}

func TestStore(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	storetest.Run(t, storetest.Config{
		New: func(t *testing.T) func() secrets.Store {
			_, open := front(t)
			return func() secrets.Store { return open() }
		},
		Denied: func(t *testing.T) secrets.Store {
			f, s := startMoto(t)
			f.Deny()
			return s
		},
		Throttled: func(t *testing.T) (secrets.Store, func(int)) {
			f, open := front(t)
			return open(), f.Throttle
		},
	})
}
