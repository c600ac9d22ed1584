package agentserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/tunnel"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/credential"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/links"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/target"
	"github.com/clusterpass/clusterpass/websocket-bridge/agentserver"
	"github.com/clusterpass/clusterpass/websocket-bridge/mux"
)

func TestThroughTheTunnel(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	token := w.enrol("prod", time.Hour)
	c := w.client("prod", r.port)
	var e *status.Error
	if err := w.version(c); !errors.As(err, &e) || e.Reason != status.Unreachable || e.Code() != 502 ||
		e.Cluster != "prod" || !strings.Contains(e.Message, `"prod"`) {
		t.Errorf("without an agent: %v", err)
	}
	a := w.agent("prod", token, w.front.address())
	waittest.Until(t, "an agent is connected", func() bool { return w.version(c) == nil })
	s, err := w.echo(c)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := s.send(); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := r.Dial(t.Context(), "prod", "", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	w.api.CloseClientConnections()
	if err := s.ended(); err == nil {
		t.Error("a stream goes on that the API server has cut")
	}
	w.api.Listener.Close()
	if err := w.version(c); !errors.As(err, &e) || e.Reason != status.Unreachable ||
		!strings.Contains(e.Message, "API server") {
		t.Errorf("without an API server: %v", err)
	}
	waittest.Until(t, "nothing is carried any more", func() bool { return a.carries(t) == 0 })
}

// TestNothingIsSeen: the traffic of bridge and agent must contain no readable credential or response.
func TestNothingIsSeen(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	balancer := newBalancer(t) // the last hop: this traffic was forwarded unchanged
	seen := &waittest.Buffer{}
	balancer.tap = seen
	balancer.add(w.api.Listener.Addr().String())
	w.agent("prod", w.enrol("prod", time.Hour), w.front.address(), func(c *links.Config) {
		c.Target = &target.APIServer{Cluster: "prod", Address: balancer.address()}
	})
	r.connects(t, 1)
	const secret = "of-the-gateway-in-the-member"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.api.URL+"/echo", strings.NewReader(secret))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	resp, err := w.client("prod", r.port).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || string(body) != secret {
		t.Fatalf("%q, %v", body, err)
	}
	if got := seen.String(); len(got) < len(secret) || strings.Contains(got, secret) ||
		strings.Contains(got, "Authorization") {
		t.Errorf("%d bytes were carried, the credential among them: %v", len(got), strings.Contains(got, secret))
	}
}

