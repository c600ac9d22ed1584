package cluster

import (
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/eks"
	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Timeouts of connections to a member. The deadline of a whole request is set by its caller.
const (
	tlsTimeout = 10 * time.Second
	// headerTimeout exceeds the 60 s that kube-apiserver allows a request that is not long-running.
	headerTimeout = 75 * time.Second
	idleTimeout   = 90 * time.Second
	// streamBuffer bounds the bytes of a stream for a slow client, 4 MB by default. Lists keep that for throughput.
	streamBuffer = 256 << 10
	// mergedBuffer is that of a response that is read together with hundreds of others.
	mergedBuffer = 32 << 10
	// largeFrame is the size of the frames in which a member sends an ordinary response. Frames of 16 KiB, the default,
	// cost a large list a third more CPU time. A connection keeps a buffer of the largest frame that it received.
	largeFrame = 64 << 10
	// frozenTrust is the maximum idle time of a connection in a process that may have been frozen. NAT gateways and load
	// balancers silently drop connections that were idle for a few minutes, and some after one.
	frozenTrust = 50 * time.Second
)

// Many is the number of members beyond which the gateway uses Member.Merged for requests to all of them.
const Many = 32

// Member is one version of a member cluster. It is safe for concurrent use, also after a newer version replaced it.
// Versions with the same spec and secret share connections and a circuit breaker.
type Member struct {
	Cluster *v1alpha1.Cluster // read-only
	Server  *url.URL          // read-only
	// Credential authenticates the gateway, except for client certificates, which are in the transports.
	Credential kubeconfig.Credential
	// REST, Streams and Merged use HTTP/2 if the member does, and Upgrade HTTP/1.1. Streams, for endless responses,
	// buffers less. Merged, for one of many responses that are read together, buffers least. None decompresses, follows
	// redirects or reads the environment. They share a circuit breaker.
	REST, Streams, Merged, Upgrade http.RoundTripper

	tokens        Tokens
	record        record // of Cluster; zero outside of a cache
	secretVersion string
	breaker       *limits.Breaker
	noTrials      bool // Config.NoTrials
	dialer        *dialer
	pools         [4]pool
}

// NewMember returns a Member outside of any cache. The caller closes it. If tokens is nil, it uses its own eks.Source.
func NewMember(c *v1alpha1.Cluster, kc *kubeconfig.Config, policy DialPolicy, tokens Tokens) *Member {
	if tokens == nil {
		tokens = eks.NewSource(eks.Config{})
	}
	d := newDialer(policy)
	t := &http.Transport{
		DialContext:            d.dial,
		TLSClientConfig:        kc.TLS,
		TLSHandshakeTimeout:    tlsTimeout,
		ResponseHeaderTimeout:  headerTimeout,
		IdleConnTimeout:        idleTimeout,
		MaxIdleConnsPerHost:    64,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 1 << 20,
		ReadBufferSize:         64 << 10,
		WriteBufferSize:        32 << 10,
		ForceAttemptHTTP2:      true,
		// A connection that is silent during requests is closed within 45 s. The buffer allows 20 MB/s at 50 ms latency.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second,
			MaxReceiveBufferPerStream: 1 << 20, MaxReadFrameSize: largeFrame},
	}
	if c.Mode() == v1alpha1.Passthrough {
		t.TLSClientConfig.Certificates = nil // never send the gateway's certificate with the caller's token
	}
	t.TLSClientConfig.ClientSessionCache = newSessionCache()
	switch {
	case c.Spec.SyncMode == v1alpha1.Pull:
		// The tunnel port authenticates itself as the gateway's own. It may be on this machine.
		policy.AllowLoopback = true
		d = newDialer(policy)
		t.DialContext = d.tunnelDial(policy.Tunnel, c.Name, kc.ProxyURL)
	case kc.ProxyURL != nil:
		t.Proxy = http.ProxyURL(kc.ProxyURL)
	}
	streams := t.Clone()
	streams.HTTP2.MaxReceiveBufferPerStream, streams.HTTP2.MaxReadFrameSize = streamBuffer, 0
	merged := t.Clone()
	merged.HTTP2.MaxReceiveBufferPerStream, merged.HTTP2.MaxReadFrameSize = mergedBuffer, 0
	up := t.Clone()
	up.ForceAttemptHTTP2 = false
	// these buffers live as long as the connection, and serve only its first response
	up.ReadBufferSize, up.WriteBufferSize = 4<<10, 4<<10
	up.TLSClientConfig.NextProtos = []string{"http/1.1"}
	up.Protocols = new(http.Protocols)
	up.Protocols.SetHTTP1(true)
	breaker := &limits.Breaker{}
	if isSilent(c) {
		breaker.Suspect()
	}
	connectors := [3]*connector{newConnector(t), newConnector(streams), newConnector(merged)} // an upgrade shares none
	pools := [4]pool{t, streams, merged, up}
	if plugin := kc.Credential.Plugin; plugin != nil {
		for i, t := range []*http.Transport{t, streams, merged, up} {
			pools[i] = newPluginPool(plugin, t)
		}
	}
	for i, c := range connectors {
		c.next = pools[i]
	}
	failure := &atomic.Pointer[status.Error]{}
	var stores *storeGuard
	if policy.Stores != nil {
		stores = &storeGuard{
			guard: policy.Stores, cluster: c.Name, server: kc.Server, isPassthrough: c.Mode() == v1alpha1.Passthrough,
		}
	}
	guard := func(next http.RoundTripper) http.RoundTripper {
		return &guardedTransport{
			cluster: c.Name, host: kc.Server.Host, breaker: breaker, failure: failure, stores: stores, next: next,
		}
	}
	return &Member{
		Cluster: c, Server: kc.Server, Credential: kc.Credential, REST: guard(connectors[0]),
		Streams: guard(connectors[1]), Merged: guard(connectors[2]), Upgrade: guard(pools[3]),
		tokens: tokens, breaker: breaker, dialer: d, pools: pools,
	}
}

// IsSameCluster reports whether both are versions of one registration. A cluster that was removed and added again under
// its name is another one, since it may be another member.
func (m *Member) IsSameCluster(other *Member) bool { return m.record.created == other.record.created }

func (m *Member) hasVersions(revision uint64, secretVersion string) bool {
	return m.record.revision == revision && m.secretVersion == secretVersion
}

// withObject returns a Member with another version of the object, with an equal spec. Both share connections and the
// circuit breaker. A newer condition Ready opens or closes the breaker. Concurrent requests may pass an older object.
func (m *Member) withObject(c record) *Member {
	switch silent := isSilent(c.Cluster); {
	case silent == isSilent(m.Cluster) || c.revision < m.record.revision:
	case silent:
		m.suspect(c.Cluster)
	default:
		m.breaker.Probe(limits.Success)
	}
	out := *m
	out.Cluster, out.record = c.Cluster, c
	return &out
}

// suspect opens the circuit breaker, because the last probe of the member failed. A member that refuses connections, or
// answers with an error, delays no trial.
func (m *Member) suspect(c *v1alpha1.Cluster) {
	if m.noTrials && hasTimedOut(c) {
		m.breaker.Suspend()
		return
	}
	m.breaker.Suspect()
}

// Close closes idle connections. Requests in flight continue, and their connections close after idleTimeout.
func (m *Member) Close() {
	for _, p := range m.pools {
		p.CloseIdleConnections()
	}
}
