package gateway_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/fleet"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/objects"
	objectsdir "github.com/clusterpass/clusterpass/shared/objects/dir"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/secrets"
	secretsdir "github.com/clusterpass/clusterpass/shared/secrets/dir"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// How long members of the fleet may take: as long as any machine needs, and, for tests of those that do not answer, which wait for it, as
// long as one needs that is busy.
const (
	fleetDeadline = 2 * time.Minute
	fleetHangs    = 5 * time.Second
)

// seen is a request as it arrived at a member.
type seen struct {
	Method, URI, Body, Proto string
	Header                   http.Header
	Trailer                  http.Header // nil for none
}

// fakeMember is an API server as far as HTTP goes: TLS, HTTP/2, and it remembers what arrived.
type fakeMember struct {
	*httptest.Server
	mu     sync.Mutex
	seen   []seen
	closed chan struct{} // one for each connection that has ended
}

func newMember(t testing.TB, h http.HandlerFunc) *fakeMember {
	t.Helper()
	m := &fakeMember{closed: make(chan struct{}, 100)}
	m.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m.mu.Lock()
		m.seen = append(m.seen, seen{r.Method, r.RequestURI, string(body), r.Proto, r.Header.Clone(), r.Trailer.Clone()})
		m.mu.Unlock()
		h(w, r)
	}))
	m.EnableHTTP2 = true
	m.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	m.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			m.closed <- struct{}{}
		}
	}
	m.StartTLS()
	t.Cleanup(m.Close)
	return m
}

func (m *fakeMember) arrived() []seen {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]seen(nil), m.seen...)
}

// take returns what arrived since the last time.
func (m *fakeMember) take() []seen {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.seen
	m.seen = nil
	return out
}

func (m *fakeMember) kubeconfig(user string) []byte {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.Certificate().Raw})
	return kubeconfig(m.URL, base64.StdEncoding.EncodeToString(ca), user)
}

func kubeconfig(server, ca, user string) []byte {
	return fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: x,
contexts: [{name: x, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %q}}],
users: [{name: u, user: %s}]}`, server, ca, user)
}

// house is a gateway on TLS with its stores.
type house struct {
	*httptest.Server
	t       testing.TB
	dir     string // of the stores
	secrets secrets.Store
	objects objects.Store
	members *cluster.Members
	ca      *pki.CA
	front   *pki.CA // of a front proxy that is configured, and that nobody is
	client  *http.Client
	tls     *tls.Config
	clock   *clock
	audit   events
	base    atomic.Pointer[context.Context] // ends calls when it ends
}

// events are the audit events, a line each.
type events struct {
	mu    sync.Mutex
	lines []string
}

// Write implements io.Writer.
func (e *events) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, string(p))
	return len(p), nil
}

// take returns the events since the last time, once there are n.
func (e *events) take(t *testing.T, n int) []audit.Event {
	t.Helper()
	for range 12_000 {
		e.mu.Lock()
		if len(e.lines) >= n {
			defer e.mu.Unlock()
			out := make([]audit.Event, len(e.lines))
			for i, line := range e.lines {
				if err := json.Unmarshal([]byte(line), &out[i]); err != nil {
					t.Fatal(err)
				}
			}
			e.lines = nil
			return out
		}
		e.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%d events, want %d", len(e.lines), n)
	return nil
}

// clock is the house's time: the real one, moved.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time      { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) add(d time.Duration) { c.ahead.Add(int64(d)) }

func newHouse(t testing.TB, fn *gateway.Function) *house {
	t.Helper()
	return newHouseFresh(t, fn, cluster.Freshness{})
}

func newHouseFresh(t testing.TB, fn *gateway.Function, fresh cluster.Freshness, change ...func(*gateway.Config)) *house {
	t.Helper()
	return newHouseWithin(t, fleetDeadline, fn, fresh, change...)
}

// newHouseWithin is newHouseFresh whose fleet waits for members for so long.
func newHouseWithin(t testing.TB, deadline time.Duration, fn *gateway.Function, fresh cluster.Freshness, change ...func(*gateway.Config)) *house {
	t.Helper()
	h := &house{t: t, clock: &clock{}}
	var err error
	must := func() {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	h.dir = dir
	h.secrets, err = secretsdir.Open(dir + "/secrets")
	must()
	h.objects, err = objectsdir.Open(dir + "/objects")
	must()
	h.ca, err = pki.LoadCA(dir, "client-ca")
	must()
	h.front, err = pki.LoadCA(dir, "front-proxy-ca")
	must()
	h.members = cluster.NewMembers(cluster.Config{
		Objects: h.objects, Secrets: h.secrets, Freshness: fresh, Now: h.clock.now, Log: slog.New(slog.DiscardHandler), Policy: cluster.DialPolicy{AllowLoopback: true},
	})
	t.Cleanup(h.members.Close)
	h.grant("dev", `{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"verbs":["*"]}`)
	authorizer := access.NewAuthorizer(access.Config{Store: h.objects, Log: slog.New(slog.DiscardHandler)})
	cfg := gateway.Config{
		Fleet:    fleet.New(fleet.Config{Objects: h.objects, Members: h.members, Access: authorizer, Deadline: deadline, Log: slog.New(slog.DiscardHandler)}),
		Identity: identity.Chain{identity.FrontProxy{Roots: h.front.Pool(), Names: []string{"front-proxy-client"}, Peer: identity.TLSPeer}, identity.X509{Roots: h.ca.Pool(), Peer: identity.TLSPeer}},
		OwnToken: func(token string) bool { return token == "gateways-token" },
		Access:   authorizer,
		Audit:    audit.New(audit.Config{To: &h.audit}),
		Members:  h.members, Log: slog.New(slog.DiscardHandler), Function: fn, Recheck: 50 * time.Millisecond,
	}
	for _, c := range change {
		c(&cfg)
	}
	gw := gateway.New(cfg)
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if base := h.base.Load(); base != nil {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(*base, cancel)()
			r = r.WithContext(ctx)
		}
		gw.ServeHTTP(w, r)
	}))
	h.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	h.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	h.StartTLS()
	t.Cleanup(h.Close)
	h.tls = h.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	h.tls.Certificates = []tls.Certificate{h.clientCert("alice", "dev", "system:authenticated")}
	h.client = &http.Client{
		Transport:     &http.Transport{TLSClientConfig: h.tls, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.Cleanup(h.client.CloseIdleConnections)
	return h
}

func (h *house) clientCert(user string, groups ...string) tls.Certificate {
	h.t.Helper()
	cert, key, err := h.ca.Client(user, groups)
	if err != nil {
		h.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		h.t.Fatal(err)
	}
	return pair
}

// grant gives a group a role with one rule.
func (h *house) grant(group, rule string) {
	h.t.Helper()
	for key, value := range map[string]string{
		"clusterroles/" + group: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"` + group + `"},"rules":[` + rule + `]}`,
		"clusterrolebindings/" + group: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"` + group + `"},
			"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"` + group + `"},
			"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"` + group + `"}]}`,
	} {
		if _, err := h.objects.Create(context.Background(), key, []byte(value)); err != nil {
			h.t.Fatal(err)
		}
	}
}