// TestWhoMayConnect: credentials of callers, agents and parts of the gateway must not be valid in place of another.
func TestWhoMayConnect(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	agent := w.enrol("prod", time.Hour)
	other := w.enrol("other", time.Hour)
	part, err := w.keys.TunnelToken(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	pass, err := w.issuer.Create(t.Context(), &v1alpha1.Pass{
		ObjectMeta: meta("prod"),
		Spec: v1alpha1.PassSpec{
			User: "prod", Groups: []string{"system:masters"}, Clusters: []string{"*"}, Verbs: []string{"*"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	key, _ := w.request("prod")
	credentials := map[string]possession.Credential{
		"agent": agent, "other": other, "part": {Token: part}, "pass": {Token: pass.Token}, "none": {},
		"without its key": {Token: agent.Token}, "by another key": {Token: agent.Token, Key: key},
	}
	for name, c := range credentials {
		token := string(c.Token.Reveal())
		_, err := w.keys.AuthenticateAgent(t.Context(), "prod", w.present(c, possession.Connect, ""))
		if (err == nil) != (name == "agent") {
			t.Errorf("as an agent of prod, %s: %v", name, err)
		}
		if err := w.keys.VerifyTunnelToken(t.Context(), token, "prod"); (err == nil) != (name == "part") {
			t.Errorf("as the gateway's part for prod, %s: %v", name, err)
		}
		if u, err := w.keys.AuthenticateToken(t.Context(), token); (err == nil && u != nil) != (name == "pass") {
			t.Errorf("as a caller, %s: %v %v", name, u, err)
		}
		if name != "none" && !w.keys.HasGatewayIssuer(token) {
			t.Errorf("%s could be passed on to a member", name)
		}
		// The same at the endpoint of agents, without a websocket.
		for path, use := range map[string]possession.Use{
			route.AgentPath("prod"): possession.Connect, route.AgentPath("prod") + route.AgentCredential: possession.Renew,
		} {
			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil)
			req.Header = w.header(c, use, "")
			rec := httptest.NewRecorder()
			r.Handler(http.NotFoundHandler()).ServeHTTP(rec, req)
			if want := name == "agent"; (rec.Code != http.StatusUnauthorized) != want {
				t.Errorf("%s with %s: %d %s", path, name, rec.Code, rec.Body)
			}
		}
		conn, err := net.Dial("tcp", r.port)
		if err != nil {
			t.Fatal(err)
		}
		tc := tlsClient(conn)
		err = tunnel.Connect(t.Context(), tc, tunnel.Destination{Cluster: "prod"},
			http.Header{"Proxy-Authorization": {"Bearer " + token}})
		if err == nil || strings.Contains(err.Error(), "none of its agents") != (name == "part") {
			t.Errorf("CONNECT with %s: %v", name, err)
		}
		_ = tc.Close()
	}
}

// TestWebPagesMayNotConnect: a web page must not open a tunnel, even if the gateway's own host serves it.
func TestWebPagesMayNotConnect(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	c := w.enrol("prod", time.Hour)
	dialer := mux.NewDialer()
	dialer.TLSClientConfig = r.front.Client().Transport.(*http.Transport).TLSClientConfig
	for name, tt := range map[string]struct {
		origin string
		want   int
	}{
		"an agent":                  {"", http.StatusSwitchingProtocols},
		"a page of another host":    {"https://evil.example.com", http.StatusForbidden},
		"a page of the gateway":     {r.front.URL, http.StatusForbidden},
		"a page without an address": {"null", http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			header := w.header(c, possession.Connect, "")
			header.Set(agentserver.AgentHeader, uuid.NewString())
			if tt.origin != "" {
				header.Set("Origin", tt.origin)
			}
			url := "wss" + strings.TrimPrefix(r.front.URL, "https") + route.AgentPath("prod")
			ws, resp, err := dialer.DialContext(t.Context(), url, header)
			if resp == nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if ws != nil {
				_ = ws.Close()
			}
			if resp.StatusCode != tt.want {
				t.Errorf("%s, want %d", resp.Status, tt.want)
			}
		})
	}
}

// TestOnlyTheGatewaysOwnPort: another server than the gateway's tunnel port must not receive a token.
func TestOnlyTheGatewaysOwnPort(t *testing.T) {
	w := newWorld(t)
	w.enrol("prod", time.Hour)
	wasCalled := false
	thief := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { wasCalled = true }))
	defer thief.Close()
	d := &tunnel.Dialer{Verifier: w.keys}
	for _, proxy := range []*url.URL{
		{Scheme: "https", Host: thief.Listener.Addr().String()}, {Scheme: "http", Host: thief.Listener.Addr().String()}, nil,
	} {
		conn, err := d.Dial(t.Context(), "prod", "", proxy, (&net.Dialer{}).DialContext)
		if err == nil {
			_ = conn.Close()
			t.Errorf("%v was believed", proxy)
		} else if code := status.From(err).Code(); code != http.StatusBadGateway {
			t.Errorf("%v: %d, %v", proxy, code, err)
		}
	}
	if wasCalled {
		t.Error("the thief got a request")
	}
}

// TestReplicas: an agent connects to every replica behind the load balancer. A replica without the agent forwards a
// CONNECT once.
func TestReplicas(t *testing.T) {
	w := newWorld(t)
	var lns []net.Listener
	var peers agentserver.Peers
	for range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		lns, peers = append(lns, ln), append(peers, ln.Addr().String())
	}
	know := func(c *agentserver.Config) { c.Peers = peers }
	token := w.enrol("prod", time.Hour)
	one := w.enrol("one", time.Hour)
	a, b, c := w.replicaAt(lns[0], know), w.replicaAt(lns[1], know), w.replicaAt(lns[2], know)
	// This agent reaches the first replica only, although it knows the number of replicas.
	alone := w.agent("one", one, a.front.Listener.Addr().String())
	all := w.agent("prod", token, w.front.address())
	waittest.Until(t, "the agent is connected to all", func() bool { return all.Links() == 3 })
	waittest.Until(t, "the other is connected to one", func() bool { return alone.Links() == 1 })
	a.connects(t, 2)
	b.connects(t, 1)
	c.connects(t, 1)
	for _, at := range []*replica{a, b} {
		if err := w.version(w.client("one", at.port)); err != nil {
			t.Errorf("through a peer: %v", err)
		}
	}
	if conn, err := b.Dial(t.Context(), "one", "", nil, nil); err != nil {
		t.Errorf("the bridge's own way through a peer: %v", err)
	} else {
		_ = conn.Close()
	}
	// A forwarded request is not forwarded again.
	conn, err := (&tunnel.Dialer{Verifier: w.keys}).Hop(t.Context(), tunnel.Destination{Cluster: "one"}, b.port)
	if err == nil {
		_ = conn.Close()
		t.Error("a CONNECT was passed on twice")
	}
	// A draining replica announces that, so its agents connect to another one before it ends.
	b.Drain(t.Context())
	b.stop()
	waittest.Until(t, "the agent has lost it", func() bool { return all.Links() == 2 })
	if err := w.version(w.client("prod", a.port)); err != nil {
		t.Error(err)
	}
}

