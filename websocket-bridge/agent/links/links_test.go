package links_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/version"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/links"
	"github.com/clusterpass/clusterpass/websocket-bridge/agentserver"
	"github.com/clusterpass/clusterpass/websocket-bridge/mux"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestPauses: agents that lose a bridge together must not dial it together, so half of each pause is random.
func TestPauses(t *testing.T) {
	most := []time.Duration{
		500 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second,
		10 * time.Second, 10 * time.Second,
	}
	synctest.Test(t, func(t *testing.T) {
		var all [2][]time.Duration
		for i := range all {
			ctx, cancel := context.WithCancel(t.Context())
			last := time.Now()
			links.New(links.Config{
				Gateway: "https://gateway.example.com", Cluster: "prod",
				Credential: func(context.Context) (possession.Credential, error) {
					return possession.Credential{Token: secrets.NewValue([]byte("t"))}, nil
				},
				Dial: func(context.Context, string, string) (net.Conn, error) {
					if all[i] = append(all[i], time.Since(last)); len(all[i]) == len(most) {
						cancel()
					}
					last = time.Now()
					return nil, errors.New("down")
				},
				Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
			}).Run(ctx)
			for n, pause := range all[i] {
				if least := most[n] / 2; pause > most[n] || n > 0 && pause < least {
					t.Errorf("attempt %d comes after %s, want %s to %s", n, pause, least, most[n])
				}
			}
		}
		if slices.Equal(all[0], all[1]) {
			t.Errorf("two agents keep step: %s", all[0])
		}
	})
}

// connectTo runs an agent at a bridge that responds to handshakes with a header, and returns the agent's log. serve, if
// not nil, gets the bridge's end of each tunnel.
func connectTo(t *testing.T, header http.Header, serve func(*mux.Session)) (*links.Keeper, *waittest.Buffer) {
	t.Helper()
	bridge := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.UserAgent() != version.UserAgent() {
			t.Errorf("the agent dials with the User-Agent %q", r.UserAgent())
		}
		ws, err := mux.NewUpgrader().Upgrade(w, r, header)
		if err != nil {
			t.Error(err)
			return
		}
		session, err := mux.Opener(ws)
		if err != nil {
			return // the agent has closed the websocket
		}
		if serve != nil {
			serve(session)
		}
		<-session.CloseChan()
	}))
	t.Cleanup(bridge.Close)
	roots := x509.NewCertPool()
	roots.AddCert(bridge.Certificate())
	log := &waittest.Buffer{}
	k := links.New(links.Config{
		Gateway: bridge.URL, Cluster: "prod", TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		Credential: func(context.Context) (possession.Credential, error) {
			return possession.Credential{Token: secrets.NewValue([]byte("t"))}, nil
		},
		Log: slog.New(slog.NewTextHandler(log, nil)), Metrics: prometheus.NewRegistry(),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return k, log
}

// TestHandshakeWithoutReplica: a proxy that accepts every websocket is no bridge. As a link, it would keep the agent
// from dialling, so that its cluster stays unreachable.
func TestHandshakeWithoutReplica(t *testing.T) {
	k, log := connectTo(t, nil, nil)
	waittest.Until(t, "the agent has dialled", func() bool { return log.String() != "" })
	if text := log.String(); !strings.Contains(text, "the response has no header Clusterpass-Replica") || k.Links() != 0 {
		t.Errorf("%d links; the log is\n%s", k.Links(), text)
	}
}

// TestStopIsLogged: an agent that ends only after its connections must explain that at once.
func TestStopIsLogged(t *testing.T) {
	var log *waittest.Buffer
	t.Run("until the agent stops", func(t *testing.T) {
		var k *links.Keeper
		k, log = connectTo(t, http.Header{agentserver.ReplicaHeader: {"replica-7"}}, nil)
		waittest.Until(t, "the agent is connected", func() bool { return k.Links() == 1 })
	})
	const want = `msg="the agent stops when its connections have ended" connections=0 timeout=0s`
	if text := log.String(); !strings.Contains(text, want) {
		t.Errorf("the log is\n%s", text)
	}
}

// TestAnnouncementIsLoggedWithItsReplica: otherwise an operator cannot find out which replica drains.
func TestAnnouncementIsLoggedWithItsReplica(t *testing.T) {
	responses := make(chan error, 1)
	_, log := connectTo(t, http.Header{agentserver.ReplicaHeader: {"replica-7"}}, func(s *mux.Session) {
		stream := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return s.Open() }}
		defer stream.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://agent"+agentserver.AnnouncementPath,
			bytes.NewBufferString(`{"replicas":1}`))
		if err == nil {
			var resp *http.Response
			if resp, err = stream.RoundTrip(req); err == nil {
				err = resp.Body.Close()
			}
		}
		responses <- err
	})
	if err := <-responses; err != nil {
		t.Fatal(err)
	}
	const want = `msg="a replica of the bridge has sent an announcement" replica=replica-7 replicas=1 draining=false`
	if text := log.String(); !strings.Contains(text, want) {
		t.Errorf("the log is\n%s", text)
	}
}
