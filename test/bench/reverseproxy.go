package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// reverseProxyCommand runs this program as a bare proxy. The next arguments are the target and the protocol of its
// connections, h2 or http/1.1. The target is a kubeconfig, or a URL that needs no credential.
const reverseProxyCommand = "reverse-proxy"

// startReverseProxy runs a bare proxy to target in its own process. See reverseProxyCommand.
func startReverseProxy(ctx context.Context, target, protocol string) (*exec.Cmd, *rest.Config, error) {
	return startServer(ctx, reverseProxyCommand, target, protocol)
}

// startServer runs this program as a server in its own process. The server prints its address.
func startServer(ctx context.Context, args ...string) (*exec.Cmd, *rest.Config, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	host, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s ended: %w", args[0], err), cmd.Wait())
	}
	return cmd, &rest.Config{Host: strings.TrimSpace(host), TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, nil
}

// serveReverseProxy runs a bare proxy until ctx ends. It prints its address.
func serveReverseProxy(ctx context.Context, target, protocol string) error {
	to := &rest.Config{Host: target, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	if !strings.HasPrefix(target, "https://") {
		var err error
		if to, err = clientcmd.BuildConfigFromFlags("", target); err != nil {
			return err
		}
	}
	cfg, _, err := reverseProxy(to, protocol)
	if err != nil {
		return err
	}
	name := reverseProxyCommand + "-" + strings.ReplaceAll(protocol, "/", "-")
	return runWithProfiles(name, func() error { return printAndWait(ctx, cfg.Host) })
}

// printAndWait prints a server's address and waits until ctx ends. Streams end with the process.
func printAndWait(ctx context.Context, host string) error {
	_, err := fmt.Fprintln(os.Stdout, host)
	if err == nil {
		<-ctx.Done()
	}
	return err
}

// reverseProxy starts a bare httputil.ReverseProxy before a cluster, the minimum for any gateway. protocol is that of
// the connections to the cluster. Upgrades need http/1.1.
func reverseProxy(to *rest.Config, protocol string) (*rest.Config, func(), error) {
	tlsConfig, err := rest.TLSConfigFor(to)
	if err != nil {
		return nil, nil, err
	}
	tlsConfig.NextProtos = []string{protocol}
	transport, err := rest.HTTPWrappersForConfig(to, &http.Transport{
		TLSClientConfig: tlsConfig, ForceAttemptHTTP2: protocol == "h2", MaxIdleConnsPerHost: 1000,
	})
	if err != nil {
		return nil, nil, err
	}
	target, err := url.Parse(to.Host)
	if err != nil {
		return nil, nil, err
	}
	srv := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
	})
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	srv.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	srv.StartTLS()
	return &rest.Config{Host: srv.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, srv.Close, nil
}
