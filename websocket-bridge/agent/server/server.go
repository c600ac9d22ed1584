// Package server runs the agent of a private cluster.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/http/httpproxy"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/version"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/credential"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/links"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/proxy"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/target"
)

// Run connects the agent until ctx ends, and then drains.
func Run(ctx context.Context, cfg *Config) error {
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: cfg.LogLevel})).With("cluster", cfg.Cluster)
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	store, err := cfg.store()
	if err != nil {
		return err
	}
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cfg.GatewayCA.Pool}
	way, err := proxy.New(httpproxy.FromEnvironment())
	if err != nil {
		return err
	}
	cred := &credential.Credential{
		Store: store, Cluster: cfg.Cluster, URL: cfg.Gateway + route.AgentPath(cfg.Cluster) + route.AgentCredential, Log: log,
		Client: &http.Client{
			Transport: &http.Transport{
				DialContext: way.DialContext, TLSClientConfig: tlsConfig.Clone(), DisableKeepAlives: true,
			},
			// The credential must not follow a redirect.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if err := cred.Load(ctx); err != nil {
		return err
	}
	keeper := links.New(links.Config{
		Gateway: cfg.Gateway, Cluster: cfg.Cluster, TLS: tlsConfig, Dial: way.DialContext, Credential: cred.Current,
		Drain: cfg.Drain, Log: log, Metrics: metrics,
		Target: &target.APIServer{Cluster: cfg.Cluster, Address: cfg.APIServer, Services: cfg.Services},
	})
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.AdminListen)
	if err != nil {
		return fmt.Errorf("CLUSTERPASS_ADMIN_LISTEN: %w", err)
	}
	admin := &http.Server{Handler: handler(ctx, keeper, metrics), ReadHeaderTimeout: 10 * time.Second}
	log.Info("the agent runs", "admin", ln.Addr().String(), "apiServer", cfg.APIServer)
	adminEnded := make(chan error, 1)
	go func() { adminEnded <- admin.Serve(ln) }()

	var wg sync.WaitGroup
	wg.Go(func() { cred.Run(ctx) })
	keeper.Run(ctx)
	wg.Wait()
	_ = admin.Close()
	if err := <-adminEnded; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (c *Config) store() (credential.Store, error) {
	if c.Credential.File != "" {
		return credential.File(c.Credential.File), nil
	}
	in, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("CLUSTERPASS_CREDENTIAL names a Secret: %w", err)
	}
	// HTTPS_PROXY is for connections out of the cluster, not for the cluster's own API server.
	in.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	in.UserAgent = version.UserAgent()
	client, err := typed.NewForConfig(in)
	if err != nil {
		return nil, err
	}
	return &credential.Secret{Client: client, Namespace: c.Credential.Namespace, Name: c.Credential.Name}, nil
}

// An agent is healthy while it runs, and ready while it is connected.
func handler(ctx context.Context, k *links.Keeper, metrics *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		n := k.Links()
		if n == 0 || ctx.Err() != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = fmt.Fprintf(w, "connected to %d replicas of the bridge\n", n)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	return mux
}
