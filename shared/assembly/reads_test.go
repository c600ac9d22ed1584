package assembly

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
	certificate := i.ClientCertificate("alice", "dev")
	now := time.Now()                     // when the certificate is valid
	synctest.Test(t, func(t *testing.T) { // a read in the background ends before the next request
		begun := time.Now()
		counts := &readCounts{reads: map[string]int{}}
		call := caller(t, i, counts, certificate.Leaf, func() time.Time { return now.Add(time.Since(begun)) })
		const perSecond = 6
		repeat := func(seconds int) {
			for range seconds * perSecond {
				call()
				time.Sleep(time.Second / perSecond)
				synctest.Wait()
			}
		}
		repeat(10) // the first results are not cached, see settleTime of package replica
		cold := counts.reads
		counts.reads = map[string]int{}
		repeat(60)
		for key, n := range counts.reads {
			most := 2
			if key == "revision" {
				most = 60 // some 24 to 30; the authorizer and the caches may each begin a read
			}
			if n > most {
				t.Errorf("%s was read %d times in a minute, want at most %d", key, n, most)
			}
		}
		if len(cold) < 5 || counts.reads["revision"] == 0 {
			t.Errorf("cold, %v were read; warm, %v", cold, counts.reads)
		}
		wantReadsOfCostPage(t, counts.reads)
	})
}

// wantReadsOfCostPage fails the test unless a page for operators has these numbers of reads in a minute.
func wantReadsOfCostPage(t *testing.T, reads map[string]int) {
	t.Helper()
	text, err := os.ReadFile("../../docs/explanation/cost.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("\n\\| `GetItem` of the store's revision \\| ([0-9]+) a minute ").FindSubmatch(text)
	if len(row) != 2 {
		t.Fatal("docs/explanation/cost.md does not say how often the revision is read")
	}
	stated, _ := strconv.Atoi(string(row[1]))
	if got := reads["revision"]; got > stated || got < stated*3/4 {
		t.Errorf("the revision was read %d times in a minute, and docs/explanation/cost.md has %d", got, stated)
	}
	if !regexp.MustCompile("\n\\| `GetSecretValue`,[^\n]* \\| one a minute for each cluster ").Match(text) {
		t.Error("docs/explanation/cost.md does not say that a cluster's secret is read once a minute")
	}
	if !strings.Contains(string(text), "\ngo run ./test/bench aws\n") {
		t.Error("docs/explanation/cost.md does not name the command that counts the reads")
	}
}

// caller returns a function that reads what a request of alice to member1 reads.
func caller(
	t *testing.T, i *clustertest.Installation, counts *readCounts, leaf *x509.Certificate, now func() time.Time,
) func() {
	t.Helper()
	objs := replica.New(replica.Config{Store: countedObjects{i.Objects, counts}, MaxAge: maxRevisionAge, Now: now})
	members := cluster.NewMembers(cluster.Config{
		Objects: objs, Secrets: countedSecrets{i.Secrets, counts}, Freshness: cluster.Remote, Now: now,
	})
	t.Cleanup(members.Close)
	verifier := passes.NewVerifier(passes.Config{
		Objects: objs, Secrets: i.Secrets, URL: "https://gateway.example.com", Fresh: passes.RemoteFresh, Now: now,
	})
	authorizer := access.NewAuthorizer(access.Config{Store: objs, Now: now})
	return func() {
		u := &identity.User{Name: "alice", Groups: []string{"dev"}}
		if err := verifier.CheckCertificate(t.Context(), leaf, u); err != nil {
			t.Fatal(err)
		}
		if _, err := authorizer.Policy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := members.Get(t.Context(), "member1"); err != nil {
			t.Fatal(err)
		}
	}
}

const memberKubeconfig = `{"apiVersion":"v1","kind":"Config","current-context":"m",
"contexts":[{"name":"m","context":{"cluster":"m","user":"m"}}],
"clusters":[{"name":"m","cluster":{"server":"https://member1.example.com","certificate-authority-data":%q}}],
"users":[{"name":"m","user":{"token":"t"}}]}`
