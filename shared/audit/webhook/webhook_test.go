package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/version"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// receiver is a webhook that reads events as strictly as a receiver of kube-apiserver's can.
type receiver struct {
	*httptest.Server
	t  *testing.T
	ca *pki.CA // of client certificates

	mu      sync.Mutex
	code    int
	lists   []auditv1.EventList
	headers []http.Header
	clients []string // common names of the certificates
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	ca, err := pki.LoadCA(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{t: t, ca: ca, code: http.StatusOK}
	r.Server = httptest.NewUnstartedServer(r)
	r.TLS = &tls.Config{ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: ca.Pool()}
	r.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	r.StartTLS()
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.code < 200 || r.code > 299 {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(r.code)
		return
	}
	dec := json.NewDecoder(req.Body)
	dec.DisallowUnknownFields()
	var list auditv1.EventList
	if err := dec.Decode(&list); err != nil || req.Method != http.MethodPost || req.URL.Path != "/events" ||
		req.Header.Get("Content-Type") != "application/json" || req.UserAgent() != version.UserAgent() ||
		list.Kind != "EventList" || list.APIVersion != "audit.k8s.io/v1" {
		r.t.Errorf("%s %s: %v, %s %s", req.Method, req.URL, err, list.APIVersion, list.Kind)
	}
	r.lists, r.headers = append(r.lists, list), append(r.headers, req.Header)
	for _, c := range req.TLS.PeerCertificates {
		r.clients = append(r.clients, c.Subject.CommonName)
	}
	w.WriteHeader(r.code)
}

func (r *receiver) answer(code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.code = code
}

func (r *receiver) events() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.lists {
		n += len(l.Items)
	}
	return n
}

