package bridge

import (
	"net"
	"net/http"
	"time"

	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/websocket-bridge/conns"
)

// Unidentified are limits of clients that the gateway has not identified. Zero means no limit, except for MaxUnknown.
type Unidentified struct {
	// Source has a default that depends on the program.
	Source limits.SourceMode `envconfig:"CLUSTERPASS_SOURCE_ADDRESS" desc:"Source of client addresses: peer (clients connect directly), forwarded (a load balancer appends them to X-Forwarded-For) or none (unknown). Default: peer for the local gateway; forwarded for the bridge, which needs a value with CLUSTERPASS_TLS_CERT or CLUSTERPASS_HOSTS." example:"peer"`
	// MaxUnknown 0 means half of Limits.MaxUnverified.
	MaxUnknown          int `envconfig:"CLUSTERPASS_MAX_UNKNOWN" min:"0" desc:"Maximum number of concurrent requests and streams with tokens that their cluster has not accepted in the last ten minutes. They also count for CLUSTERPASS_MAX_UNVERIFIED. Default: half of CLUSTERPASS_MAX_UNVERIFIED." example:"100"`
	MaxUnknownPerSource int `envconfig:"CLUSTERPASS_MAX_UNKNOWN_PER_SOURCE" default:"100" min:"1" desc:"The same as CLUSTERPASS_MAX_UNKNOWN for one source: an IPv4 address or an IPv6 /64." example:"20"`
	MaxIdle             int `envconfig:"CLUSTERPASS_MAX_IDLE_CONNECTIONS" default:"10000" min:"1" desc:"Maximum number of idle connections." example:"2000"`
	MaxIdlePerSource    int `envconfig:"CLUSTERPASS_MAX_IDLE_CONNECTIONS_PER_SOURCE" default:"1000" min:"1" desc:"Maximum number of idle connections of one source address, if clients connect directly." example:"50"`
}

// HTTPServer returns a server for h with the bridge's limits. If clients connect to it directly, a connection closes
// after a response of 401.
func (l Limits) HTTPServer(h http.Handler) *http.Server {
	idle := &conns.Idle{Max: l.MaxIdle}
	if l.Source.IsPeer() {
		idle.MaxPerSource = l.MaxIdlePerSource
		h = conns.CloseUnauthorized(h)
	}
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: l.MaxHeader,
		ConnState: func(c net.Conn, s http.ConnState) {
			idle.Track(c, s)
			// Each request leaves its write deadline on the connection. The next one must not inherit it.
			if s == http.StateActive {
				_ = c.SetWriteDeadline(time.Time{})
			}
		},
	}
}
