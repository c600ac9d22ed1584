package gateway

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/forward"
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
	Authentication Authentication `envconfig:"CLUSTERPASS_AUTHENTICATION" desc:"Credentials that are accepted beside client certificates: YAML, or the path of a file; see docs/reference/access.md." example:"/etc/clusterpass/authentication.yaml"`
	AllowLoopback  bool           `envconfig:"CLUSTERPASS_ALLOW_LOOPBACK" default:"false" desc:"Whether member clusters may have loopback addresses; for one machine only." example:"true"`
	LogLevel       slog.Level     `envconfig:"CLUSTERPASS_LOG_LEVEL" default:"INFO" desc:"Least level that is logged: DEBUG, INFO, WARN or ERROR." example:"WARN"`
	CloudWatch     string         `envconfig:"CLUSTERPASS_CLOUDWATCH_NAMESPACE" desc:"Namespace of CloudWatch metrics, which are printed in the embedded metric format, which CloudWatch Logs reads: by a bridge in a line every minute, by functions with what the log says of a call." example:"Clusterpass/prod"`
	Origins        Origins        `envconfig:"CLUSTERPASS_WEBSOCKET_ORIGINS" desc:"Origins of web pages that may open websockets, and write through a visitor's browser, with commas between." example:"https://console.example.com"`
	// Fleet makes Config.Fleet for the Gateway that is opened; nil for none.
	Fleet func(p Parts) Fleet `ignored:"true"`
	// LogTo gets the log, in JSON; nil means standard error.
	LogTo io.Writer `ignored:"true"`
	// Root makes Config.Root of the Gateway that is opened; nil for none.
	Root func(Parts) (func(w http.ResponseWriter, r *http.Request, c RootCall) (next string, err error), error) `ignored:"true"`
	// Public is Config.Public of the Gateway that is opened.
	Public func(w http.ResponseWriter, r *http.Request, path string) bool `ignored:"true"`
	// Stream is Config.Stream of the Gateway that is opened.
	Stream func(w http.ResponseWriter, r *http.Request, c forward.Call) error `ignored:"true"`
	// Admit is Config.Admit of the Gateway that is opened.
	Admit func(user, bearer string) (done func(), err error) `ignored:"true"`
	// AdmitTo is Config.AdmitTo of the Gateway that is opened.
	AdmitTo func(cluster string) (done func(), err error) `ignored:"true"`
	// Source is Config.Source of the Gateway that is opened.
	Source limits.SourceMode `ignored:"true"`
	// Unverified is Config.Unverified of the Gateway that is opened.
	Unverified Unverified `ignored:"true"`
	// Hold is Config.Hold of the Gateway that is opened.
	Hold func(w http.ResponseWriter, r *http.Request, user string, do Handler) error `ignored:"true"`
	// Recheck is Config.Recheck of the Gateway that is opened.
	Recheck time.Duration `ignored:"true"`
	// Tunnel reaches private clusters; nil for the way through the bridge's tunnel port.
	Tunnel cluster.Tunnel `ignored:"true"`
}

// ownToken says which bearer tokens are worth something here.
func (e *Env) ownToken(p *passes.Verifier) func(token string) bool {
	return func(token string) bool {
		return p.IsPass(token) || e.Authentication.ownToken != nil && e.Authentication.ownToken(token)
	}
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
		Identity: chain, OwnToken: e.ownToken(verifier), Passes: verifier, Public: e.Public, Access: authorizer,
		Members: members, Log: log, Audit: auditLog, Function: fn, Origins: e.Origins, Source: e.Source,
		Stream: e.Stream, Admit: e.Admit, AdmitTo: e.AdmitTo, Unverified: e.Unverified, Hold: e.Hold, Recheck: e.Recheck,
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
	if e.Root != nil {
		if cfg.Root, err = e.Root(parts); err != nil {
			return nil, nil, err
		}
	}
	return New(cfg), members, nil
}