// TestBalancerOfRequests: agents work behind a load balancer that terminates TLS and forwards requests, like an ALB.
func TestBalancerOfRequests(t *testing.T) {
	w := newWorld(t)
	a, b := w.pair()
	var turn atomic.Int64
	front := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			to := []*replica{a, b}[turn.Add(1)%2]
			r.SetURL(&url.URL{Scheme: "https", Host: to.front.Listener.Addr().String()})
			r.SetXForwarded()
			r.Out.Host = r.In.Host
		},
		Transport: a.front.Client().Transport, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
	})
	front.StartTLS()
	t.Cleanup(front.Close)
	token := w.enrol("prod", time.Hour)
	agent := w.agent("prod", token, front.Listener.Addr().String())
	waittest.Until(t, "the agent is connected to both", func() bool { return agent.Links() == 2 })
	for _, r := range []*replica{a, b} {
		r.connects(t, 1)
		if err := w.version(w.client("prod", r.port)); err != nil {
			t.Error(err)
		}
	}
	w.Clock.Advance(time.Minute)
	if resp, next := w.renew(front, "prod", token); resp.StatusCode != http.StatusOK {
		t.Errorf("for another credential: %s %s", resp.Status, next.Token.Reveal())
	}
	b.Drain(t.Context())
	b.stop()
	waittest.Until(t, "the agent has lost one", func() bool { return agent.Links() == 1 })
	if err := w.version(w.client("prod", a.port)); err != nil {
		t.Error(err)
	}
}

