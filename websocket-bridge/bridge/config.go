package bridge

import (
	"time"

	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/assembly/apiconfig"
	"github.com/clusterpass/clusterpass/shared/assembly/fleetconfig"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/websocket-bridge/console"
	"github.com/clusterpass/clusterpass/websocket-bridge/streams"
)

// Config is the bridge's configuration.
type Config struct {
	assembly.Env
	fleetconfig.Settings
	apiconfig.Options
	Limits
	Private
	Recordings
	console.SignIn
	TunnelListen string `envconfig:"CLUSTERPASS_TUNNEL_LISTEN" default:"127.0.0.1:8444" desc:"Listen address of the tunnel port, for the gateway's functions and other replicas. Keep it unreachable from outside." example:":8444"`
	Listen       string `envconfig:"CLUSTERPASS_LISTEN" default:"127.0.0.1:8080" desc:"Listen address for clients, usually behind a load balancer." example:":8080"`
	AdminListen  string `envconfig:"CLUSTERPASS_ADMIN_LISTEN" default:"127.0.0.1:8081" desc:"Listen address for /livez, /readyz, /healthz and /metrics. Keep it unreachable from outside." example:":8081"`
	// MTLSHeader is for a load balancer that terminates TLS.
	MTLSHeader identity.PeerHeader `envconfig:"CLUSTERPASS_MTLS_HEADER" desc:"Header with the client certificate that a load balancer adds. Set it only if nothing else can reach CLUSTERPASS_LISTEN." example:"X-Amzn-Mtls-Clientcert"`
	SelfSigned bool                `envconfig:"CLUSTERPASS_SELF_SIGNED" default:"false" desc:"Serve TLS at CLUSTERPASS_LISTEN with a self-signed certificate, for load balancers that verify none, e.g. an ALB." example:"true"`
	Certificate
	DrainDelay   time.Duration `envconfig:"CLUSTERPASS_DRAIN_DELAY" default:"5s" min:"0s" desc:"How long requests are accepted after SIGTERM while readiness fails, so that the load balancer notices." example:"10s"`
	DrainTimeout time.Duration `envconfig:"CLUSTERPASS_DRAIN_TIMEOUT" default:"110s" min:"0s" desc:"Time after SIGTERM until all sessions are closed. At most 110s." example:"90s"`
}

// maxDrain is the time between SIGTERM and SIGKILL on Fargate, 120 s, minus time to deliver audit events and exit.
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
	if err := c.SignIn.Validate(); err != nil {
		return err
	}
	if err := c.validateCertificate(); err != nil {
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

// Limits are the limits of callers and connections. Zero means no limit.
type Limits struct {
	Unidentified
	MaxStreams        int           `envconfig:"CLUSTERPASS_MAX_STREAMS" default:"10000" min:"1" desc:"Maximum number of concurrent streams." example:"20000"`
	MaxPerCaller      int           `envconfig:"CLUSTERPASS_MAX_STREAMS_PER_CALLER" default:"1000" min:"1" desc:"Maximum number of concurrent streams of one user." example:"200"`
	MaxCalls          int           `envconfig:"CLUSTERPASS_MAX_CALLS" default:"2000" min:"1" desc:"Maximum number of concurrent requests, without streams." example:"4000"`
	MaxCallsPerCaller int           `envconfig:"CLUSTERPASS_MAX_CALLS_PER_CALLER" default:"400" min:"1" desc:"Maximum number of concurrent requests of one user, without streams." example:"100"`
	MaxCallsPerMember int           `envconfig:"CLUSTERPASS_MAX_CALLS_PER_CLUSTER" default:"1000" min:"1" desc:"Maximum number of concurrent requests to one member cluster, without streams and fleet lists." example:"200"`
	MaxUnverified     int           `envconfig:"CLUSTERPASS_MAX_UNVERIFIED" default:"1000" min:"1" desc:"Maximum number of concurrent requests and streams to passthrough clusters, whose callers the gateway cannot authenticate." example:"200"`
	IdleTimeout       time.Duration `envconfig:"CLUSTERPASS_STREAM_IDLE_TIMEOUT" default:"4h" min:"1s" desc:"How long a stream may be idle." example:"1h"`
	StreamTimeout     time.Duration `envconfig:"CLUSTERPASS_STREAM_TIMEOUT" default:"24h" min:"1s" desc:"Maximum duration of a stream." example:"8h"`
	StallTimeout      time.Duration `envconfig:"CLUSTERPASS_STALL_TIMEOUT" default:"30m" min:"1s" desc:"How long a client may leave sent data unread." example:"5m"`
	PingPeriod        time.Duration `envconfig:"CLUSTERPASS_PING_PERIOD" default:"30s" min:"1s" desc:"Idle time after which a websocket client is pinged, so that proxies keep the connection." example:"20s"`
	MaxMessage        int64         `envconfig:"CLUSTERPASS_MAX_MESSAGE_BYTES" default:"1048576" min:"1024" desc:"Maximum size in bytes of a websocket message from a client that the bridge must parse." example:"65536"`
	Recheck           time.Duration `envconfig:"CLUSTERPASS_RECHECK" default:"2s" min:"1s" desc:"Interval at which the credential, access and cluster of every stream are checked, and the credential of every agent. Access and clusters of a fleet watch are checked every 5s." example:"10s"`
	ProbeInterval     time.Duration `envconfig:"CLUSTERPASS_PROBE_INTERVAL" default:"30s" min:"0s" desc:"Interval of the health probes that set each cluster's condition Ready. 0s disables them." example:"10s"`
	ProbeTimeout      time.Duration `ignored:"true"` // of one probe; 0 means health.Timeout
	MaxHeader         int           `envconfig:"CLUSTERPASS_MAX_HEADER_BYTES" default:"65536" min:"4096" desc:"Maximum size in bytes of a request's headers." example:"16384"`
}

func (l Limits) streams() streams.Config {
	return streams.Config{
		MaxStreams: l.MaxStreams, MaxPerCaller: l.MaxPerCaller, IdleTimeout: l.IdleTimeout, SessionTimeout: l.StreamTimeout,
		StallTimeout: l.StallTimeout, PingPeriod: l.PingPeriod,
	}
}

// Reading and writing have no timeouts here, because streams are long-lived.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 5 * time.Minute
)
