package credential_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/credential"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// bridge gives whoever asks a credential, whatever it is shown: the agent's side looks at their time alone.
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
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(b.give(time.Now(), life).Reveal())
	}))
	t.Cleanup(b.Close)
	return b
}

// give makes a credential that is good for life from begin on.
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

// number is how manyth a credential is that was given; -1 for one that was not.
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

// agent returns one that has loaded what is stored, and what has it renew that until the test ends.
func (b *bridge) agent(store credential.Store) (c *credential.Credential, run func()) {
	b.t.Helper()
	c = &credential.Credential{Store: store, URL: b.URL, Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, Log: slog.New(slog.DiscardHandler)}
	if err := c.Load(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	return c, func() {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { defer close(ended); c.Run(ctx) }()
		b.t.Cleanup(func() { cancel(); <-ended })
	}
}

// TestRun holds: a credential is renewed in the middle of its life, and its successors too, and each is stored.
func TestRun(t *testing.T) {
	b := newBridge(t, 4*time.Second)
	file := credential.File(filepath.Join(t.TempDir(), "credential"))
	if err := file.Save(t.Context(), b.give(time.Now(), 4*time.Second)); err != nil {
		t.Fatal(err)
	}
	c, run := b.agent(file)
	run()
	waittest.Until(t, "it has its third credential", func() bool { return b.number(c.Token()) >= 2 })
	waittest.Until(t, "that is stored", func() bool {
		v, err := file.Load(t.Context())
		return err == nil && b.number(v) >= 2
	})
}

// TestStoredLater holds: a renewed credential that could not be stored is stored as soon as that is possible, and not with the next renewal.
func TestStoredLater(t *testing.T) {
	b := newBridge(t, 24*time.Hour) // the next renewal is long after this test
	store := &broken{File: credential.File(filepath.Join(t.TempDir(), "credential"))}
	if err := store.File.Save(t.Context(), b.give(time.Now().Add(-90*time.Minute), 2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	store.down.Store(true)
	c, run := b.agent(store)
	if err := c.Renew(t.Context()); err == nil || b.number(c.Token()) != 1 {
		t.Fatalf("it has number %d, and says %v", b.number(c.Token()), err)
	}
	store.down.Store(false)
	store.dark.Store(true)
	if err := c.Renew(t.Context()); err == nil || store.saved.Load() != 0 {
		t.Errorf("what cannot be read is replaced: %v", err)
	}
	store.dark.Store(false)
	run()
	waittest.Until(t, "it is stored", func() bool {
		v, err := store.File.Load(t.Context())
		return err == nil && b.number(v) == 1
	})
}

// TestReload holds: in place of a credential that was refused another is taken that is stored and good, also where that is older and ends
// before; and in place of one that was not, only a later one.
func TestReload(t *testing.T) {
	b := newBridge(t, time.Hour)
	now := time.Now()
	for name, tt := range map[string]struct {
		stored time.Duration // until its end
		other  bool          // one was refused that is not the present one
		want   int
	}{
		"good":              {time.Hour, false, 1},
		"ended":             {-time.Minute, false, 0},
		"another's refusal": {time.Hour, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			present := b.give(now, 2*time.Hour)
			stored := b.give(now.Add(-2*time.Hour), 2*time.Hour+tt.stored)
			all := []secrets.Value{present, stored}
			file := credential.File(filepath.Join(t.TempDir(), "credential"))
			if err := file.Save(t.Context(), present); err != nil {
				t.Fatal(err)
			}
			c, _ := b.agent(file)
			if err := file.Save(t.Context(), stored); err != nil {
				t.Fatal(err)
			}
			refused := present
			if tt.other {
				refused = b.give(now, time.Hour)
			}
			c.Reload(t.Context(), refused)
			if !c.Token().Equal(all[tt.want]) {
				t.Errorf("it has number %d of those given", b.number(c.Token()))
			}
		})
	}
}

// broken is a Store that cannot be written while it is down, nor read while it is dark.
type broken struct {
	credential.File
	down, dark atomic.Bool
	saved      atomic.Int64 // how often something was
}

func (b *broken) Load(ctx context.Context) (secrets.Value, error) {
	if b.dark.Load() {
		return secrets.Value{}, errors.New("dark")
	}
	return b.File.Load(ctx)
}

func (b *broken) Save(ctx context.Context, v secrets.Value) error {
	if b.down.Load() {
		return errors.New("down")
	}
	b.saved.Add(1)
	return b.File.Save(ctx, v)
}