// TestDrain: agents of a draining replica connect to the next one before it ends, and open streams continue.
func TestDrain(t *testing.T) {
	w := newWorld(t)
	old := w.replica()
	token := w.enrol("prod", time.Hour)
	a := w.agent("prod", token, w.front.address())
	old.connects(t, 1)
	s, err := w.echo(w.client("prod", old.port))
	if err != nil {
		t.Fatal(err)
	}
	next := w.replica()
	w.front.remove(old.front.Listener.Addr().String())
	old.Drain(t.Context())
	waittest.Until(t, "the agent is connected to the next", func() bool {
		return w.version(w.client("prod", next.port)) == nil
	})
	if err := s.send(); err != nil {
		t.Errorf("a stream of the replica that drains: %v", err)
	}
	if err := w.version(w.client("prod", old.port)); err != nil {
		t.Errorf("a call at the replica that drains: %v", err)
	}
	old.stop()
	if err := s.ended(); err == nil {
		t.Error("a stream goes on whose bridge has ended")
	}
	waittest.Until(t, "the agent has one link", func() bool { return a.Links() == 1 })
}

// TestDrainingReplicaIsReplaced: an agent connects to a new replica while the one that it replaces still drains. The
// number of replicas is the same all the time.
func TestDrainingReplicaIsReplaced(t *testing.T) {
	w := newWorld(t)
	old, other := w.pair()
	token := w.enrol("prod", time.Hour)
	a := w.agent("prod", token, w.front.address())
	waittest.Until(t, "the agent is connected to both", func() bool { return a.Links() == 2 })
	w.front.remove(old.front.Listener.Addr().String())
	next := w.replica(func(c *agentserver.Config) { c.Peers = agentserver.Peers{other.port, old.port} })
	old.Drain(t.Context())
	next.connects(t, 1)
	old.connects(t, 1)
	waittest.Until(t, "the agent is connected to all three", func() bool { return a.Links() == 3 })
}

// TestDrainWaitsForConnects: a drain waits for requests at the tunnel port, even before they are authenticated.
func TestDrainWaitsForConnects(t *testing.T) {
	w := newWorld(t)
	w.enrol("prod", time.Hour) // creates the keys
	token, err := w.keys.TunnelToken(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	var hangs atomic.Bool
	requests, release := make(chan struct{}, 1), make(chan struct{})
	letGo := sync.OnceFunc(func() { close(release) })
	t.Cleanup(letGo)
	slow := getter(func(ctx context.Context, key string) (objects.Object, error) {
		if hangs.Load() {
			select {
			case requests <- struct{}{}:
			default:
			}
			<-release // regardless of the deadline
		}
		return w.Objects.Get(ctx, key)
	})
	r := w.replica(func(c *agentserver.Config) {
		c.Verifier = passes.NewVerifier(passes.Config{
			Objects: slow, Secrets: w.Secrets, URL: gatewayURL, Log: w.log, Now: w.Clock.Now,
		})
	})
	conn, err := net.Dial("tcp", r.port)
	if err != nil {
		t.Fatal(err)
	}
	tc := tlsClient(conn)
	defer tc.Close()
	if err := tc.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	hangs.Store(true)
	w.Clock.Advance(30 * time.Second) // the keys of the handshake have expired
	answered := make(chan error, 1)
	go func() {
		answered <- tunnel.Connect(t.Context(), tc, tunnel.Destination{Cluster: "prod"},
			http.Header{"Proxy-Authorization": {"Bearer " + string(token.Reveal())}})
	}()
	<-requests
	waited := func(d time.Duration) (toTheEnd bool) {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		r.Wait(ctx)
		return ctx.Err() != nil
	}
	if !waited(200 * time.Millisecond) {
		t.Error("the drain is over while a CONNECT is being answered")
	}
	letGo()
	if err := <-answered; err == nil {
		t.Error("connected without an agent")
	}
	if waited(waittest.Patience) {
		t.Error("the drain waits for a CONNECT that has ended")
	}
}

type getter func(ctx context.Context, key string) (objects.Object, error)

func (g getter) Get(ctx context.Context, key string) (objects.Object, error) { return g(ctx, key) }

// TestRenewal: the next credential must have the lifetime and the cluster of the last one.
func TestRenewal(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	const ttl = 2 * time.Hour
	token := w.enrol("prod", ttl)
	w.Clock.Advance(time.Minute)
	resp, next := w.renew(r.front, "prod", token)
	agent, err := w.keys.AuthenticateAgent(t.Context(), "prod", w.present(next, possession.Connect, ""))
	if err != nil || agent.TTL != ttl || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s: %+v, %v", resp.Status, agent, err)
	}
	if _, err := w.keys.AuthenticateAgent(t.Context(), "other", w.present(next, possession.Connect, "")); err == nil {
		t.Error("it is good for another cluster")
	}
}

