package server

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/route"
)

// Config is the agent's configuration.
type Config struct {
	Gateway     string        `envconfig:"CLUSTERPASS_GATEWAY" required:"true" desc:"URL of the gateway." example:"https://gateway.example.com"`
	GatewayCA   CA            `envconfig:"CLUSTERPASS_GATEWAY_CA" desc:"CA of the gateway's certificate, as PEM or the path of a PEM file. Default: the system's CAs." example:"/etc/clusterpass/gateway-ca.pem"`
	Cluster     string        `envconfig:"CLUSTERPASS_CLUSTER" required:"true" desc:"Registered name of the agent's cluster." example:"prod"`
	Credential  Where         `envconfig:"CLUSTERPASS_CREDENTIAL" required:"true" desc:"Location of the agent's credential and key: file:PATH, or secret:NAMESPACE/NAME for a Secret in the agent's cluster." example:"secret:clusterpass-system/clusterpass-agent"`
	APIServer   string        `envconfig:"CLUSTERPASS_API_SERVER" desc:"Address of the cluster's API server. Default: the address in the environment of every pod." example:"10.0.0.1:6443"`
	Services    []string      `envconfig:"CLUSTERPASS_SERVICES" desc:"Other addresses that the gateway may reach through the agent, such as API servers of other clusters: a comma-separated list of host:port, as in their kubeconfigs." example:"tenant.vclusters.svc:443"`
	AdminListen string        `envconfig:"CLUSTERPASS_ADMIN_LISTEN" default:"127.0.0.1:8081" desc:"Listen address for /healthz, /readyz and /metrics." example:":8081"`
	Drain       time.Duration `envconfig:"CLUSTERPASS_DRAIN_TIMEOUT" default:"20s" min:"0s" desc:"How long connections may continue after SIGTERM." example:"1m"`
	LogLevel    slog.Level    `envconfig:"CLUSTERPASS_LOG_LEVEL" default:"INFO" desc:"Minimum log level: DEBUG, INFO, WARN or ERROR." example:"WARN"`
}

// CA is a set of CA certificates. A nil Pool means the system's.
type CA struct{ Pool *x509.CertPool }

// Decode implements envconfig.Decoder.
func (c *CA) Decode(v string) error {
	if v == "" {
		return nil
	}
	pem := []byte(v)
	if !strings.Contains(v, "-----BEGIN") {
		var err error
		if pem, err = os.ReadFile(v); err != nil {
			return fmt.Errorf("cannot be read: %w", errors.Unwrap(err))
		}
	}
	if c.Pool = x509.NewCertPool(); !c.Pool.AppendCertsFromPEM(pem) {
		return errors.New("contains no PEM certificate")
	}
	return nil
}

// Where is the location of a credential: a file or a Secret.
type Where struct{ File, Namespace, Name string }

// Decode implements envconfig.Decoder.
func (w *Where) Decode(v string) error {
	if path, ok := strings.CutPrefix(v, "file:"); ok && path != "" {
		w.File = path
		return nil
	}
	name, ok := strings.CutPrefix(v, "secret:")
	if w.Namespace, w.Name, _ = strings.Cut(name, "/"); !ok || w.Namespace == "" || w.Name == "" {
		return errors.New("want file: and a path, or secret: and NAMESPACE/NAME")
	}
	return nil
}

// Validate implements config.Validator. It also sets defaults from the environment of a pod.
func (c *Config) Validate() error {
	if !strings.HasPrefix(c.Gateway, "https://") || strings.Count(c.Gateway, "/") > 2 {
		return &config.Error{
			Variable: "CLUSTERPASS_GATEWAY", Problem: "want https:// and a host, without a path",
			Example: "https://gateway.example.com",
		}
	}
	if err := route.ValidClusterName(c.Cluster); err != nil {
		return &config.Error{Variable: "CLUSTERPASS_CLUSTER", Problem: err.Error(), Example: "prod"}
	}
	if c.APIServer == "" {
		host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
		if host == "" || port == "" {
			return &config.Error{
				Variable: "CLUSTERPASS_API_SERVER", Problem: "is not set, and this is no pod", Example: "10.0.0.1:6443",
			}
		}
		c.APIServer = net.JoinHostPort(host, port)
	}
	for _, a := range []struct{ variable, value string }{
		{"CLUSTERPASS_API_SERVER", c.APIServer}, {"CLUSTERPASS_ADMIN_LISTEN", c.AdminListen},
	} {
		if err := config.Address(a.variable, a.value); err != nil {
			return err
		}
	}
	for _, service := range c.Services {
		if err := config.Address("CLUSTERPASS_SERVICES", service); err != nil {
			return err
		}
	}
	return nil
}