// add registers a cluster without any check.
func (h *house) add(name string, kubeconfig []byte, change func(*v1alpha1.ClusterSpec)) {
	h.t.Helper()
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if change != nil {
		change(&c.Spec)
	}
	value, err := json.Marshal(c)
	if err == nil {
		_, err = h.objects.Create(context.Background(), v1alpha1.Prefix+name, value)
	}
	if err == nil && kubeconfig != nil {
		_, err = h.secrets.Create(context.Background(), "clusters/"+name, secrets.NewValue(kubeconfig), nil)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// change edits a cluster's object.
func (h *house) change(name string, edit func(*v1alpha1.ClusterSpec)) {
	h.t.Helper()
	o, err := h.objects.Get(h.t.Context(), v1alpha1.Prefix+name)
	var c v1alpha1.Cluster
	if err == nil {
		err = json.Unmarshal(o.Value, &c)
	}
	edit(&c.Spec)
	value, encodeErr := json.Marshal(&c)
	if err = cmp.Or(err, encodeErr); err == nil {
		_, err = h.objects.Update(h.t.Context(), o.Key, value, o.Revision)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// remove deletes an object.
func (h *house) remove(key string) {
	h.t.Helper()
	o, err := h.objects.Get(h.t.Context(), key)
	if err == nil {
		_, err = h.objects.Delete(h.t.Context(), o.Key, o.Revision)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// rotate replaces a cluster's secret.
func (h *house) rotate(name string, kubeconfig []byte) {
	h.t.Helper()
	s, err := h.secrets.Get(context.Background(), "clusters/"+name)
	if err == nil {
		_, err = h.secrets.Replace(context.Background(), s.Name, s.Version, secrets.NewValue(kubeconfig))
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// raw sends bytes as they stand and returns the answer; "\n" becomes CRLF.
func (h *house) raw(request string) *http.Response {
	h.t.Helper()
	conn, err := tls.Dial("tcp", h.Listener.Addr().String(), h.tls)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
		h.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp
}

func (h *house) do(method, path string, header http.Header, body string) *http.Response {
	h.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(h.t.Context(), method, h.URL+path, reader)
	if err != nil {
		h.t.Fatal(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := h.client.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// wantStatus checks a Status of the gateway's own.
func wantStatus(t *testing.T, resp *http.Response, code int, reason, message string) {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var st metav1.Status
	if err := json.Unmarshal(body, &st); err != nil {
		t.Fatalf("answer %d is no Status: %q", resp.StatusCode, body)
	}
	cause := ""
	if st.Details != nil && len(st.Details.Causes) > 0 {
		cause = string(st.Details.Causes[0].Type)
	}
	if resp.StatusCode != code || int(st.Code) != code || st.Kind != "Status" || cause != reason || !strings.Contains(st.Message, message) {
		t.Errorf("answer %d %s (%s)\nwant %d (%s) with %q", resp.StatusCode, body, cause, code, reason, message)
	}
}
