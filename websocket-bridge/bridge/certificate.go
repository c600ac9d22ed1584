package bridge

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/pki"
)

// Certificate configures the certificate of a bridge to which clients connect directly, or through a load balancer that
// passes TCP. Such a bridge reads client certificates from its own TLS connections.
type Certificate struct {
	TLSCert string   `envconfig:"CLUSTERPASS_TLS_CERT" desc:"PEM file with the certificate for TLS at CLUSTERPASS_LISTEN, which is read again when it changes." example:"/etc/clusterpass/tls/tls.crt"`
	TLSKey  string   `envconfig:"CLUSTERPASS_TLS_KEY" desc:"PEM file with the key of CLUSTERPASS_TLS_CERT." example:"/etc/clusterpass/tls/tls.key"`
	Hosts   []string `envconfig:"CLUSTERPASS_HOSTS" desc:"Host names of a certificate that the bridge makes for TLS at CLUSTERPASS_LISTEN: a comma-separated list. All bridges share its CA in the secret store." example:"clusterpass.example.com"`
}

func (c *Config) validateCertificate() error {
	files, hosts := c.TLSCert != "" || c.TLSKey != "", len(c.Hosts) > 0
	switch {
	case files && (c.TLSCert == "" || c.TLSKey == ""):
		return &config.Error{
			Variable: "CLUSTERPASS_TLS_CERT", Problem: "set it together with CLUSTERPASS_TLS_KEY",
			Example: "/etc/clusterpass/tls/tls.crt",
		}
	case files && hosts, files && c.SelfSigned, hosts && c.SelfSigned:
		return &config.Error{
			Variable: "CLUSTERPASS_TLS_CERT",
			Problem:  "set only one of CLUSTERPASS_TLS_CERT, CLUSTERPASS_HOSTS and CLUSTERPASS_SELF_SIGNED",
		}
	case !files && !hosts:
		return nil
	case c.Source == "": // the bridge's default would let clients that connect directly choose their address
		return &config.Error{
			Variable: "CLUSTERPASS_SOURCE_ADDRESS",
			Problem: "it has no default with CLUSTERPASS_TLS_CERT or CLUSTERPASS_HOSTS; set peer if clients connect " +
				"directly, or forwarded if only a load balancer connects",
			Example: string(limits.PeerSource),
		}
	case c.MTLSHeader != "" && c.Source != limits.ForwardedSource:
		return &config.Error{
			Variable: "CLUSTERPASS_MTLS_HEADER",
			Problem: "with CLUSTERPASS_TLS_CERT or CLUSTERPASS_HOSTS, clients can connect directly and write this header; " +
				"remove CLUSTERPASS_MTLS_HEADER, or set CLUSTERPASS_SOURCE_ADDRESS=forwarded if only a load balancer connects",
		}
	}
	return nil
}

// getCertificate is for tls.Config.
type getCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// openCertificate returns nil if the bridge serves no TLS. The CA of a certificate that the bridge makes becomes
// CLUSTERPASS_SERVER_CA, unless that is set. Call stop when done.
func (c *Config) openCertificate(ctx context.Context, p *assembly.Parts) (get getCertificate, stop func(), err error) {
	stop = func() {}
	switch {
	case c.SelfSigned:
		cert, err := pki.SelfSigned("clusterpass-bridge")
		return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert, nil }, stop, err
	case len(c.Hosts) > 0:
		ca, err := passes.EnsureServerCA(ctx, p.Stores.Secrets)
		if err != nil {
			return nil, nil, fmt.Errorf("CLUSTERPASS_HOSTS: no CA for the bridge's certificate: %w", err)
		}
		if len(c.ServerCA.PEM()) == 0 {
			c.ServerCA = assembly.CertificatesOf(ca.Cert)
		}
		return ca.Serve(c.Hosts), stop, nil
	case c.TLSCert != "":
		return readCertificate(ctx, c.TLSCert, c.TLSKey)
	}
	return nil, stop, nil
}

// readCertificate reads the files again when they change. A key that does not belong to its certificate changes
// nothing.
func readCertificate(ctx context.Context, cert, key string) (get getCertificate, stop func(), err error) {
	files, err := dynamiccertificates.NewDynamicServingContentFromFiles("gateway", cert, key)
	if err != nil {
		return nil, nil, fmt.Errorf("CLUSTERPASS_TLS_CERT: %w", err)
	}
	current := &parsedCertificate{files: files}
	current.Enqueue()
	files.AddListener(current)
	stop = background(context.WithoutCancel(ctx), func(ctx context.Context) { files.Run(ctx, 1) }) // until the drain ends
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil }, stop, nil
}

// parsedCertificate implements dynamiccertificates.Listener.
type parsedCertificate struct {
	atomic.Pointer[tls.Certificate]
	files *dynamiccertificates.DynamicCertKeyPairContent
}

// Enqueue parses the content that files has read. files has validated it, so parsing does not fail.
func (p *parsedCertificate) Enqueue() {
	if pair, err := tls.X509KeyPair(p.files.CurrentCertKeyContent()); err == nil {
		p.Store(&pair)
	}
}

// listen opens the listener for clients. Without a certificate it serves no TLS.
func (c *Config) listen(ctx context.Context, get getCertificate) (net.Listener, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("CLUSTERPASS_LISTEN: %w", err)
	}
	if get == nil {
		return ln, nil
	}
	// Upgrades require HTTP/1.1.
	serve := &tls.Config{GetCertificate: get, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if !c.SelfSigned {
		serve.ClientAuth = tls.RequestClientCert // the gateway verifies it, so that it can explain a refusal
	}
	return tls.NewListener(ln, serve), nil
}
