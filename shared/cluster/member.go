package cluster

import (
	"crypto/tls"
	"net/http"
	"net/url"
	"time"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/eks"
	"github.com/clusterpass/clusterpass/shared/limits"
)

// Timeouts towards a member. The time of a whole call is the caller's business.
const (
	tlsTimeout = 10 * time.Second
	// headerTimeout is over the 60 s that kube-apiserver gives a call that is not long-running.
	headerTimeout = 75 * time.Second
	idleTimeout   = 90 * time.Second
	// streamBuffer is how many bytes of a stream are held for a client that reads too slowly; net/http would hold 4 MB. Streams are
	// many and live for long; a list, which keeps the default, passes and needs the speed over long ways.
	streamBuffer = 256 << 10
	// frozenTrust is how long an idle connection is trusted in a process that may have been frozen: NAT gateways and
	// load balancers forget a silent connection without a word after some minutes, some after one.
	frozenTrust = 50 * time.Second
)

// Member is a live way to one version of a member cluster. It is safe for concurrent use and stays usable after it
// was replaced by a newer version.
type Member struct {
	Cluster *v1alpha1.Cluster // not to be changed
	Server  *url.URL          // not to be changed
	// Credential authenticates the gateway where spec.identity asks for it, see Authorize; client certificates are in
	// the transports already.
	Credential kubeconfig.Credential
	// REST and Streams speak HTTP/2 where the member does, Upgrade HTTP/1.1 only. Streams is for answers that do not end.
	// It buffers less of an answer that the client does not read. None decompresses, follows redirects or reads the
	// environment. They share a circuit breaker.
	REST, Streams, Upgrade http.RoundTripper

	tokens        Tokens
	revision      uint64 // of the Cluster object
	secretVersion string
	dialer        *dialer
	transports    [3]*http.Transport
}

// NewMember returns a Member outside of any cache; Close it when done. tokens nil means an eks.Source of its own.
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
		// A connection that has gone silent while calls wait on it is found within 45 s. A member may send so much ahead of a client that
		// does not read: 20 MB/s over 50 ms, and a list of many members holds that much of each.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second, MaxReceiveBufferPerStream: 1 << 20},
	}
	if c.Mode() == v1alpha1.Passthrough {
		t.TLSClientConfig.Certificates = nil // nothing of the gateway's goes with the caller's token
	}
	t.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(16)
	switch {
	case c.Spec.SyncMode == v1alpha1.Pull:
		// The tunnel port proves that it is the gateway's own, which may be on this machine.
		policy.AllowLoopback = true
		d = newDialer(policy)
		t.DialContext = d.through(policy.Tunnel, c.Name, kc.ProxyURL)
	case kc.ProxyURL != nil:
		t.Proxy = http.ProxyURL(kc.ProxyURL)
	}
	streams := t.Clone()
	streams.HTTP2.MaxReceiveBufferPerStream = streamBuffer
	up := t.Clone()
	up.ForceAttemptHTTP2 = false
	up.ReadBufferSize, up.WriteBufferSize = 4<<10, 4<<10 // held as long as the connection, and used for its first answer only
	up.TLSClientConfig.NextProtos = []string{"http/1.1"}
	up.Protocols = new(http.Protocols)
	up.Protocols.SetHTTP1(true)
	breaker := &limits.Breaker{}
	if isSilent(c) {
		breaker.Suspect()
	}
	guard := func(next http.RoundTripper) http.RoundTripper { return &guardedTransport{c.Name, breaker, next} }
	return &Member{
		Cluster: c, Server: kc.Server, Credential: kc.Credential, REST: guard(t), Streams: guard(streams), Upgrade: guard(up),
		tokens: tokens, dialer: d, transports: [3]*http.Transport{t, streams, up},
	}
}

// is reports whether m was made of these versions of its object and secret.
func (m *Member) is(revision uint64, secretVersion string) bool {
	return m.revision == revision && m.secretVersion == secretVersion
}

// Close closes what is idle; calls in flight go on, and their connections close when idle for idleTimeout.
func (m *Member) Close() {
	for _, t := range m.transports {
		t.CloseIdleConnections()
	}
}
