package gateway

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
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/shared/tunnel"
)

// Env is the configuration that every program with a Gateway in it shares. Programs embed it.
type Env struct {
	Auditing
	Store stores.Address `envconfig:"CLUSTERPASS_STORE" required:"true" desc:"Where credentials and objects are kept." example:"dir:/var/lib/clusterpass"`
	// ClientCA authenticates people and scripts.
	ClientCA       Certificates   `envconfig:"CLUSTERPASS_CLIENT_CA" required:"true" desc:"CA that signs client certificates: PEM, also in base64, or the path of a PEM file." example:"/etc/clusterpass/client-ca.pem"`
	URL            config.URL     `envconfig:"CLUSTERPASS_URL" desc:"URL of the gateway as clients call it, without a path. Passes as tokens are for it; without it there are none." example:"https://gateway.example.com"`
	Authentication Authentication `envconfig:"CLUSTERPASS_AUTHENTICATION" desc:"Credentials that are accepted beside client certificates: YAML, or the path of a file; see docs/identity.md." example:"/etc/clusterpass/authentication.yaml"`
	AllowLoopback  bool           `envconfig:"CLUSTERPASS_ALLOW_LOOPBACK" default:"false" desc:"Whether member clusters may have loopback addresses; for one machine only." example:"true"`
	LogLevel       slog.Level     `envconfig:"CLUSTERPASS_LOG_LEVEL" default:"INFO" desc:"Least level that is logged: DEBUG, INFO, WARN or ERROR." example:"WARN"`
	CloudWatch     string         `envconfig:"CLUSTERPASS_CLOUDWATCH_NAMESPACE" desc:"Namespace of CloudWatch metrics, which are printed in the embedded metric format, which CloudWatch Logs reads: by a bridge in a line every minute, by functions with what the log says of a call." example:"Clusterpass/prod"`
	Origins        Origins        `envconfig:"CLUSTERPASS_WEBSOCKET_ORIGINS" desc:"Origins of web pages that may open websockets, and write through a visitor's browser, with commas between." example:"https://console.example.com"`
	// Fleet makes Config.Fleet for the Gateway that is opened; nil for none.
	Fleet func(p Parts) Fleet `ignored:"true"`
	// LogTo gets the log, in JSON; nil means standard error.
	LogTo io.Writer `ignored:"true"`
	// API returns Config.API of the Gateway that is opened.
	API func(Parts) (API, error) `ignored:"true"`
	// Streams is Config.Streams of the Gateway that is opened.
	Streams Streamer `ignored:"true"`
	// Admission is Config.Admission of the Gateway that is opened.
	Admission Admission `ignored:"true"`
	// Source is Config.Source of the Gateway that is opened.
	Source limits.SourceMode `ignored:"true"`
	// Recheck is Config.Recheck of the Gateway that is opened.
	Recheck time.Duration `ignored:"true"`
	// Tunnel reaches private clusters; nil for the way through the bridge's tunnel port.
	Tunnel cluster.Tunnel `ignored:"true"`
}

// Parts are what a Gateway is made of, for those who build beside it.
type Parts struct {
	Objects   objects.Store
	Secrets   secrets.Store
	Members   *cluster.Members
	Access    *access.Authorizer
	Freshness cluster.Freshness
	Log       *slog.Logger
}

// Open makes a Gateway of what the environment says. peer tells how client certificates arrive; fn is nil outside of
// functions. Call Close of both when done.
func (e *Env) Open(ctx context.Context, peer identity.Peer, fn *Function) (*Gateway, *cluster.Members, error) {
	st, err := stores.Open(ctx, e.Store)
	if err != nil {
		return nil, nil, err
	}
	var logTo io.Writer = os.Stderr
	if e.LogTo != nil {
		logTo = e.LogTo
	}
	log := slog.New(slog.NewJSONHandler(logTo, &slog.HandlerOptions{Level: e.LogLevel}))
	fresh, passFresh := cluster.Remote, passes.Fresh
	if e.Store.Kind == "dir" {
		fresh, passFresh = cluster.Local, cluster.Local.Object
	}
	verifier := passes.NewVerifier(passes.Config{Objects: st.Objects, Secrets: st.Secrets, URL: string(e.URL), Fresh: passFresh, Log: log})
	chain, err := e.chain(peer, verifier)
	if err != nil {
		return nil, nil, err
	}
	queue := cmp.Or(e.AuditSpool, defaultSpool)
	if fn != nil {
		queue = 0 // a function may be frozen when it has answered: a call is over when its event is delivered
	}
	auditLog, err := e.open(ctx, st, log, queue)
	if err != nil {
		return nil, nil, err
	}
	var way cluster.Tunnel = &tunnel.Dialer{Keys: verifier}
	if e.Tunnel != nil {
		way = e.Tunnel
	}
	members := cluster.NewMembers(cluster.Config{
		Objects: st.Objects, Secrets: st.Secrets, Freshness: fresh, Log: log,
		Policy: cluster.DialPolicy{
			AllowLoopback: e.AllowLoopback,
			Refuse:        cluster.RuntimeAPI(os.Getenv("AWS_LAMBDA_RUNTIME_API")),
			Tunnel:        way,
		},
	})
	authorizer := access.NewAuthorizer(access.Config{Store: st.Objects, Log: log})
	cfg := Config{
		Identity: chain, Passes: verifier, Access: authorizer,
		Members: members, Log: log, Audit: auditLog, Function: fn, Origins: e.Origins, Source: e.Source,
		Streams: e.Streams, Admission: e.Admission, Recheck: e.Recheck,
	}
	if oidc := e.Authentication.oidc; oidc != nil {
		cfg.Tokens = oidc
	}
	cfg.Caches = []func() map[string]cache.Stats{members.Stats, verifier.Stats}
	cfg.Namespace = e.CloudWatch
	parts := Parts{st.Objects, st.Secrets, members, authorizer, fresh, log}
	if e.Fleet != nil {
		cfg.Fleet = e.Fleet(parts)
		if counts, ok := cfg.Fleet.(interface{ Stats() map[string]cache.Stats }); ok {
			cfg.Caches = append(cfg.Caches, counts.Stats)
		}
	}
	if e.API != nil {
		if cfg.API, err = e.API(parts); err != nil {
			return nil, nil, err
		}
	}
	return New(cfg), members, nil
}
