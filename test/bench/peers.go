package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// peersSection is the section of a page for calls to a cluster of the user, which differs from that of the part calls.
const peersSection = "peers"

// callsOfPeers is restCalls for the cluster of a kubeconfig, which other gateways know, too.
func callsOfPeers(ctx context.Context, out *report, kubeconfig string, peers []peer) (err error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	if out.kubernetes, err = kubernetesOf(cfg); err != nil {
		return err
	}
	if err := fill(ctx, cfg); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, empty(context.WithoutCancel(ctx), cfg)) }()
	dir, err := os.MkdirTemp("", "clusterpass-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return out.measure(peersSection, func() error { return measureCalls(ctx, out, kubeconfig, peers, dir) })
}

// peer is another gateway to the cluster that is measured.
type peer struct {
	name string
	// address is the cluster's URL at the gateway, or a kubeconfig.
	address string
}

func parsePeer(s string) (peer, error) {
	name, address, ok := strings.Cut(s, "=")
	u, err := url.Parse(address)
	isFile := err == nil && u.Scheme == "" && u.Host == ""
	isURL := err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil && u.RawQuery == ""
	if name == ofGateway {
		return peer{}, fmt.Errorf("--peer %q: the name is that of the measured gateway; choose another", s)
	}
	if !ok || name == "" || address == "" || !isFile && !isURL {
		return peer{}, fmt.Errorf("--peer %q: want NAME=https://HOST/PATH, NAME=http://HOST/PATH or NAME=KUBECONFIG", s)
	}
	return peer{name, address}, nil
}

// endpoint returns the cluster at the peer. With an HTTPS URL, it uses the CA and the credential of the cluster itself.
// With an HTTP URL, it uses no credential.
func (p peer) endpoint(direct *rest.Config) (endpoint, error) {
	u, err := url.Parse(p.address)
	if err != nil {
		return endpoint{}, err
	}
	var cfg *rest.Config
	switch {
	case u.Host == "":
		if cfg, err = clientcmd.BuildConfigFromFlags("", p.address); err != nil {
			return endpoint{}, err
		}
	case u.Scheme == "http":
		cfg = &rest.Config{Host: p.address}
	default:
		cfg = rest.CopyConfig(direct)
		cfg.Host = p.address
		cfg.ServerName = "" // the peer's certificate has another name than the cluster's
	}
	e, err := newEndpoint(p.name, cfg)
	if err != nil {
		return endpoint{}, err
	}
	e.url = strings.TrimSuffix(e.url, "/")
	// The credential would follow a redirect to any server.
	e.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return e, nil
}
