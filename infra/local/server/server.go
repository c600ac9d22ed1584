package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"github.com/clusterpass/clusterpass/infra/local/frontdoor"
	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/assembly/apiconfig"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/quota"
	"github.com/clusterpass/clusterpass/shared/recording/location"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/shared/stores/kubernetes"
	"github.com/clusterpass/clusterpass/websocket-bridge/bridge"
)

// Output is where the program writes.
type Output struct {
	Progress io.Writer // progress and the next command to type, for people
	Log      io.Writer // the log of the bridge, and the output of functions; nil means standard error
}

// Run serves until ctx ends. It calls ready once it accepts requests.
func Run(ctx context.Context, cfg *Config, out Output, ready func()) error {
	if out.Log == nil {
		out.Log = os.Stderr
	}
	ca, err := loadCAs(cfg.Data)
	if err != nil {
		return err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("CLUSTERPASS_LISTEN: %w; choose another address with --listen, such as --listen=127.0.0.1:9443",
			err)
	}
	defer func() { _ = ln.Close() }()
	hosts := cfg.serverNames()
	_, port, _ := net.SplitHostPort(ln.Addr().String()) // cannot fail
	url := "https://" + net.JoinHostPort(hosts[0], port)
	parts, err := assembly.Open(ctx, cfg.env(ca, url), out.Log, kubernetes.Opener())
	if err != nil {
		return &config.Error{Variable: "CLUSTERPASS_STORE", Problem: err.Error(), Example: "dir:/var/lib/clusterpass"}
	}
	if cfg.ControlPlane == "" {
		if err := stores.CreateDefaultRegistry(ctx, parts.Stores.Objects); err != nil {
			return fmt.Errorf("create the ResourceRegistry %q: %w", stores.DefaultRegistry, err)
		}
	}
	gateway := ownAddress{ca: ca.server.PEM()}
	for _, host := range hosts {
		gateway.hosts = append(gateway.hosts, net.JoinHostPort(host, port))
	}
	clusters, err := registerContexts(ctx, cfg, parts, gateway, out.Progress)
	if err != nil {
		return err
	}
	parts.Plugins = clusters.plugins
	b := bridge.New(cfg.Limits)
	handler, closeHandler, err := open(ctx, cfg, parts, b, ca, out.Log)
	if err != nil {
		return err
	}
	defer closeHandler()

	cert, err := ca.server.Server(filepath.Join(cfg.Data, "pki"), "server", hosts)
	if err != nil {
		return err
	}
	if err := writeKubeconfig(cfg.Kubeconfig, url, ownerName(), ca, clusters); err != nil {
		return &config.Error{Variable: "CLUSTERPASS_KUBECONFIG", Problem: err.Error(), Example: "clusterpass.kubeconfig"}
	}
	printNextCommand(out.Progress, url, cfg.Kubeconfig, clusters)
	ready() // the listener queues connections until Serve

	srv := cfg.HTTPServer(handler)
	srv.ErrorLog = slog.NewLogLogger(parts.Log.Handler(), slog.LevelDebug) // mostly TLS handshakes
	serve := func() error { return srv.Serve(tls.NewListener(ln, frontdoor.TLS(cert))) }
	return b.Serve(ctx, srv, serve, bridge.Drain{Timeout: cfg.DrainTimeout})
}

// recordings returns the configuration of recordings, which are beside the stores by default.
func (c *Config) recordings() bridge.Recordings {
	r := c.Recordings
	if r.Location.Kind == "" {
		r.Location = location.In(c.Data)
	}
	return r
}

type authorities struct {
	server *pki.CA // signs the server's certificate
	client *pki.CA // signs the certificates of callers
}

func loadCAs(data string) (ca authorities, err error) {
	if ca.server, err = pki.LoadCA(filepath.Join(data, "pki"), "server-ca"); err != nil {
		return ca, &config.Error{Variable: "CLUSTERPASS_DATA", Problem: err.Error(), Example: "/var/lib/clusterpass"}
	}
	ca.client, err = pki.LoadCA(filepath.Join(data, "pki"), "client-ca")
	return ca, err
}

