package assembly

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
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
	leaf := i.ClientCertificate("alice", "dev").Leaf
	issuer := &passes.Issuer{Objects: i.Objects, Secrets: i.Secrets, URL: gatewayURL}
	issued, err := issuer.Create(t.Context(), &v1alpha1.Pass{ObjectMeta: metav1.ObjectMeta{Name: "ci"},
		Spec: v1alpha1.PassSpec{User: "alice", Groups: []string{"dev"}, Clusters: []string{"*"}, Verbs: []string{"get"}}})
	if err != nil {
		t.Fatal(err)
	}
	pass := string(issued.Token.Reveal())
	now := time.Now() // when the certificate and the pass are valid
	for name, tt := range map[string]struct {
		calls     func(*process) []func(context.Context) error
		wantReads int // of different objects, by a cold process
	}{
		"certificate, one cluster": {func(p *process) []func(context.Context) error {
			return []func(context.Context) error{p.checkCertificate(leaf), p.readRoles, p.findCluster}
		}, 5},
		"pass, one cluster": {func(p *process) []func(context.Context) error {
			return []func(context.Context) error{p.checkPass(pass), p.readRoles, p.findCluster}
		}, 5},
		"pass, the fleet": {func(p *process) []func(context.Context) error {
			return []func(context.Context) error{p.checkPass(pass), p.readRoles, p.listFleet, p.findCluster}
		}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // a read in the background ends before the next request
				begun := time.Now()
				p := newProcess(t, i, func() time.Time { return now.Add(time.Since(begun)) })
				calls := tt.calls(p)
				const perSecond = 6
				repeat := func(seconds int) {
					for range seconds * perSecond {
						for _, call := range calls {
							if err := call(t.Context()); err != nil {
								t.Fatal(err)
							}
						}
						time.Sleep(time.Second / perSecond)
						synctest.Wait()
					}
				}
				repeat(10) // the first results are not cached, see settleTime of package replica
				cold := p.reads
				p.reads = map[string]int{}
				repeat(60)
				for key, n := range p.reads {
					most := 2
					if key == "revision" {
						most = 30
					}
					if n > most {
						t.Errorf("%s was read %d times in a minute, want at most %d", key, n, most)
					}
				}
				if len(cold) < tt.wantReads || p.reads["revision"] == 0 {
					t.Errorf("cold, %v were read; warm, %v", cold, p.reads)
				}
				wantReadsOfCostPage(t, p.reads)
			})
		})
	}
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

const gatewayURL = "https://gateway.example.com"

// process is what a warm process keeps between the requests of alice.
type process struct {
	*readCounts
	members    *cluster.Members
	verifier   *passes.Verifier
	authorizer *access.Authorizer
	fleet      *members.Pool
}

func newProcess(t *testing.T, i *clustertest.Installation, now func() time.Time) *process {
	t.Helper()
	p := &process{readCounts: &readCounts{reads: map[string]int{}}}
	objs := replica.New(replica.Config{Store: countedObjects{i.Objects, p.readCounts}, MaxAge: maxRevisionAge, Now: now})
	secretStore := countedSecrets{i.Secrets, p.readCounts}
	p.members = cluster.NewMembers(cluster.Config{
		Objects: objs, Secrets: secretStore, Freshness: cluster.Remote, Now: now,
	})
	t.Cleanup(p.members.Close)
	p.verifier = passes.NewVerifier(passes.Config{
		Objects: objs, Secrets: secretStore, URL: gatewayURL, Fresh: passes.RemoteFresh, Now: now,
	})
	p.authorizer = access.NewAuthorizer(access.Config{Store: objs, Now: now})
	p.fleet = members.NewPool(members.Config{
		Objects: objs, Members: p.members, Freshness: cluster.Remote.Object, Now: now, Log: slog.New(slog.DiscardHandler),
	})
	return p
}

func (p *process) checkCertificate(leaf *x509.Certificate) func(context.Context) error {
	return func(ctx context.Context) error {
		return p.verifier.CheckCertificate(ctx, leaf, &identity.User{Name: "alice", Groups: []string{"dev"}})
	}
}

func (p *process) checkPass(token string) func(context.Context) error {
	return func(ctx context.Context) error {
		u, err := p.verifier.AuthenticateToken(ctx, token)
		if err == nil && u == nil {
			err = errors.New("the pass identifies no user")
		}
		return err
	}
}

func (p *process) readRoles(ctx context.Context) error {
	_, err := p.authorizer.Policy(ctx)
	return err
}

func (p *process) findCluster(ctx context.Context) error {
	_, err := p.members.Get(ctx, "member1")
	return err
}

func (p *process) listFleet(ctx context.Context) error {
	_, err := p.fleet.Inventory(ctx)
	return err
}

const memberKubeconfig = `{"apiVersion":"v1","kind":"Config","current-context":"m",
"contexts":[{"name":"m","context":{"cluster":"m","user":"m"}}],
"clusters":[{"name":"m","cluster":{"server":"https://member1.example.com","certificate-authority-data":%q}}],
"users":[{"name":"m","user":{"token":"t"}}]}`
