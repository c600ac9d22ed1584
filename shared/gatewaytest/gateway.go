// Package gatewaytest runs a [Gateway] for tests, on loopback and TLS, as net/http/httptest runs a handler.
package gatewaytest

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/fleet"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/pki"
)

// OwnToken is the only bearer token that Config.Tokens recognizes.
const OwnToken = "gateways-token"

type ownTokens struct{}

func (ownTokens) IsForGateway(token string) bool { return token == OwnToken }

// FleetDeadline is the default of Options.FleetDeadline: as long as any machine needs.
const FleetDeadline = 2 * time.Minute

// Options configure a Gateway. The zero value is useful.
type Options struct {
	BareWrites    fleet.BareWrites                // the writes that need no cluster; empty means the default
	FleetDeadline time.Duration                   // 0 means FleetDeadline
	DiscoveryTTL  time.Duration                   // how long the fleet caches discovery; 0 means its default
	GracePeriod   time.Duration                   // 0 means FleetDeadline, so that no cluster is left out by chance
	ControlPlane  string                          // the cluster that answers for what no registry covers; empty for none
	Function      *gateway.Function               // nil for none
	Freshness     cluster.Freshness               // how long clusters are cached; the zero value caches nothing
	MaxReadConns  int64                           // cluster.Config.MaxReadConns
	Now           func() time.Time                // clock of the caches; nil means the installation's clock
	Log           *slog.Logger                    // nil discards
	Configure     func(*gateway.Config)           // changes the configuration; nil changes nothing
	Wrap          func(http.Handler) http.Handler // wraps the handler; nil does not
}

// Gateway is a gateway that serves an installation. Its methods fail the test on an error.
type Gateway struct {
	*httptest.Server
	*clustertest.Installation
	Members    *cluster.Members
	Audit      *AuditLog
	ClientTLS  *tls.Config  // configuration of HTTPClient and of raw connections
	HTTPClient *http.Client // follows no redirect

	tb testing.TB
}

// New starts a gateway on a new installation, until the test ends. The group dev may call every cluster, and the client
// is alice of that group.
func New(tb testing.TB, opts Options) *Gateway {
	tb.Helper()
	i := clustertest.NewInstallation(tb)
	i.Grant("dev", `{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"verbs":["*"]}`)
	return Start(tb, i, opts)
}

// Start starts a gateway on an installation, until the test ends. The client is alice of the group dev.
func Start(tb testing.TB, i *clustertest.Installation, opts Options) *Gateway {
	tb.Helper()
	g := &Gateway{Installation: i, Audit: &AuditLog{}, tb: tb}
	cfg := NewConfig(tb, i, opts)
	g.Members = cfg.Members
	if cfg.Audit == nil {
		cfg.Audit = audit.New(audit.Config{To: g.Audit})
	}
	var h http.Handler = gateway.New(cfg)
	if opts.Wrap != nil {
		h = opts.Wrap(h)
	}
	g.Server = httptest.NewUnstartedServer(h)
	g.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	g.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	g.StartTLS()
	tb.Cleanup(func() { g.CloseClientConnections(); g.Close() })
	g.LogIn("alice", "dev", "system:authenticated")
	return g
}

// NewConfig returns the configuration of a gateway for tests that serve it themselves. Audit is not set.
func NewConfig(tb testing.TB, i *clustertest.Installation, opts Options) gateway.Config {
	tb.Helper()
	if opts.FleetDeadline == 0 {
		opts.FleetDeadline = FleetDeadline
	}
	if opts.GracePeriod == 0 {
		opts.GracePeriod = FleetDeadline
	}
	if opts.Now == nil {
		opts.Now = i.Clock.Now
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	front, err := pki.LoadCA(tb.TempDir(), "front-proxy-ca") // no front proxy has a certificate of it
	if err != nil {
		tb.Fatal(err)
	}
	members := cluster.NewMembers(cluster.Config{
		Objects: i.Objects, Secrets: i.Secrets, Freshness: opts.Freshness, Now: opts.Now, Log: opts.Log,
		Policy: cluster.DialPolicy{AllowLoopback: true}, NoTrials: opts.Function != nil, MaxReadConns: opts.MaxReadConns,
	})
	tb.Cleanup(members.Close)
	authorizer := access.NewAuthorizer(access.Config{Store: i.Objects, Log: opts.Log})
	cfg := gateway.Config{
		Fleet: fleet.New(fleet.Config{
			Objects: i.Objects, Members: members, Access: authorizer, Deadline: opts.FleetDeadline,
			GracePeriod: opts.GracePeriod, DiscoveryTTL: opts.DiscoveryTTL, ControlPlane: opts.ControlPlane,
			BareWrites: opts.BareWrites, Now: opts.Now, Log: opts.Log,
		}),
		Identity: identity.Chain{
			identity.FrontProxy{
				CA: identity.NewClientCA(front.Pool(), nil), Names: []string{"front-proxy-client"}, Peer: identity.TLSPeer,
			},
			identity.X509{CA: identity.NewClientCA(i.CA.Pool(), nil), Peer: identity.TLSPeer},
		},
		Tokens: ownTokens{}, Access: authorizer, Members: members, Log: opts.Log, Function: opts.Function,
		Recheck: 50 * time.Millisecond, DiscoveryTimeout: opts.FleetDeadline,
	}
	if opts.Configure != nil {
		opts.Configure(&cfg)
	}
	return cfg
}

// LogIn makes the client another user, on connections of its own.
func (g *Gateway) LogIn(user string, groups ...string) {
	g.tb.Helper()
	g.connectAs(g.ClientCertificate(user, groups...))
}

// LogOut makes the client one without a certificate, on connections of its own.
func (g *Gateway) LogOut() {
	g.tb.Helper()
	g.connectAs()
}

func (g *Gateway) connectAs(certificates ...tls.Certificate) {
	g.tb.Helper()
	if g.HTTPClient != nil {
		g.HTTPClient.CloseIdleConnections()
	}
	g.ClientTLS = g.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	g.ClientTLS.Certificates = certificates
	g.HTTPClient = &http.Client{
		Transport:     &http.Transport{TLSClientConfig: g.ClientTLS, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	g.tb.Cleanup(g.HTTPClient.CloseIdleConnections)
}

// Do makes a call with a body, "" for none. The response's body is closed when the test ends.
func (g *Gateway) Do(method, path string, header http.Header, body string) *http.Response {
	g.tb.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(g.tb.Context(), method, g.URL+path, reader)
	if err != nil {
		g.tb.Fatal(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := g.HTTPClient.Do(req)
	if err != nil {
		g.tb.Fatal(err)
	}
	g.tb.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// DoText is Do for a response with a short body, which it returns.
func (g *Gateway) DoText(method, path string, header http.Header, body string) (string, *http.Response) {
	g.tb.Helper()
	resp := g.Do(method, path, header, body)
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		g.tb.Error(err)
	}
	return string(text), resp
}

// SendRaw sends bytes as they stand on a connection of its own, with "\n" as CRLF, and returns the response.
func (g *Gateway) SendRaw(request string) *http.Response {
	g.tb.Helper()
	resp, _, _ := SendRaw(g.tb, g.Listener.Addr().String(), g.ClientTLS, strings.ReplaceAll(request, "\n", "\r\n"))
	return resp
}