func (r *receiver) sink(edit func(*Config)) *Sink {
	u, err := url.Parse(r.URL + "/events")
	if err != nil {
		r.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(r.Certificate())
	cfg := Config{URL: u, TLS: &tls.Config{RootCAs: roots}}
	if edit != nil {
		edit(&cfg)
	}
	s := New(cfg)
	r.t.Cleanup(func() { _ = s.Close() })
	return s
}

func record(l *audit.Log) error {
	r := httptest.NewRequest(http.MethodGet, "/clusters/m/api/v1/namespaces/a/pods/p?a=1&b=2", nil)
	q := l.Begin(r)
	if err := q.Admit(r.Context()); err != nil {
		return err
	}
	q.User(audit.User{Username: "ann", Groups: []string{"dev"}}, "x509")
	q.Target("m", route.ParseResource(http.MethodGet, "/api/v1/namespaces/a/pods/p", ""))
	q.Decision(true, "RBAC")
	q.Completed(200, nil)
	return nil
}

// TestEventsAreDeliveredAsKubeAPIServerDoes: receivers of kube-apiserver's webhook read the gateway's events, too.
func TestEventsAreDeliveredAsKubeAPIServerDoes(t *testing.T) {
	r := newReceiver(t)
	l := audit.New(audit.Config{Sinks: []audit.Sink{r.sink(nil)}, Queue: 1000, Log: slog.New(slog.DiscardHandler)})
	for range 1000 {
		if err := record(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := r.events(); n != 1000 || len(r.lists) > 500 || l.Stats().Lost != 0 {
		t.Errorf("%d events arrived in %d requests, %+v", n, len(r.lists), l.Stats())
	}
	e := r.lists[0].Items[0]
	if e.Kind != "Event" || e.User.Username != "ann" || e.ObjectRef.Name != "p" || e.AuditID == "" || e.Verb != "get" ||
		e.RequestURI != "/clusters/m/api/v1/namespaces/a/pods/p?a=1&b=2" || e.Annotations[audit.ClusterAnnotation] != "m" {
		t.Errorf("%+v", e)
	}
}

// TestEventIsDeliveredBeforeCallEnds: a function that is frozen after its response has delivered the event by then.
func TestEventIsDeliveredBeforeCallEnds(t *testing.T) {
	r := newReceiver(t)
	l := audit.New(audit.Config{Sinks: []audit.Sink{r.sink(nil)}, Log: slog.New(slog.DiscardHandler)})
	for want := 1; want <= 3; want++ {
		if err := record(l); err != nil || r.events() != want {
			t.Errorf("%v, %d events have arrived, want %d", err, r.events(), want)
		}
		r.CloseClientConnections() // as happens to a frozen function
	}
	if err := l.Close(t.Context()); err != nil || l.Stats().Lost != 0 {
		t.Errorf("%v, %+v", err, l.Stats())
	}
}

// TestCredentials: the webhook learns that the gateway delivers, by each credential that a kubeconfig can have.
func TestCredentials(t *testing.T) {
	r := newReceiver(t)
	cert, key, err := r.ca.Client("gateway", nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, edit := range []func(*Config){
		func(c *Config) { c.Token = "sesame" },
		func(c *Config) { c.Username, c.Password = "u", "p" },
		func(c *Config) { c.TLS.Certificates = []tls.Certificate{pair} },
	} {
		if n, err := r.sink(edit).Deliver(t.Context(), [][]byte{[]byte("{}\n")}); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	_, password, _ := (&http.Request{Header: r.headers[1]}).BasicAuth()
	if r.headers[0].Get("Authorization") != "Bearer sesame" || password != "p" || len(r.clients) != 1 ||
		r.clients[0] != "gateway" {
		t.Errorf("the webhook got %v, and certificates of %v", r.headers, r.clients)
	}
}

// No event may be lost without a 2xx, reach another server by a redirect, or show the credential in an error.
func TestOnly2xxAcknowledges(t *testing.T) {
	r := newReceiver(t)
	s := r.sink(func(c *Config) { c.Token = "sesame" })
	for code, rejected := range map[int]bool{
		200: false, 201: false, 204: false, 301: false, 307: false, 400: true, 401: false, 403: false, 404: false, 413: true,
		422: true, 429: false, 500: false, 503: false,
	} {
		r.answer(code)
		n, err := s.Deliver(t.Context(), [][]byte{[]byte("{}\n")})
		if ok := code < 300; ok != (err == nil) || ok != (n == 1) || rejected != errors.Is(err, audit.ErrRejected) ||
			err != nil && strings.Contains(err.Error(), "sesame") {
			t.Errorf("%d: %d accepted, %v", code, n, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := s.Deliver(ctx, [][]byte{[]byte("{}\n")}); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d accepted, %v", n, err)
	}
	other := New(Config{URL: s.cfg.URL, TLS: &tls.Config{RootCAs: x509.NewCertPool()}})
	if n, err := other.Deliver(t.Context(), [][]byte{[]byte("{}\n")}); n != 0 || err == nil {
		t.Error("a server with a certificate of another CA got events")
	}
}

// Requests must be refused while the webhook is down, and no event of the others may be lost.
func TestOutageOfWebhook(t *testing.T) {
	r := newReceiver(t)
	r.answer(http.StatusServiceUnavailable)
	l := audit.New(audit.Config{
		Sinks: []audit.Sink{r.sink(nil)}, Queue: 5, FailClosed: true, Log: slog.New(slog.DiscardHandler),
	})
	accepted := 0
	for range 20 {
		if record(l) == nil {
			accepted++
		}
	}
	if s := l.Stats(); accepted != 5 || s.Refused != 15 || s.Waiting != 5 {
		t.Errorf("%d calls are accepted, %+v", accepted, s)
	}
	r.answer(http.StatusOK)
	waittest.Until(t, "a call is accepted again", func() bool { return record(l) == nil })
	if err := l.Close(t.Context()); err != nil || r.events() != 6 || l.Stats().Lost != 0 {
		t.Errorf("%v, %d events arrived, %+v", err, r.events(), l.Stats())
	}
}

func TestEventList(t *testing.T) {
	for _, events := range [][][]byte{nil, {[]byte("{\"a\":1}\n")}, {[]byte("{}\n"), []byte("{}")}} {
		var list struct{ Items []json.RawMessage }
		dec := json.NewDecoder(bytes.NewReader(eventList(events)))
		if err := dec.Decode(&list); err != nil || len(list.Items) != len(events) {
			t.Errorf("%s: %v", eventList(events), err)
		}
		if _, err := dec.Token(); err != io.EOF {
			t.Errorf("%s: more follows", eventList(events))
		}
	}
}
