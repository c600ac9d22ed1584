// Package assembly builds a gateway from its configuration, so that functions, bridge and local program wire the same
// parts. [Open] opens the stores of an [Env] and returns [Parts], which make the member connections and the gateway.
//
// Packages fleetconfig and apiconfig add the fleet and the gateway's own API. Both have large dependencies, which other
// functions do not link.
package assembly

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/hub"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/objects/replica"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/recording/policy"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/shared/tunnel"
)

// Shared is the part of Env that the local program has, too. That program derives the other variables.
type Shared struct {
	Auditing
	Authentication Authentication  `envconfig:"CLUSTERPASS_AUTHENTICATION" desc:"Credentials that are accepted in addition to client certificates: YAML, or the path of a file. See docs/reference/access.md." example:"/etc/clusterpass/authentication.yaml"`
	LogLevel       slog.Level      `envconfig:"CLUSTERPASS_LOG_LEVEL" default:"INFO" desc:"Minimum log level: DEBUG, INFO, WARN or ERROR." example:"WARN"`
	Origins        gateway.Origins `envconfig:"CLUSTERPASS_WEBSOCKET_ORIGINS" desc:"Origins of web pages that may open websockets and send write requests: a comma-separated list." example:"https://console.example.com"`
}

// NewLog returns a log that writes JSON to w.
func (s Shared) NewLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: s.LogLevel}))
}

// Env is the configuration that every program with a gateway shares. Programs embed it.
type Env struct {
	Shared
	Store         stores.Address `envconfig:"CLUSTERPASS_STORE" required:"true" desc:"Location of the stores for credentials and objects: dir:PATH, aws:PREFIX or, except in functions, kubernetes:NAMESPACE." example:"dir:/var/lib/clusterpass"`
	ClientCA      Certificates   `envconfig:"CLUSTERPASS_CLIENT_CA" required:"true" desc:"CA that signs client certificates: PEM, also in base64, or the path of a PEM file." example:"/etc/clusterpass/client-ca.pem"`
	URL           config.URL     `envconfig:"CLUSTERPASS_URL" desc:"URL of the gateway for clients, without a path. It is the audience of token passes, which are not available without it." example:"https://gateway.example.com"`
	AllowLoopback bool           `envconfig:"CLUSTERPASS_ALLOW_LOOPBACK" default:"false" desc:"Allow member clusters with loopback addresses. Only for a gateway on a personal machine." example:"true"`
	CloudWatch    string         `envconfig:"CLUSTERPASS_CLOUDWATCH_NAMESPACE" desc:"Namespace of CloudWatch metrics. They are logged in CloudWatch's embedded metric format: by the bridge every minute, by functions for each request." example:"Clusterpass/prod"`
}

// Parts are the parts of a gateway that need no connection to a member cluster. They are immutable, except for Plugins
// before the first use.
type Parts struct {
	Env       Env
	Stores    *stores.Stores
	Objects   replica.Store     // Stores.Objects for reads that may be some seconds old
	Freshness cluster.Freshness // how long data of the stores is cached
	Log       *slog.Logger
	Verifier  *passes.Verifier
	Access    *access.Authorizer
	Plugins   cluster.Plugins // only of the local program

	guard *hub.Guard // protects the stores in a hub cluster; nil for other stores
}

// maxRevisionAge is how long one read of the revision validates what a process has read of a remote store. It is less
// than each age that the caches allow.
const maxRevisionAge = 2250 * time.Millisecond

// Open opens the stores of env, also those of others. The log goes to logTo as JSON, and to standard error if logTo is
// nil.
func Open(ctx context.Context, env Env, logTo io.Writer, others ...stores.Opener) (*Parts, error) {
	st, err := stores.Open(ctx, env.Store, others...)
	if err != nil {
		return nil, err
	}
	if logTo == nil {
		logTo = os.Stderr
	}
	p := &Parts{
		Env: env, Stores: st, Freshness: cluster.Remote,
		Objects: replica.New(replica.Config{Store: st.Objects, MaxAge: maxRevisionAge}),
		Log:     env.NewLog(logTo),
	}
	if env.Store.Kind == "dir" {
		p.Freshness, p.Objects = cluster.Local, st.Objects // reading a directory costs nothing
	}
	if st.Hub != nil {
		p.guard = hub.NewGuard(st.Hub)
	}
	p.Verifier = p.NewVerifier()
	p.Access = access.NewAuthorizer(access.Config{Store: p.Objects, Log: p.Log})
	return p, nil
}

// NewVerifier returns a verifier of passes with caches of its own. The bridge has a second one, so that agents of
// private clusters cannot evict the passes of callers.
func (p *Parts) NewVerifier() *passes.Verifier {
	fresh := passes.RemoteFresh
	if p.Env.Store.Kind == "dir" {
		fresh = p.Freshness.Object
	}
	return passes.NewVerifier(passes.Config{
		Objects: p.Objects, Secrets: p.Stores.Secrets, URL: string(p.Env.URL), Fresh: fresh, Log: p.Log,
	})
}

