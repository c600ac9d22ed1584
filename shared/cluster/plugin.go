package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Plugins are the credential plugins of the local program, by cluster. Do not modify a map that Members uses.
type Plugins map[string]Plugin

// Plugin is the credential plugin of one cluster.
type Plugin struct {
	kubeconfig.Plugin
	// Kubeconfig is the cluster's secret. It has no credential.
	Kubeconfig secrets.Value
}

// find returns the plugin of a cluster with that secret, or nil. The secret must be the one that was registered with
// the plugin: it names the server, and no other server may get the credential.
func (p Plugins) find(c *v1alpha1.Cluster, secret secrets.Value) kubeconfig.Plugin {
	if plugin, ok := p[c.Name]; ok && c.Mode() == v1alpha1.Direct && plugin.Kubeconfig.Equal(secret) {
		return plugin.Plugin
	}
	return nil
}

// pluginToken runs no plugin for a probe. A plugin may open a browser or wait for input, and might fail each time.
func (m *Member) pluginToken(ctx context.Context) (string, error) {
	plugin := m.Credential.Plugin
	current := func() (kubeconfig.PluginCredential, error) { return plugin.Credential(ctx) }
	if isProbe(ctx) {
		current = plugin.Latest
	}
	credential, err := current()
	if ctxErr := context.Cause(ctx); err != nil && errors.Is(ctxErr, context.Canceled) {
		return "", ctxErr
	}
	switch name := m.Cluster.Name; {
	case errors.Is(err, context.DeadlineExceeded):
		return "", &status.Error{Reason: status.Timeout, Cluster: name, Err: err, Message: fmt.Sprintf("cluster %q: its "+
			"credential plugin still runs; it may wait for you in a browser or at the terminal of the gateway; try again", name)}
	case err != nil:
		return "", misconfigured(name, "its credential plugin failed: "+err.Error(), err)
	}
	return credential.Token, nil
}

// pool is a transport with a connection pool.
type pool interface {
	http.RoundTripper
	CloseIdleConnections()
}

// pluginPool is the pool of a member whose credential is from a plugin. It has a transport for each client certificate:
// connections and TLS sessions keep the certificate that they began with. Requests in flight are not interrupted.
type pluginPool struct {
	plugin   kubeconfig.Plugin
	template *http.Transport // without a certificate; never used itself

	mu          sync.Mutex
	certificate *tls.Certificate
	current     *http.Transport
}

func newPluginPool(plugin kubeconfig.Plugin, template *http.Transport) *pluginPool {
	return &pluginPool{plugin: plugin, template: template, current: template.Clone()}
}

// RoundTrip implements http.RoundTripper.
func (p *pluginPool) RoundTrip(r *http.Request) (*http.Response, error) {
	return p.transport().RoundTrip(r)
}

func (p *pluginPool) transport() *http.Transport {
	latest, _ := p.plugin.Latest() // Authorize has returned its error
	p.mu.Lock()
	defer p.mu.Unlock()
	if latest.Certificate == p.certificate {
		return p.current
	}
	p.current.CloseIdleConnections()
	p.certificate, p.current = latest.Certificate, p.template.Clone()
	p.current.TLSClientConfig.ClientSessionCache = newSessionCache()
	if p.certificate != nil {
		p.current.TLSClientConfig.Certificates = []tls.Certificate{*p.certificate}
	}
	return p.current
}

// CloseIdleConnections closes the idle connections with the current certificate. Others close after idleTimeout.
func (p *pluginPool) CloseIdleConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current.CloseIdleConnections()
}

func newSessionCache() tls.ClientSessionCache { return tls.NewLRUClientSessionCache(16) }
