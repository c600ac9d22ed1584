// Package server runs the whole gateway on one machine: HTTPS server, functions and bridge in one program.
package server

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/assembly/apiconfig"
	"github.com/clusterpass/clusterpass/shared/assembly/fleetconfig"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/websocket-bridge/bridge"
	"github.com/clusterpass/clusterpass/websocket-bridge/console"
)

// Config is the program's configuration.
type Config struct {
	bridge.Limits
	bridge.Private
	bridge.Recordings
	console.SignIn
	TunnelListen string `envconfig:"CLUSTERPASS_TUNNEL_LISTEN" desc:"Listen address of the tunnel port, through which functions reach private clusters. Keep it unreachable from outside. Default: on loopback, the port after that of CLUSTERPASS_LISTEN." example:"127.0.0.1:8444"`
	fleetconfig.Settings
	apiconfig.PassLimits
	assembly.Shared
	Listen         string         `envconfig:"CLUSTERPASS_LISTEN" default:"127.0.0.1:8443" desc:"Listen address for clients." example:"127.0.0.1:9443"`
	Hosts          []string       `envconfig:"CLUSTERPASS_HOSTS" desc:"Further host names for the server's certificate: a comma-separated list. If CLUSTERPASS_LISTEN has no host, clients use the first one." example:"clusterpass.example.com"`
	Data           string         `envconfig:"CLUSTERPASS_DATA" desc:"Directory for certificates, secrets and objects. Default: clusterpass in the user's data directory." example:"/var/lib/clusterpass"`
	Store          stores.Address `envconfig:"CLUSTERPASS_STORE" desc:"Location of the stores for credentials and objects. Default: the directory in CLUSTERPASS_DATA." example:"aws:clusterpass"`
	Functions      Mode           `envconfig:"CLUSTERPASS_FUNCTIONS" default:"inline" desc:"How requests are served: inline (all in this process) or process (small ones by functions in processes of their own, as on Lambda)." example:"process"`
	FunctionsDir   string         `envconfig:"CLUSTERPASS_FUNCTIONS_DIR" desc:"Directory with NAME/bootstrap of each function. Default: functions beside this program." example:"dist/local/functions"`
	Kubeconfig     string         `envconfig:"CLUSTERPASS_KUBECONFIG" default:"clusterpass.kubeconfig" desc:"Path of the kubeconfig that is written for the gateway's owner." example:"pass.kubeconfig"`
	Register       string         `envconfig:"CLUSTERPASS_REGISTER" desc:"Kubeconfig files whose contexts are registered at the start, in the format of KUBECONFIG. Their credential plugins run, as for kubectl. Default: KUBECONFIG." example:"/home/me/.kube/config"`
	RefuseLoopback bool           `envconfig:"CLUSTERPASS_REFUSE_LOOPBACK" default:"false" desc:"Refuse member clusters with loopback addresses. Set it if other people than this machine's owner register clusters." example:"true"`
	DrainTimeout   time.Duration  `envconfig:"CLUSTERPASS_DRAIN_TIMEOUT" default:"10s" min:"0s" desc:"How long open requests may continue after ctrl-C." example:"1m"`
}

// Mode selects how requests are served.
type Mode string

// The modes.
const (
	// Inline serves every request in this process, by the handler of the bridge.
	Inline Mode = "inline"
	// Process serves small requests by functions in processes of their own, as Lambda does.
	Process Mode = "process"
)

// Decode implements envconfig.Decoder.
func (m *Mode) Decode(v string) error {
	if *m = Mode(v); *m != Process && *m != Inline {
		return fmt.Errorf("want %s or %s", Process, Inline)
	}
	return nil
}

// Validate implements config.Validator. It also sets defaults that depend on the environment.
func (c *Config) Validate() error {
	if err := c.Settings.Validate(); err != nil {
		return err
	}
	if err := config.Address("CLUSTERPASS_LISTEN", c.Listen); err != nil {
		return err
	}
	if c.TunnelListen == "" {
		_, port, _ := net.SplitHostPort(c.Listen) // checked by Address
		n, _ := strconv.Atoi(port)
		if n > 0 && n < 65535 {
			n++
		}
		c.TunnelListen = net.JoinHostPort("127.0.0.1", strconv.Itoa(n))
	}
	if err := config.Address("CLUSTERPASS_TUNNEL_LISTEN", c.TunnelListen); err != nil {
		return err
	}
	if err := c.Peers.Validate("CLUSTERPASS_PEERS"); err != nil {
		return err
	}
	if err := c.SignIn.Validate(); err != nil {
		return err
	}
	if c.Register == "" {
		c.Register = os.Getenv("KUBECONFIG")
	}
	if c.Data == "" {
		def, err := stores.Default()
		if err != nil {
			return &config.Error{Variable: "CLUSTERPASS_DATA", Problem: err.Error(), Example: "/var/lib/clusterpass"}
		}
		c.Data = def.Where
	}
	abs, err := filepath.Abs(c.Data) // functions run in directories of their own
	if err != nil {
		return &config.Error{Variable: "CLUSTERPASS_DATA", Problem: err.Error(), Example: "/var/lib/clusterpass"}
	}
	c.Data = abs
	if c.Functions == Process && c.Store.Kind != "dir" && c.Store.Kind != "" { // these functions have no credentials
		const problem = "functions in processes of their own can use only directories as CLUSTERPASS_STORE"
		return &config.Error{Variable: "CLUSTERPASS_FUNCTIONS", Problem: problem, Example: "inline"}
	}
	if c.Functions == Process && c.PassKMSKey != "" {
		const problem = "functions in processes of their own cannot reach the KMS of CLUSTERPASS_PASS_KMS_KEY"
		return &config.Error{Variable: "CLUSTERPASS_FUNCTIONS", Problem: problem, Example: "inline"}
	}
	if c.FunctionsDir == "" {
		exe, err := os.Executable()
		if err != nil {
			return &config.Error{
				Variable: "CLUSTERPASS_FUNCTIONS_DIR", Problem: "is not set, and the program cannot find itself",
				Example: "dist/local/functions",
			}
		}
		c.FunctionsDir = filepath.Join(filepath.Dir(exe), "functions")
	}
	return nil
}
