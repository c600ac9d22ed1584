package credential_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/version"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/credential"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// bridge returns a credential to every caller without verifying the caller's one. Agents read only the lifetime.
type bridge struct {
	*httptest.Server
	t      *testing.T
	signer jose.Signer

	mu    sync.Mutex
	given []secrets.Value
}

func newBridge(t *testing.T, life time.Duration) *bridge {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	b := &bridge{t: t}
	if b.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil); err != nil {
		t.Fatal(err)
	}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.UserAgent() != version.UserAgent() {
			t.Errorf("the credential is renewed with the User-Agent %q", r.UserAgent())
		}
		_, _ = w.Write(b.give(time.Now(), life).Reveal())
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *bridge) give(begin time.Time, life time.Duration) secrets.Value {
	b.mu.Lock()
	defer b.mu.Unlock()
	token, err := jwt.Signed(b.signer).Claims(jwt.Claims{
		ID: fmt.Sprint(len(b.given)), IssuedAt: jwt.NewNumericDate(begin), Expiry: jwt.NewNumericDate(begin.Add(life)),
	}).Serialize()
	if err != nil {
		b.t.Error(err)
	}
	b.given = append(b.given, secrets.NewValue([]byte(token)))
	return b.given[len(b.given)-1]
}

func (b *bridge) number(v secrets.Value) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, g := range b.given {
		if g.Equal(v) {
			return i
		}
	}
	return -1
}

func (b *bridge) agent(store credential.Store) (c *credential.Credential, run func()) {
	b.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	c = &credential.Credential{
		Store: store, Cluster: "prod", URL: b.URL, Client: client, Log: slog.New(slog.DiscardHandler),
	}
	return c, func() {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { defer close(ended); c.Run(ctx) }()
		b.t.Cleanup(func() { cancel(); <-ended })
	}
}

func (b *bridge) file(begin time.Time, life time.Duration) credential.File {
	b.t.Helper()
	f := credential.File(filepath.Join(b.t.TempDir(), "credential"))
	b.write(f, b.give(begin, life))
	return f
}

func (b *bridge) write(f credential.File, v secrets.Value) {
	b.t.Helper()
	if err := os.WriteFile(string(f), v.Reveal(), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bridge) stored(f credential.File) int {
	b.t.Helper()
	s, err := f.Load(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return b.number(s.State.Token)
}

func TestRun(t *testing.T) {
	b := newBridge(t, 4*time.Second)
	file := b.file(time.Now(), time.Hour)
	c, run := b.agent(file)
	run()
	waittest.Until(t, "it stores its third credential", func() bool { return b.stored(file) >= 3 })
	if got, err := c.Current(t.Context()); err != nil || b.number(got.Token) < 3 || got.Key == nil {
		t.Errorf("it has number %d, %v", b.number(got.Token), err)
	}
}

// TestKeyNeverLeaves: anyone who reads the agent's requests must not be able to act as the agent.
func TestKeyNeverLeaves(t *testing.T) {
	b := newBridge(t, time.Hour)
	sent := &waittest.Buffer{}
	handler := b.Config.Handler
	b.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.Write(sent)
		handler.ServeHTTP(w, r)
	})
	file := b.file(time.Now(), time.Hour)
	c, _ := b.agent(file)
	if _, err := c.Current(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := file.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(s.State.Key.Reveal())
	if block == nil {
		t.Fatal("no key is stored")
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	private, err := key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	request := regexp.MustCompile(possession.RequestHeader + `: (\S+)`).FindStringSubmatch(sent.String())
	if request == nil {
		t.Fatalf("no request was sent: %s", sent.String())
	}
	der, err := base64.StdEncoding.DecodeString(request[1])
	if err != nil || bytes.Contains(der, private) || strings.Contains(sent.String(), "PRIVATE KEY") {
		t.Errorf("the key was sent, %v", err)
	}
	info, err := os.Stat(string(file) + credential.StateSuffix)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key is in a file of mode %v, %v", info.Mode(), err)
	}
}

// TestStoredLater: a renewed credential that could not be stored must not wait for the next renewal. Until then the
// agent connects with it.
func TestStoredLater(t *testing.T) {
	b := newBridge(t, 24*time.Hour) // the next renewal is long after this test
	store := &broken{File: b.file(time.Now(), time.Hour)}
	store.most.Store(1)
	c, run := b.agent(store)
	got, err := c.Current(t.Context())
	if err != nil || b.number(got.Token) != 1 || b.stored(store.File) != -1 {
		t.Fatalf("it has number %d, %v", b.number(got.Token), err)
	}
	store.most.Store(100)
	run()
	waittest.Until(t, "one is stored", func() bool { return b.stored(store.File) >= 1 })
}

// TestUnreadableStore: the agent connects without its store in the first half of the lifetime. Later another agent may
// have renewed the credential, and the gateway would report a theft.
func TestUnreadableStore(t *testing.T) {
	b := newBridge(t, 24*time.Hour)
	store := &broken{File: b.file(time.Now(), time.Hour)}
	store.most.Store(100)
	c, _ := b.agent(store)
	ahead := time.Duration(0)
	c.Now = func() time.Time { return time.Now().Add(ahead) }
	if _, err := c.Current(t.Context()); err != nil {
		t.Fatal(err)
	}
	store.dark.Store(true)
	if _, err := c.Current(t.Context()); err != nil {
		t.Errorf("early: %v", err)
	}
	ahead = 13 * time.Hour
	if _, err := c.Current(t.Context()); err == nil {
		t.Error("late, it connects with a credential that may have been renewed")
	}
}

// TestLongResponseIsRefused: a truncated page of a proxy must not become part of a token.
func TestLongResponseIsRefused(t *testing.T) {
	b := newBridge(t, time.Hour)
	long := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 17<<10))
	}))
	t.Cleanup(long.Close)
	c, _ := b.agent(b.file(time.Now(), time.Hour))
	c.URL = long.URL
	if err := c.Renew(t.Context()); err == nil || !strings.Contains(err.Error(), "over 16384 bytes") {
		t.Errorf("%v", err)
	}
}

