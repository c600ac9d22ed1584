package cluster

import (
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

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
	// pingInterval is the time after which a silent HTTP/2 connection gets a ping.
	pingInterval = 30 * time.Second
	// The receive buffers bound the bytes of an HTTP/2 response that the gateway has not read. A list alone needs twice
	// what 20 MB/s need at a round trip of 50 ms, since the sender waits for its acknowledgment.
	listBuffer   = 2 << 20
	streamBuffer = 256 << 10
	mergedBuffer = 32 << 10
	// largeFrame is the size of the frames in which a member sends an ordinary response. Frames of 16 KiB, the default,
	// cost a large list a third more CPU time. A connection keeps a buffer of the largest frame that it received.
	largeFrame = 64 << 10
	// frozenTrust is the maximum idle time of a connection in a process that may have been frozen. NAT gateways and load
	// balancers silently drop connections that were idle for a few minutes, and some after one.
	frozenTrust = 50 * time.Second
)

// Many is the number of members beyond which the gateway uses small buffers for requests to all of them.
const Many = 32

// Member is one version of a member cluster. It is safe for concurrent use, also after a newer version replaced it.
// Versions with the same spec and secret share connections and a circuit breaker.
type Member struct {
	Cluster *v1alpha1.Cluster // read-only
	Server  *url.URL          // read-only
	// Credential authenticates the gateway, except for client certificates, which are in the transports.
	Credential kubeconfig.Credential
	// REST, Streams and Merged use HTTP/2 if the member does, and Upgrade HTTP/1.1. Streams, for endless responses,
	// buffers less. Merged, for responses of many members, buffers least. Single, for a response that is read alone, is
	// REST or also sends reads over idle HTTP/1.1 connections. It is REST for private clusters, clusters
	// behind a proxy and servers without TLS. A canceled read closes such a connection. None decompresses, follows
	// redirects or reads the environment. They share a circuit breaker.
	REST, Single, Streams, Merged, Upgrade http.RoundTripper

	tokens        Tokens
	record        record // of Cluster; zero outside of a cache
	secretVersion string
	breaker       *limits.Breaker
	noTrials      bool // Config.NoTrials
	dialer        *dialer
	pools         []pool
}

// Buffer is how much of a fleet's response the gateway receives from one member before it reads it.
type Buffer int

// The buffers. With many members, their sum counts.
const (
	LargeBuffer  Buffer = iota // 2 MiB
	MediumBuffer               // 256 KiB
	SmallBuffer                // 32 KiB
)

// BufferOf returns the buffer for one of the responses of n members.
func BufferOf(n int) Buffer {
	if n > Many {
		return SmallBuffer
	}
	return LargeBuffer
}

// ForFleet returns the transport with a buffer. That with MediumBuffer is Streams.
func (m *Member) ForFleet(b Buffer) http.RoundTripper {
	switch b {
	case SmallBuffer:
		return m.Merged
	case MediumBuffer:
		return m.Streams
	}
	return m.REST
}

// NewMember returns a Member outside of any cache. The caller closes it. If tokens is nil, it uses its own eks.Source.
func NewMember(c *v1alpha1.Cluster, kc *kubeconfig.Config, policy DialPolicy, tokens Tokens) *Member {
	return newMember(c, kc, policy, tokens, nil)
}

// newMember returns a Member whose reads open at most as many HTTP/1.1 connections as slots are free. nil means none.
func newMember(c *v1alpha1.Cluster, kc *kubeconfig.Config, policy DialPolicy, tokens Tokens,
	slots *semaphore.Weighted) *Member {
	if tokens == nil {
		tokens = eks.NewSource(eks.Config{})
	}
	d, rest := newTransport(c, kc, policy)
	streams := rest.Clone()
	streams.HTTP2.MaxReceiveBufferPerStream, streams.HTTP2.MaxReadFrameSize = streamBuffer, 0
	merged := rest.Clone()
	merged.HTTP2.MaxReceiveBufferPerStream, merged.HTTP2.MaxReadFrameSize = mergedBuffer, 0
	upgrade := withHTTP1(rest)
	connectors := [3]*connector{newConnector(rest), newConnector(streams), newConnector(merged)} // upgrades share none
	pools := []pool{rest, streams, merged, upgrade}
	if plugin := kc.Credential.Plugin; plugin != nil {
		for i, t := range []*http.Transport{rest, streams, merged, upgrade} {
			pools[i] = newPluginPool(plugin, t)
		}
	}
	for i, c := range connectors {
		c.next = pools[i]
	}
	m := &Member{
		Cluster: c, Server: kc.Server, Credential: kc.Credential, tokens: tokens, breaker: &limits.Breaker{}, dialer: d,
	}
	if isSilent(c) {
		m.breaker.Suspect()
	}
	guard := m.newGuard(policy)
	m.REST, m.Streams, m.Merged = guard(connectors[0]), guard(connectors[1]), guard(connectors[2])
	m.Single, m.Upgrade = m.REST, guard(pools[3])
	if slots != nil && kc.Server.Scheme == "https" && kc.ProxyURL == nil && c.Spec.SyncMode != v1alpha1.Pull {
		reads := upgrade.Clone()
		reads.ReadBufferSize = 16 << 10
		// Thaw would count a connection in a handshake as stale, since it has unread bytes. Each read checks its own.
		reads.DialContext = newDialer(policy).dial
		single := newReadPool(connectors[0], reads, kc, slots)
		pools, m.Single = append(pools, single), guard(single)
	}
	m.pools = pools
	return m
}

// newTransport returns the transport of ordinary requests and its dialer.
func newTransport(c *v1alpha1.Cluster, kc *kubeconfig.Config, policy DialPolicy) (*dialer, *http.Transport) {
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
		// A silent HTTP/2 connection with requests is closed within 45 s.
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingInterval, PingTimeout: 15 * time.Second,
			MaxReceiveBufferPerStream: listBuffer, MaxReadFrameSize: largeFrame},
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
	return d, t
}

// withHTTP1 returns a copy of t for HTTP/1.1. Its buffers are small, because they live as long as a connection. An
// upgraded connection uses them only for its first response.
func withHTTP1(t *http.Transport) *http.Transport {
	t = t.Clone()
	t.ForceAttemptHTTP2 = false
	t.ReadBufferSize, t.WriteBufferSize = 4<<10, 4<<10
	t.TLSClientConfig.NextProtos = []string{"http/1.1"}
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	return t
}

// newGuard returns a function that guards a transport with the member's circuit breaker.
func (m *Member) newGuard(policy DialPolicy) func(next http.RoundTripper) http.RoundTripper {
	failure := &atomic.Pointer[status.Error]{}
	var stores *storeGuard
	if policy.Stores != nil {
		stores = &storeGuard{
			guard: policy.Stores, cluster: m.Cluster.Name, server: m.Server,
			isPassthrough: m.Cluster.Mode() == v1alpha1.Passthrough,
		}
	}
	return func(next http.RoundTripper) http.RoundTripper {
		return &guardedTransport{
			cluster: m.Cluster.Name, host: m.Server.Host, breaker: m.breaker, failure: failure, stores: stores, next: next,
		}
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

// Close closes idle connections. Requests in flight continue, and their connections close after idleTimeout, or with
// the response if they are those of a readPool.
func (m *Member) Close() {
	for _, p := range m.pools {
		p.CloseIdleConnections()
	}
}
