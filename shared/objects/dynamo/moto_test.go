package dynamo

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/objects/storetest"
	"github.com/clusterpass/clusterpass/shared/storesuite"
)

const patience = 5 * time.Minute

var (
	moto   *mototest.Server
	tables atomic.Int64
)

func TestMain(m *testing.M) { mototest.Main(m, &moto) }

func front(t *testing.T) (*mototest.Front, func() *Store) {
	t.Helper()
	f := mototest.NewFront(t, moto.URL)
	table := fmt.Sprintf("test-%d", tables.Add(1))
	open := func() *Store {
		s, err := New(Config{
			AWS: mototest.Config(f.URL), Table: table, MinPoll: 10 * time.Millisecond, MaxPoll: 100 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		s.timeout = patience
		return s
	}
	if err := open().EnsureTable(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f, open
}

func startMoto(t *testing.T) (*mototest.Front, *Store) {
	t.Helper()
	f, open := front(t)
	s := open()
	if _, err := s.Create(t.Context(), storesuite.SampleName, []byte("v")); err != nil {
		t.Fatal(err)
	}
	return f, s
}

func compact(t *testing.T, s *Store, to uint64) {
	t.Helper()
	for rev := uint64(1); rev <= to; rev++ {
		expire(t, s, rev)
	}
}

func expire(t *testing.T, s *Store, rev uint64) {
	t.Helper()
	if _, err := s.client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{
		TableName: &s.cfg.Table, Key: logKey(rev),
	}); err != nil {
		t.Fatal(err)
	}
}

func TestStore(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	storetest.Run(t, storetest.Config{
		Config: storesuite.Config[objects.Store]{
			New: func(t *testing.T) func() objects.Store {
				_, open := front(t)
				return func() objects.Store { return open() }
			},
			Denied: func(t *testing.T) objects.Store {
				f, s := startMoto(t)
				f.Deny()
				return s
			},
			Throttled: func(t *testing.T) (objects.Store, func(int)) {
				f, open := front(t)
				return open(), f.Throttle
			},
		},
		Compact: func(t *testing.T, st objects.Store, to uint64) { compact(t, st.(*Store), to) },
	})
}
