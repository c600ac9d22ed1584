package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

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
	return measureCalls(ctx, out, kubeconfig, peers, dir)
}

// peer is another gateway to the cluster that is measured.
type peer struct {
	name string
	// address is the cluster's URL at the gateway, or a kubeconfig.
	address string
}

func parsePeer(s string) (peer, error) {
	name, address, ok := strings.Cut(s, "=")
	if !ok || name == "" || address == "" {
		return peer{}, fmt.Errorf("--peer %q: want NAME=URL or NAME=KUBECONFIG", s)
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
		cfg.ServerName = "" // that of the cluster
	}
	e, err := newEndpoint(p.name, cfg)
	e.url = strings.TrimSuffix(e.url, "/")
	return e, err
}