// roundTripper is the response of a bridge to every request.
type roundTripper func() *http.Response

func (r roundTripper) RoundTrip(*http.Request) (*http.Response, error) { return r(), nil }

// TestRefusal: the log must have the bridge's message to its end, which has the next step. An agent that is refused
// until it is joined again must not ask every second.
func TestRefusal(t *testing.T) {
	b := newBridge(t, time.Hour)
	file := b.file(time.Now(), time.Hour)
	synctest.Test(t, func(t *testing.T) {
		const todo = "have the cluster join again"
		asked := 0
		c := &credential.Credential{
			Store: file, Cluster: "prod", URL: "https://gateway.example.com", Log: slog.New(slog.DiscardHandler),
			Client: &http.Client{Transport: roundTripper(func() *http.Response {
				asked++
				w := httptest.NewRecorder()
				status.Write(w, status.New(status.Unauthenticated, "", "%s; %s", strings.Repeat("long ", 100), todo))
				return w.Result()
			})},
		}
		if err := c.Renew(t.Context()); err == nil || !strings.HasSuffix(err.Error(), todo) ||
			strings.Contains(err.Error(), `"kind"`) {
			t.Errorf("the error is %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Second)
		defer cancel()
		asked = 0
		if c.Run(ctx); asked < 2 || asked > 7 {
			t.Errorf("it asks %d times a minute", asked)
		}
	})
}

// TestManifestIsAppliedAgain: a GitOps controller applies the manifest at any time. Exchanging its credential again
// would look like a theft.
func TestManifestIsAppliedAgain(t *testing.T) {
	b := newBridge(t, 24*time.Hour)
	file := b.file(time.Now(), time.Hour)
	same, err := file.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, _ := b.agent(file)
	current := func() int {
		t.Helper()
		got, err := c.Current(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return b.number(got.Token)
	}
	if n := current(); n != 1 {
		t.Errorf("it has number %d", n)
	}
	b.write(file, same.Bootstrap)
	if n := current(); n != 1 {
		t.Errorf("it has number %d after the same manifest", n)
	}
	b.write(file, b.give(time.Now(), time.Hour)) // number 2
	if n := current(); n != 3 {
		t.Errorf("it has number %d after another manifest", n)
	}
}

type broken struct {
	credential.File
	most atomic.Int64
	dark atomic.Bool
}

func (b *broken) Load(ctx context.Context) (credential.Stored, error) {
	if b.dark.Load() {
		return credential.Stored{}, errors.New("dark")
	}
	return b.File.Load(ctx)
}

func (b *broken) Save(ctx context.Context, old credential.Stored, s credential.State) error {
	if b.most.Add(-1) < 0 {
		return errors.New("down")
	}
	return b.File.Save(ctx, old, s)
}
