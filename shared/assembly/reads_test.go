package assembly

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/objects/replica"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// readCounts counts the reads of each key.
type readCounts struct {
	mu    sync.Mutex
	reads map[string]int
}

func (c *readCounts) add(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads[key]++
}

type countedObjects struct {
	objects.Store
	*readCounts
}

func (c countedObjects) Get(ctx context.Context, key string) (objects.Object, error) {
	c.add(key)
	return c.Store.Get(ctx, key)
}

func (c countedObjects) List(ctx context.Context, prefix string, limit int, cont string) (objects.Page, error) {
	c.add(prefix)
	return c.Store.List(ctx, prefix, limit, cont)
}

func (c countedObjects) Revision(ctx context.Context) (uint64, error) {
	c.add("revision")
	return c.Store.Revision(ctx)
}

func (c countedObjects) Changes(ctx context.Context, from uint64, limit int) ([]objects.Event, uint64, error) {
	return objects.ChangesOf(ctx, c, from, limit)
}

type countedSecrets struct {
	secrets.Store
	*readCounts
}

func (c countedSecrets) Get(ctx context.Context, name string) (*secrets.Secret, error) {
	c.add("secret " + name)
	return c.Store.Get(ctx, name)
}

// Each request would cost money and time if a warm process read its stores more often.
func TestWarmProcessReadsEachObjectRarely(t *testing.T) {
	i := clustertest.NewInstallation(t)
	i.AddCluster("member1", fmt.Appendf(nil, memberKubeconfig, base64.StdEncoding.EncodeToString(i.CA.PEM())))
	counts := &readCounts{reads: map[string]int{}}
	clock := testingclock.NewFakeClock(time.Now())
	objs := replica.New(replica.Config{Store: countedObjects{i.Objects, counts}, MaxAge: maxRevisionAge, Now: clock.Now})
	members := cluster.NewMembers(cluster.Config{
		Objects: objs, Secrets: countedSecrets{i.Secrets, counts}, Freshness: cluster.Remote, Now: clock.Now,
	})
	defer members.Close()
	verifier := passes.NewVerifier(passes.Config{
		Objects: objs, Secrets: i.Secrets, URL: "https://gateway.example.com", Fresh: passes.RemoteFresh, Now: clock.Now,
	})
	authorizer := access.NewAuthorizer(access.Config{Store: objs, Now: clock.Now})
	certificate := i.ClientCertificate("alice", "dev")
	const perSecond = 6
	for range 60 * perSecond {
		u := &identity.User{Name: "alice", Groups: []string{"dev"}}
		if err := verifier.CheckCertificate(t.Context(), certificate.Leaf, u); err != nil {
			t.Fatal(err)
		}
		if _, err := authorizer.Policy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := members.Get(t.Context(), "member1"); err != nil {
			t.Fatal(err)
		}
		clock.Step(time.Second / perSecond)
	}
	counts.mu.Lock()
	defer counts.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(counts.reads)) {
		most := 2
		if key == "revision" {
			most = 60 // some 24 to 30; the authorizer and the caches may each begin a read
		}
		if n := counts.reads[key]; n > most+1 {
			t.Errorf("%s was read %d times in a minute, want at most %d", key, n, most)
		}
	}
	if len(counts.reads) < 5 {
		t.Errorf("only %v were read", counts.reads)
	}
}

const memberKubeconfig = `{"apiVersion":"v1","kind":"Config","current-context":"m",
"contexts":[{"name":"m","context":{"cluster":"m","user":"m"}}],
"clusters":[{"name":"m","cluster":{"server":"https://member1.example.com","certificate-authority-data":%q}}],
"users":[{"name":"m","user":{"token":"t"}}]}`
