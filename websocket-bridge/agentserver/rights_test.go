package agentserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/credential"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/links"
	"github.com/clusterpass/clusterpass/websocket-bridge/agentserver"
)

// TestRevocation: an agent must lose its tunnel, and not reconnect, after its right has ended.
func TestRevocation(t *testing.T) {
	for name, revoke := range map[string]func(w *world) error{
		"revoked": func(w *world) error { return w.issuer.RevokeAgent(context.Background(), "prod") },
		"removed": func(w *world) error {
			o, err := w.Objects.Get(context.Background(), "clusters/prod")
			if err == nil {
				_, err = w.Objects.Delete(context.Background(), o.Key, o.Revision)
			}
			return err
		},
		"expired": func(w *world) error { w.Clock.Advance(2 * time.Hour); return nil },
		"discarded": func(w *world) error {
			err := w.issuer.RotateKey(context.Background(), true)
			w.Clock.Advance(time.Minute) // by then keys are read again
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			r := w.replica()
			token := w.enrol("prod", time.Hour)
			w.agent("prod", token, w.front.address())
			c := w.client("prod", r.port)
			waittest.Until(t, "an agent is connected", func() bool { return w.version(c) == nil })
			s, err := w.echo(c)
			if err != nil {
				t.Fatal(err)
			}
			if err := revoke(w); err != nil {
				t.Fatal(err)
			}
			if err := s.ended(); err == nil {
				t.Error("its stream goes on")
			}
			if _, err := w.keys.AuthenticateAgent(t.Context(), "prod", w.present(token, possession.Connect, "")); err == nil {
				t.Error("its credential is taken")
			}
			if err := w.version(c); err == nil {
				t.Error("a call goes through")
			}
		})
	}
}

// TestTunnelOutlivesCredential: streams must not end because the credential that opened the tunnel has expired.
func TestTunnelOutlivesCredential(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	first := w.enrol("prod", 20*time.Hour)
	var (
		current atomic.Pointer[possession.Credential]
		sent    atomic.Int64 // how often the agent was asked
	)
	current.Store(&first)
	w.agent("prod", first, w.front.address(), func(c *links.Config) {
		c.Credential = func(context.Context) (possession.Credential, error) { sent.Add(1); return *current.Load(), nil }
	})
	r.connects(t, 1)
	s, err := w.echo(w.client("prod", r.port))
	if err != nil {
		t.Fatal(err)
	}
	w.Clock.Advance(time.Minute)
	next := w.exchange("prod", first, func(a *passes.Agent) { a.TTL = 25 * time.Hour })
	current.Store(&next)
	more := func(n int64) {
		t.Helper()
		before := sent.Load()
		waittest.Until(t, "the agent is asked for its credential", func() bool { return sent.Load() >= before+n })
	}
	w.Clock.Advance(19 * time.Hour) // the last quarter of both
	more(10)                        // by then the bridge has processed an answer, even on a slow machine
	w.Clock.Advance(3 * time.Hour)  // the first one has expired
	more(3)                         // after checks of the tunnel's credential
	if err := s.send(); err != nil {
		t.Errorf("a stream has ended with the agent's first credential: %v", err)
	}
}

// TestRechecksSideBySide: a slow store for one agent must not delay the check of others.
func TestRechecksSideBySide(t *testing.T) {
	w := newWorld(t)
	meet := &meeting{Store: w.Objects, both: make(chan struct{}), of: map[string]bool{}}
	r := w.replica(func(c *agentserver.Config) {
		c.Verifier = passes.NewVerifier(passes.Config{Objects: meet, Secrets: w.issuer.Secrets, URL: gatewayURL, Log: w.log})
	})
	for _, name := range []string{"one", "two"} {
		w.agent(name, w.enrol(name, time.Hour), w.front.address())
	}
	r.connects(t, 2)
	meet.on.Store(true)
	select {
	case <-meet.both:
	case <-time.After(waittest.Patience):
		t.Error("they are looked at one after the other")
	}
}

// meeting is a store. When it is on, a read of one cluster waits for a read of the other.
type meeting struct {
	objects.Store
	on   atomic.Bool
	both chan struct{} // closed when both have arrived

	mu sync.Mutex
	of map[string]bool // the waiting reads
}

func (m *meeting) Get(ctx context.Context, key string) (objects.Object, error) {
	if m.on.Load() && (key == "clusters/one" || key == "clusters/two") {
		m.wait(ctx, key)
	}
	return m.Store.Get(ctx, key)
}

func (m *meeting) wait(ctx context.Context, key string) {
	m.mu.Lock()
	m.of[key] = true
	if len(m.of) == 2 && m.on.CompareAndSwap(true, false) {
		close(m.both)
	}
	m.mu.Unlock()
	select {
	case <-m.both:
	case <-ctx.Done():
		m.mu.Lock()
		delete(m.of, key)
		m.mu.Unlock()
	}
}

func TestJoinedAgain(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	file := credential.File(filepath.Join(t.TempDir(), "credential"))
	w.store(file, w.bootstrap("prod", 2*time.Hour))
	c := w.credential("prod", file, r)
	current := func(cfg *links.Config) { cfg.Credential = c.Current }
	a := w.agent("prod", possession.Credential{}, w.front.address(), current)
	r.connects(t, 1)
	var cluster v1alpha1.Cluster
	o, err := w.Objects.Get(t.Context(), v1alpha1.Prefix+"prod")
	if err == nil {
		err = json.Unmarshal(o.Value, &cluster)
	}
	if err != nil {
		t.Fatal(err)
	}
	second, err := w.issuer.EnrolAgent(t.Context(), &cluster, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the first credential has ended", func() bool { return a.Links() == 0 })
	r.connects(t, 0)
	w.store(file, second)
	r.connects(t, 1)
}

// TestRefusedClientsFreeThePort: a refused client must not keep its connection open with an endless body.
func TestRefusedClientsFreeThePort(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t)
	w.enrol("prod", time.Hour) // creates the keys
	r := w.replica()
	conn, err := net.Dial("tcp", r.port)
	if err != nil {
		t.Fatal(err)
	}
	tc := tlsClient(conn)
	defer tc.Close()
	_ = tc.SetDeadline(time.Now().Add(waittest.Patience))
	if _, err := io.WriteString(tc, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	sent, err := io.ReadAll(tc)
	if errors.Is(err, os.ErrDeadlineExceeded) || !strings.HasPrefix(string(sent), "HTTP/1.1 400 ") {
		t.Errorf("%.100s, %v", sent, err)
	}
}