// TestAgentRenews: the agents of a cluster must share each renewed credential.
func TestAgentRenews(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	file := credential.File(filepath.Join(t.TempDir(), "credential"))
	w.store(file, w.bootstrap("prod", time.Hour))
	one, two := w.credential("prod", file, r), w.credential("prod", file, r)
	first := w.current(one)
	if got := w.current(two); !got.Token.Equal(first.Token) {
		t.Error("the other agent has another credential")
	}
	w.Clock.Advance(40 * time.Minute)
	second := w.current(one)
	if second.Token.Equal(first.Token) {
		t.Error("it is not renewed")
	}
	if _, err := w.keys.AuthenticateAgent(t.Context(), "prod", w.present(second, possession.Connect, "")); err != nil {
		t.Error(err)
	}
	r.stop() // the other agent finds the stored credential
	if got := w.current(two); !got.Token.Equal(second.Token) {
		t.Error("the other agent has not read the store")
	}
}

// TestServices: an agent connects to the configured services, and to nothing else, by every path.
func TestServices(t *testing.T) {
	w := newWorld(t)
	tenant, neighbour := apiServer(t), apiServer(t)
	here, there := w.pair()
	w.agent("prod", w.enrol("prod", time.Hour), here.front.Listener.Addr().String(), func(c *links.Config) {
		c.Target = &target.APIServer{
			Cluster: "prod", Address: w.api.Listener.Addr().String(), Services: []string{tenant.Listener.Addr().String()},
		}
	})
	here.connects(t, 1)
	d := &tunnel.Dialer{Verifier: w.keys}
	for _, r := range []*replica{here, there} {
		by := &url.URL{Scheme: "https", Host: r.port, Path: "/prod"}
		for name, dial := range map[string]func(address string) (net.Conn, error){
			"a function": func(address string) (net.Conn, error) {
				return d.Dial(t.Context(), "tenant", address, by, (&net.Dialer{}).DialContext)
			},
			"the bridge": func(address string) (net.Conn, error) { return r.Dial(t.Context(), "tenant", address, by, nil) },
		} {
			conn, err := dial(tenant.Listener.Addr().String())
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if err := getVersion(conn, tenant); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for _, address := range []string{
				neighbour.Listener.Addr().String(), w.api.Listener.Addr().String(), "localhost:22",
			} {
				var e *status.Error
				conn, err := dial(address)
				if err == nil {
					_ = conn.Close()
				}
				if !errors.As(err, &e) || e.Code() != 502 || e.Cluster != "tenant" ||
					!strings.Contains(e.Message, "CLUSTERPASS_SERVICES") {
					t.Errorf("%s, to %s: %v", name, address, err)
				}
			}
		}
	}
	if err := w.version(w.client("prod", here.port)); err != nil {
		t.Errorf("the agents' own cluster: %v", err)
	}
}

func getVersion(conn net.Conn, srv *httptest.Server) error {
	c := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone(),
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}}
	resp, err := c.Get(srv.URL + "/version")
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}

func TestErrorsAreStatuses(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	resp, err := r.front.Client().Get(r.front.URL + route.AgentPath("prod"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var st struct{ Kind, Reason, Message string }
	if err := json.NewDecoder(resp.Body).Decode(&st); err != nil || resp.StatusCode != 401 || st.Kind != "Status" ||
		st.Reason != "Unauthorized" {
		t.Errorf("%s %+v %v", resp.Status, st, err)
	}
}
