// Package kubernetes opens the stores in a namespace of a hub cluster. Functions do not link it, because client-go's
// configuration has large dependencies.
//
//   - The credential is that of the operator: the service account of the gateway's own pod, or a kubeconfig. It is
//     never read from a store, so a credential plugin in it may run.
//   - [Install] needs the rights of an administrator of the hub. Open and the stores need those of role.yaml.
package kubernetes

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"

	"github.com/clusterpass/clusterpass/shared/hub"
	objectskubernetes "github.com/clusterpass/clusterpass/shared/objects/kubernetes"
	secretskubernetes "github.com/clusterpass/clusterpass/shared/secrets/kubernetes"
	"github.com/clusterpass/clusterpass/shared/stores"
)

// Role is the manifest of the gateway's rights in the namespace of the stores.
//
//go:embed role.yaml
var Role []byte

// Opener opens kubernetes:NAMESPACE.
func Opener() stores.Opener { return stores.Opener{Kind: stores.Kubernetes, Open: open} }

var namespaceRE = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func open(_ context.Context, a stores.Address) (*stores.Stores, error) {
	if !namespaceRE.MatchString(a.Where) {
		return nil, fmt.Errorf("store %q: want the name of a namespace, such as kubernetes:clusterpass", a)
	}
	cfg, err := load(a)
	if err != nil {
		return nil, fmt.Errorf("store %q: read the configuration of the hub: %w", a, err)
	}
	client, err := newClient(cfg, a)
	if err != nil {
		return nil, fmt.Errorf("store %q: %w", a, err)
	}
	return &stores.Stores{
		Secrets: secretskubernetes.New(client), Hub: client,
		Objects: objectskubernetes.New(objectskubernetes.Config{Client: client}),
	}, nil
}

// load returns the configuration of the kubeconfig that the address names, of the gateway's own pod, or of KUBECONFIG.
func load(a stores.Address) (*rest.Config, error) {
	if a.Kubeconfig == "" && a.Context == "" {
		cfg, err := rest.InClusterConfig()
		if !errors.Is(err, rest.ErrNotInCluster) {
			return cfg, err
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.Kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: a.Context}).ClientConfig()
}

const (
	dialTimeout = 3 * time.Second
	tlsTimeout  = 4 * time.Second
	// A silent connection is closed within 8 s, so that requests do not wait for an API server that is gone.
	pingAfter   = 4 * time.Second
	pingTimeout = 4 * time.Second
	idleTimeout = 90 * time.Second
)

// NewClient returns a client of the API server in cfg.
func NewClient(cfg *rest.Config, namespace string) (*hub.Client, error) {
	return newClient(cfg, stores.Address{Kind: stores.Kubernetes, Where: namespace})
}

func newClient(cfg *rest.Config, a stores.Address) (*hub.Client, error) {
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, err
	}
	if server.Scheme != "https" {
		return nil, fmt.Errorf("the API server %s would show credentials to the network; want https", server.Host)
	}
	tc, err := cfg.TransportConfig()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := transport.TLSConfigFor(tc)
	if err != nil {
		return nil, err
	}
	proxy := cfg.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	base := &http.Transport{
		Proxy:       proxy,
		DialContext: (&net.Dialer{Timeout: dialTimeout, KeepAlive: idleTimeout}).DialContext,

		TLSClientConfig: tlsConfig, TLSHandshakeTimeout: tlsTimeout, IdleConnTimeout: idleTimeout,
		ForceAttemptHTTP2: true,
		HTTP2:             &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	authenticated, err := transport.HTTPWrappersForConfig(tc, base)
	if err != nil {
		return nil, err
	}
	u := url.URL{Scheme: server.Scheme, Host: server.Host, Path: server.Path}
	return hub.New(hub.Config{Transport: authenticated, Server: &u, Namespace: a.Where, Store: a.String()}), nil
}
