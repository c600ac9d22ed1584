package bridge

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/agenttest"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/shared/tunnel"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/links"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/target"
)

// program is a bridge as main runs it, with an agent of a private cluster, whose API server echoes.
type program struct {
	t            *testing.T
	log          *waittest.Buffer
	listen, port string // addresses
	keys         *passes.Verifier
	stop         context.CancelFunc
	ended        chan error
}

func newProgram(t *testing.T, drain time.Duration) *program {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ca, err := pki.LoadCA(t.TempDir(), "client-ca")
	must(err)
	for variable, value := range map[string]string{
		"STORE": "dir:" + t.TempDir(), "CLIENT_CA": string(ca.PEM()), "URL": gatewayURL, "SELF_SIGNED": "true",
		"PROBE_INTERVAL": "0s", "DRAIN_DELAY": "0s",
		"LISTEN": "127.0.0.1:0", "ADMIN_LISTEN": "127.0.0.1:0", "TUNNEL_LISTEN": "127.0.0.1:0",
	} {
		t.Setenv("CLUSTERPASS_"+variable, value)
	}
	cfg := &Config{}
	must(config.Load(cfg))
	p := &program{t: t, log: &waittest.Buffer{}, ended: make(chan error, 1)}
	cfg.DrainTimeout = drain

	st, err := stores.Open(t.Context(), cfg.Store)
	must(err)
	var token possession.Credential
	p.keys, token = enrol(t, st)

	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	finished := make(chan struct{})
	go func() { defer close(finished); p.ended <- Run(ctx, cfg, p.log) }()
	t.Cleanup(func() { stop(); <-finished })
	find := func(expr string) (found string) {
		re := regexp.MustCompile(expr)
		waittest.Until(t, "the log says "+expr, func() bool {
			m := re.FindStringSubmatch(p.log.String())
			if m != nil {
				found = m[1]
			}
			return m != nil || len(p.ended) > 0
		})
		return found
	}
	p.port = find(`"the tunnel port is open","address":"([^"]+)"`)
	p.listen = find(`"listening","address":"([^"]+)"`)

	runAgent(t, p.listen, token)
	return p
}

const gatewayURL = "https://gateway.example.com"

// enrol registers the private cluster prod. It returns its agents' credential and a verifier of the gateway.
func enrol(t *testing.T, st *stores.Stores) (keys *passes.Verifier, agent possession.Credential) {
	t.Helper()
	c := &v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: "prod", UID: types.UID("uid of prod")},
		Spec:       v1alpha1.ClusterSpec{SyncMode: v1alpha1.Pull},
	}
	value, err := json.Marshal(c)
	if err == nil {
		_, err = st.Objects.Create(t.Context(), v1alpha1.Prefix+c.Name, value)
	}
	keys = passes.NewVerifier(passes.Config{
		Objects: st.Objects, Secrets: st.Secrets, URL: gatewayURL, Log: slog.New(slog.DiscardHandler),
	})
	issuer := &passes.Issuer{Objects: st.Objects, Secrets: st.Secrets, URL: gatewayURL}
	if err == nil {
		agent, err = agenttest.Gateway{Issuer: issuer, Verifier: keys}.Enrol(t.Context(), c, time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
	return keys, agent
}

func runAgent(t *testing.T, bridge string, agent possession.Credential) {
	t.Helper()
	keeper := links.New(links.Config{
		Gateway: "https://" + bridge, Cluster: "prod",
		TLS:        &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12},
		Credential: func(context.Context) (possession.Credential, error) { return agent, nil },
		Target:     &target.APIServer{Cluster: "prod", Address: echoServer(t)},
		Log:        slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { keeper.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
}

func (p *program) connect() net.Conn {
	p.t.Helper()
	return connect(p.t, p.keys, p.port)
}

func connect(t *testing.T, keys *passes.Verifier, port string) net.Conn {
	t.Helper()
	var conn net.Conn
	waittest.Until(t, "a function is connected", func() (ok bool) {
		var err error
		conn, err = (&tunnel.Dialer{Verifier: keys}).Dial(t.Context(), "prod", "", &url.URL{Scheme: "https", Host: port},
			(&net.Dialer{}).DialContext)
		return err == nil
	})
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestRunDrains: connections of the tunnel port must continue while the bridge drains.
func TestRunDrains(t *testing.T) {
	p := newProgram(t, time.Hour)
	conn := p.connect()
	expectEcho(t, conn)
	p.stop()
	waittest.Until(t, "the listener is closed", func() bool {
		c, err := net.Dial("tcp", p.listen)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	waittest.Until(t, "the drain of its own streams is over", func() bool {
		return isRunning("agentserver.(*Agents).Wait")
	})
	// Long enough for several checks of the open connections.
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
		expectEcho(t, conn)
	}
	_ = conn.Close()
	if err := p.end(); err != nil {
		t.Error(err)
	}
}

// TestRunEndsInTime: connections of the tunnel port delay the exit until the drain's deadline, and are then cut.
func TestRunEndsInTime(t *testing.T) {
	p := newProgram(t, 4*time.Second)
	conn := p.connect()
	p.stop()
	if err := p.end(); err != nil {
		t.Error(err)
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes of a connection that should be cut", n)
	}
}

func (p *program) end() error {
	p.t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(waittest.Patience):
		p.t.Fatal("the bridge does not end")
		return nil
	}
}

func expectEcho(t *testing.T, conn net.Conn) {
	t.Helper()
	_, err := io.WriteString(conn, "hello")
	got := make([]byte, 5)
	if err == nil {
		_, err = io.ReadFull(conn, got)
	}
	if err != nil || string(got) != "hello" {
		t.Fatalf("%q came back, %v", got, err)
	}
}

func echoServer(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { _, _ = io.Copy(c, c); _ = c.Close() })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); wg.Wait() })
	return ln.Addr().String()
}
