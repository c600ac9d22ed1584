package server

import (
	"time"

	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/control"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gateway/many"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/websocket-bridge/streams"
)

// Config is the bridge's configuration.
type Config struct {
	gateway.Env
	many.Settings
	control.Options
	Limits
	Private
	TunnelListen string `envconfig:"CLUSTERPASS_TUNNEL_LISTEN" default:"127.0.0.1:8444" desc:"Address for the gateway's own functions and replicas of the bridge, which reach private clusters there; never reachable from outside." example:":8444"`
	Listen       string `envconfig:"CLUSTERPASS_LISTEN" default:"127.0.0.1:8080" desc:"Address for the front door." example:":8080"`
	AdminListen  string `envconfig:"CLUSTERPASS_ADMIN_LISTEN" default:"127.0.0.1:8081" desc:"Address for /livez, /readyz, /healthz and /metrics; never reachable from outside." example:":8081"`
	// MTLSHeader is for a front door that ends TLS.
	MTLSHeader   identity.PeerHeader `envconfig:"CLUSTERPASS_MTLS_HEADER" desc:"The header that the front door writes client certificates into, to be believed: only where nothing else can reach LISTEN." example:"X-Amzn-Mtls-Clientcert"`
	SelfSigned   bool                `envconfig:"CLUSTERPASS_SELF_SIGNED" default:"false" desc:"Whether LISTEN speaks TLS, with a certificate made at the start: for front doors that verify none, such as an ALB." example:"true"`
	DrainDelay   time.Duration       `envconfig:"CLUSTERPASS_DRAIN_DELAY" default:"5s" min:"0s" desc:"How long calls are still accepted after SIGTERM, not ready any more, so that the front door notices." example:"10s"`
	DrainTimeout time.Duration       `envconfig:"CLUSTERPASS_DRAIN_TIMEOUT" default:"110s" min:"0s" desc:"How long sessions may go on after SIGTERM; all is closed by then. At most 110s." example:"90s"`
}

// maxDrain is what Fargate grants between SIGTERM and SIGKILL, 120 s, less what it takes to write audit events and to end.
const maxDrain = 110 * time.Second

// Validate implements config.Validator.
func (c *Config) Validate() error {
	if err := c.Settings.Validate(); err != nil {
		return err
	}
	for _, a := range []struct{ variable, value string }{
		{"CLUSTERPASS_LISTEN", c.Listen}, {"CLUSTERPASS_TUNNEL_LISTEN", c.TunnelListen},
		{"CLUSTERPASS_ADMIN_LISTEN", c.AdminListen},
	} {
		if err := config.Address(a.variable, a.value); err != nil {
			return err
		}
	}
	if err := c.Peers.Validate("CLUSTERPASS_PEERS"); err != nil {
		return err
	}
	if c.DrainTimeout <= 0 || c.DrainTimeout > maxDrain {
		return &config.Error{
			Variable: "CLUSTERPASS_DRAIN_TIMEOUT", Problem: "want more than 0 and at most " + maxDrain.String(), Example: "90s",
		}
	}
	if c.DrainDelay < 0 || c.DrainDelay >= c.DrainTimeout {
		return &config.Error{
			Variable: "CLUSTERPASS_DRAIN_DELAY", Problem: "want less than CLUSTERPASS_DRAIN_TIMEOUT", Example: "5s",
		}
	}
	return nil
}

// Limits of what callers may hold open. Programs that run a bridge embed it. Zero means no limit.
type Limits struct {
	Unidentified
	MaxStreams        int           `envconfig:"CLUSTERPASS_MAX_STREAMS" default:"10000" min:"1" desc:"Streams that may be open in all." example:"20000"`
	MaxPerCaller      int           `envconfig:"CLUSTERPASS_MAX_STREAMS_PER_CALLER" default:"1000" min:"1" desc:"Streams that one user may have open." example:"200"`
	MaxCalls          int           `envconfig:"CLUSTERPASS_MAX_CALLS" default:"2000" min:"1" desc:"Calls beside streams that may be in flight in all." example:"4000"`
	MaxCallsPerCaller int           `envconfig:"CLUSTERPASS_MAX_CALLS_PER_CALLER" default:"400" min:"1" desc:"Calls beside streams that one user may have in flight." example:"100"`
	MaxCallsPerMember int           `envconfig:"CLUSTERPASS_MAX_CALLS_PER_CLUSTER" default:"1000" min:"1" desc:"Calls beside streams and lists of the fleet that may be in flight to one member cluster." example:"200"`
	MaxUnverified     int           `envconfig:"CLUSTERPASS_MAX_UNVERIFIED" default:"1000" min:"1" desc:"Streams and other calls that all callers together may have whom the gateway does not know itself, but their cluster, which has identity passthrough." example:"200"`
	IdleTimeout       time.Duration `envconfig:"CLUSTERPASS_STREAM_IDLE_TIMEOUT" default:"4h" min:"1s" desc:"How long a stream may carry no data." example:"1h"`
	StreamTimeout     time.Duration `envconfig:"CLUSTERPASS_STREAM_TIMEOUT" default:"24h" min:"1s" desc:"How long a stream may be open in all." example:"8h"`
	StallTimeout      time.Duration `envconfig:"CLUSTERPASS_STALL_TIMEOUT" default:"30m" min:"1s" desc:"How long a client may take nothing of what is sent to it." example:"5m"`
	PingPeriod        time.Duration `envconfig:"CLUSTERPASS_PING_PERIOD" default:"30s" min:"1s" desc:"Silence after which a websocket client is sent a ping, so that nothing on the way takes the connection for dead." example:"20s"`
	MaxMessage        int64         `envconfig:"CLUSTERPASS_MAX_MESSAGE_BYTES" default:"1048576" min:"1024" desc:"Size of one websocket message from a client, where the bridge takes it apart." example:"65536"`
	Recheck           time.Duration `envconfig:"CLUSTERPASS_RECHECK" default:"10s" min:"1s" desc:"How often it is looked at whether a stream may still be open: the credential, the grant, the cluster." example:"5s"`
	ProbeInterval     time.Duration `envconfig:"CLUSTERPASS_PROBE_INTERVAL" default:"30s" min:"0s" desc:"How often each cluster is asked whether it answers, for its condition Ready; 0s for never." example:"10s"`
	MaxHeader         int           `envconfig:"CLUSTERPASS_MAX_HEADER_BYTES" default:"65536" min:"4096" desc:"Size of a request's header." example:"16384"`
}

func (l Limits) streams() streams.Config {
	return streams.Config{
		MaxStreams: l.MaxStreams, MaxPerCaller: l.MaxPerCaller, IdleTimeout: l.IdleTimeout, SessionTimeout: l.StreamTimeout,
		StallTimeout: l.StallTimeout, PingPeriod: l.PingPeriod,
	}
}

// Limits of every connection. Streams live for long, so neither reading nor writing has a limit here.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 5 * time.Minute
)