// NewIssuer returns the issuer of passes. If signer is nil, the keys of the secret store sign them.
func (p *Parts) NewIssuer(signer passes.Signer) *passes.Issuer {
	return &passes.Issuer{
		Objects: p.Stores.Objects, Secrets: p.Stores.Secrets, URL: string(p.Env.URL), Signer: signer,
	}
}

// maxReadConns bounds the memory of connections for reads. Each has buffers of 20 KiB, beside TLS.
const maxReadConns = 256

// NewMembers returns the connections to member clusters. It reaches private clusters through t. A nil t means that the
// program works beside a bridge. Then it uses the bridge's tunnel port, and leaves trials of silent members to the
// bridge. Call Close when done.
func (p *Parts) NewMembers(t cluster.Tunnel) *cluster.Members {
	cfg := cluster.Config{
		Objects: p.Objects, Secrets: p.Stores.Secrets, Freshness: p.Freshness, Log: p.Log,
		Policy: p.DialPolicy(t), Plugins: p.Plugins, MaxReadConns: maxReadConns,
	}
	if t == nil {
		cfg.Policy.Tunnel, cfg.NoTrials = p.NewTunnel(), true
	}
	return cluster.NewMembers(cfg)
}

// NewTunnel returns the path to private clusters through the tunnel port of the bridge.
func (p *Parts) NewTunnel() cluster.Tunnel { return &tunnel.Dialer{Verifier: p.Verifier} }

// DialPolicy returns the policy for connections to member clusters. If t is nil, private clusters are unreachable.
func (p *Parts) DialPolicy(t cluster.Tunnel) cluster.DialPolicy {
	return cluster.DialPolicy{
		AllowLoopback: p.Env.AllowLoopback,
		Refuse:        cluster.RuntimeAPI(os.Getenv("AWS_LAMBDA_RUNTIME_API")),
		Tunnel:        t,
		Stores:        p.guard,
	}
}

// Fleet is a gateway.Fleet with statistics of its caches.
type Fleet interface {
	gateway.Fleet
	Stats() map[string]cache.Stats
}

// Options are the parts of a gateway that differ between programs. Peer and Members are required.
type Options struct {
	Peer      identity.Peer
	Members   *cluster.Members
	Fleet     Fleet             // optional
	API       gateway.API       // optional
	Streams   gateway.Streamer  // optional
	Admission gateway.Admission // optional
	Function  *gateway.Function // nil outside of functions
	Source    limits.SourceMode
	// Recheck and DiscoveryTimeout are those of gateway.Config. 0 means its defaults.
	Recheck, DiscoveryTimeout time.Duration
	Observe                   func(gateway.Completed) // optional
}

const (
	// policyFresh is how old the RecordingPolicies of a remote store may be. Those of a directory are as old as Clusters.
	policyFresh = 2 * time.Second
	// policyPatience limits how long the decision about a session waits for a slow store.
	policyPatience = 2 * time.Second
)

func (p *Parts) newRecordingPolicies() *policy.Policies {
	fresh := policyFresh
	if p.Env.Store.Kind == "dir" {
		fresh = p.Freshness.Object
	}
	return policy.New(policy.Config{Objects: p.Objects, Fresh: fresh, Patience: policyPatience, Log: p.Log})
}

// NewGateway returns a gateway. It fails if the configuration of authentication or of the audit log is invalid. Call
// the gateway's Close when done.
func (p *Parts) NewGateway(ctx context.Context, o Options) (*gateway.Gateway, error) {
	chain, err := p.Env.chain(o.Peer, p.Verifier)
	if err != nil {
		return nil, err
	}
	queue := cmp.Or(p.Env.AuditSpool, defaultSpool)
	if o.Function != nil {
		queue = 0 // a function may freeze after its response, so the event must be delivered before
	}
	auditLog, err := p.Env.open(ctx, p.Stores, p.Log, queue)
	if err != nil {
		return nil, err
	}
	recordings := p.newRecordingPolicies()
	cfg := gateway.Config{
		Identity: chain, Passes: p.Verifier, Access: p.Access, Members: o.Members, API: o.API, Streams: o.Streams,
		Recordings: recordings, Admission: o.Admission, Function: o.Function, Source: o.Source, Origins: p.Env.Origins,
		Recheck: o.Recheck, DiscoveryTimeout: o.DiscoveryTimeout, Observe: o.Observe,
		Log: p.Log, UnidentifiedRate: p.Env.UnidentifiedRate, Audit: auditLog, MetricsNamespace: p.Env.CloudWatch,
		Caches: []func() map[string]cache.Stats{o.Members.Stats, p.Verifier.Stats, recordings.Stats},
	}
	if oidc := p.Env.Authentication.oidc; oidc != nil {
		cfg.Tokens = oidc
	}
	if o.Fleet != nil {
		cfg.Fleet = o.Fleet
		cfg.Caches = append(cfg.Caches, o.Fleet.Stats)
	}
	return gateway.New(cfg), nil
}
