package server

import (
	"bufio"
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
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
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

// house is a bridge on TLS with its stores and one member, m.
type house struct {
	t         *testing.T
	bridge    *Bridge
	handler   http.Handler
	addr      string
	ca        *pki.CA
	serverCA  *tls.Config
	tlsServer *tls.Config
	secrets   secrets.Store
	objects   objects.Store
	stop      context.CancelFunc
	ended     chan error
}

// newHouse starts a bridge in front of a member that answers with h.
func newHouse(t *testing.T, l Limits, drain Drain, h http.HandlerFunc) *house {
	t.Helper()
	return newHouseFresh(t, l, drain, cluster.Freshness{}, new(atomic.Int64), h)
}

// newHouseFresh is newHouse with what is known of members kept as fresh says, by a clock that is ahead of ours by so many nanoseconds.
func newHouseFresh(t *testing.T, l Limits, drain Drain, fresh cluster.Freshness, ahead *atomic.Int64, h http.HandlerFunc) *house {
	t.Helper()
	if drain.Timeout == 0 {
		drain.Timeout = 5 * time.Second
	}
	hs := &house{t: t, bridge: New(l), ended: make(chan error, 1)}
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	hs.secrets, err = secretsdir.Open(dir + "/secrets")
	must(err)
	hs.objects, err = objectsdir.Open(dir + "/objects")
	must(err)
	hs.ca, err = pki.LoadCA(dir, "client-ca")
	must(err)
	hs.addMember("m", h)
	start := time.Now()
	members := cluster.NewMembers(cluster.Config{
		Objects: hs.objects, Secrets: hs.secrets, Freshness: fresh, Policy: cluster.DialPolicy{AllowLoopback: true},
		Now: func() time.Time { return start.Add(time.Duration(ahead.Load())) },
	})
	t.Cleanup(members.Close)

	tlsOf := httptest.NewUnstartedServer(nil)
	tlsOf.StartTLS() // for its certificate
	hs.serverCA = tlsOf.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	cert := tlsOf.TLS.Certificates[0]
	tlsOf.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	hs.addr = ln.Addr().String()
	srv := l.HTTPServer()
	srv.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	hs.handler = gateway.New(gateway.Config{
		Identity: identity.Chain{identity.X509{Roots: hs.ca.Pool(), Peer: identity.TLSPeer}},
		Access:   access.NewAuthorizer(access.Config{Store: hs.objects, Log: slog.New(slog.DiscardHandler)}),
		Members:  members, Log: slog.New(slog.DiscardHandler), Stream: hs.bridge.Stream, Admit: hs.bridge.Admit,
	})
	srv.Handler = hs.handler
	ctx, stop := context.WithCancel(context.Background())
	hs.stop = stop
	hs.tlsServer = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	tlsLn := tls.NewListener(ln, hs.tlsServer)
	go func() { hs.ended <- hs.bridge.Serve(ctx, srv, func() error { return srv.Serve(tlsLn) }, drain) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-hs.ended:
			if err != nil {
				t.Errorf("the bridge ended: %v", err)
			}
		case <-time.After(5 * time.Minute):
			t.Error("the bridge does not end")
		}
		eventually(t, "no stream is left", func() bool { return hs.bridge.streams.Len() == 0 })
	})
	return hs
}

// addMember registers a cluster whose API server is h.
func (hs *house) addMember(name string, h http.HandlerFunc) {
	hs.t.Helper()
	hs.addMemberAs(name, v1alpha1.ClusterSpec{}, h)
}

func (hs *house) addMemberAs(name string, spec v1alpha1.ClusterSpec, h http.HandlerFunc) {
	hs.t.Helper()
	member := httptest.NewUnstartedServer(h)
	member.EnableHTTP2 = true
	member.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	member.StartTLS()
	hs.t.Cleanup(member.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: member.Certificate().Raw})
	hs.register(name, spec, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: x,
contexts: [{name: x, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %q}}],
users: [{name: u, user: {token: members-token}}]}`, member.URL, base64.StdEncoding.EncodeToString(ca)))
}

func (hs *house) register(name string, spec v1alpha1.ClusterSpec, kubeconfig []byte) {
	hs.t.Helper()
	value, err := json.Marshal(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	if err == nil {
		_, err = hs.objects.Create(context.Background(), v1alpha1.Prefix+name, value)
	}
	if err == nil {
		_, err = hs.secrets.Create(context.Background(), "clusters/"+name, secrets.NewValue(kubeconfig), nil)
	}
	if err != nil {
		hs.t.Fatal(err)
	}
}

// tls is the client's side for a user, or for nobody.
func (hs *house) tls(user string) *tls.Config {
	hs.t.Helper()
	if user == "" {
		return hs.serverCA.Clone()
	}
	cert, key, err := hs.ca.Client(user, []string{"system:masters"})
	if err != nil {
		hs.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		hs.t.Fatal(err)
	}
	c := hs.serverCA.Clone()
	c.Certificates, c.NextProtos = []tls.Certificate{pair}, nil
	return c
}

// get makes a call on a connection of its own, which ends with the test.
func (hs *house) get(user, path string, header ...string) (*http.Response, *tls.Conn) {
	hs.t.Helper()
	conn, err := tls.Dial("tcp", hs.addr, hs.tls(user))
	if err != nil {
		hs.t.Fatal(err)
	}
	hs.t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n"+strings.Join(append(header, ""), "\r\n")+"\r\n")
	if err != nil {
		hs.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		hs.t.Fatal(err)
	}
	return resp, conn
}

// wantStatus checks a Status of the gateway's own.
func wantStatus(t *testing.T, resp *http.Response, code int, reason, message string) {
	t.Helper()
	var st metav1.Status
	if err := json.NewDecoder(resp.Body).Decode(&st); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != code || int(st.Code) != code || st.Details == nil || len(st.Details.Causes) != 1 ||
		string(st.Details.Causes[0].Type) != reason || !strings.Contains(st.Message, message) {
		t.Errorf("answer %d %+v\nwant %d (%s) with %q", resp.StatusCode, st, code, reason, message)
	}
}

// metric returns the value of a series of the bridge.
func (hs *house) metric(name string, labels ...string) float64 {
	hs.t.Helper()
	families, err := hs.bridge.Metrics.Gather()
	if err != nil {
		hs.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var have []string
			for _, l := range m.GetLabel() {
				have = append(have, l.GetName()+"="+l.GetValue())
			}
			if all := strings.Join(have, ","); containsAll(all, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

func containsAll(s string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

// eventually waits for what another goroutine is about to do.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 30_000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}