func (c *Config) env(ca authorities, url string) assembly.Env {
	return assembly.Env{
		Shared:        c.Shared,
		Store:         cmp.Or(c.Store, stores.Address{Kind: "dir", Where: c.Data}),
		ClientCA:      assembly.CertificatesOf(ca.client.Cert),
		URL:           config.URL(url),
		AllowLoopback: !c.RefuseLoopback,
	}
}

// serverNames returns the names in the server's certificate. Clients call it by the first.
func (c *Config) serverNames() []string {
	names := append(slices.Clone(c.Hosts), "localhost", "127.0.0.1", "::1")
	host, _, _ := net.SplitHostPort(c.Listen) // checked by Validate
	if host != "" && !net.ParseIP(host).IsUnspecified() {
		names = append([]string{host}, names...)
	}
	return names
}

// open returns the gateway's handler. Call closeAll when done.
func open(
	ctx context.Context, cfg *Config, parts *assembly.Parts, b *bridge.Bridge, ca authorities, log io.Writer,
) (_ http.Handler, closeAll func(), err error) {
	if err := passes.StoreCA(ctx, parts.Stores.Secrets, ca.client); err != nil {
		return nil, nil, err
	}
	api := apiconfig.Options{ServerCA: assembly.CertificatesOf(ca.server.Cert), PassLimits: cfg.PassLimits}
	h, err := b.NewHandler(ctx, parts, bridge.HandlerConfig{
		Fleet: cfg.Settings, API: api, Private: cfg.Private, Recordings: cfg.recordings(),
		SignIn: cfg.SignIn, TunnelListen: cfg.TunnelListen, Peer: identity.TLSPeer,
	})
	if err != nil {
		return nil, nil, err
	}
	fns := &functions{dir: cfg.FunctionsDir, env: cfg.functionEnvironment(parts.Env, api), log: log}
	closeAll = func() {
		if err := errors.Join(fns.close(context.WithoutCancel(ctx)), h.Close()); err != nil {
			parts.Log.Warn("the gateway did not close everything", "error", err.Error())
		}
	}
	if cfg.Functions != Process {
		return h, closeAll, nil
	}
	front := &frontdoor.Server{
		Functions: map[route.Backend]http.Handler{}, Bridge: h, PerCluster: quota.New(0, maxPerCluster), Source: cfg.Source,
	}
	caller := frontdoor.CallerKey(parts.Env.ClientCA.Pool(), cfg.Source)
	for _, backend := range []route.Backend{route.ToProxy, route.ToFleet, route.ToControl} {
		target, err := fns.open(backend)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		front.Functions[backend] = frontdoor.NewShares(maxPerCaller, queuePerCaller, queueTimeout).Limit(target, caller)
	}
	return front, closeAll, nil
}

func printNextCommand(out io.Writer, url, kubeconfig string, clusters registered) {
	_, _ = fmt.Fprintf(out, "\nThe gateway is at %s\n", url)
	cluster := clusters.current
	switch {
	case cluster == "" && clusters.explained:
		_, _ = io.WriteString(out, "It has no clusters yet.\n\n")
		return
	case cluster == "":
		_, _ = io.WriteString(out, "It has no clusters yet. To register the contexts of a kubeconfig, stop it, and start it "+
			"again after:\n\n  export KUBECONFIG=~/.kube/config\n\n")
		return
	}
	_, _ = fmt.Fprintf(out, "Your kubeconfig is %s, with a context for each cluster and fleet for all. Next:\n\n"+
		"  kubectl --kubeconfig %s --context fleet get pods -A\n"+
		"  kubectl --kubeconfig %s --context %s get nodes\n\nctrl-C ends the gateway.\n",
		kubeconfig, kubeconfig, kubeconfig, cluster)
}
