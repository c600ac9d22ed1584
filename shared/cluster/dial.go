package cluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/clusterpass/clusterpass/shared/hub"
	"github.com/clusterpass/clusterpass/shared/status"
)

// DialPolicy restricts the addresses of members. It checks every connection after name resolution.
type DialPolicy struct {
	// AllowLoopback permits 127.0.0.0/8 and ::1, for the local program.
	AllowLoopback bool
	// Refuse lists addresses that are always refused, such as that of the Lambda Runtime API.
	Refuse []netip.AddrPort
	// Tunnel connects to members of mode Pull. nil means that they cannot be reached.
	Tunnel Tunnel
	// Stores refuses requests to the gateway's stores, if they are in a cluster. Optional.
	Stores *hub.Guard
}

// Tunnel reaches private clusters through the bridge.
type Tunnel interface {
	// Prepare reads what Dial needs for any cluster into caches. It returns no error, because Dial reports the same one.
	Prepare(ctx context.Context)
	// Dial connects to a cluster's API server by dial. address is that of its kubeconfig, proxy is its spec.proxyURL.
	// Errors are *status.Error, or the context's.
	Dial(ctx context.Context, cluster, address string, proxy *url.URL,
		dial func(ctx context.Context, network, address string) (net.Conn, error)) (net.Conn, error)
}

// ForbiddenAddressError is the error of a DialPolicy for a refused address.
type ForbiddenAddressError struct{ Addr netip.AddrPort }

func (e *ForbiddenAddressError) Error() string {
	return fmt.Sprintf("address %s is not allowed for a member cluster", e.Addr)
}

// Metadata services outside of the link-local ranges, and all that is not unicast internet, e.g. IPv4 within IPv6.
var refusedRanges = prefixes(
	"fd00:ec2::/32",      // AWS
	"fd20:ce::254/128",   // Google Cloud
	"100.100.100.200/32", // Alibaba Cloud
	"168.63.129.16/32",   // Azure
	"192.0.0.192/32",     // Oracle Cloud
	"0.0.0.0/8", "240.0.0.0/4",
	"::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "2001::/32", "2002::/16", "fec0::/10",
)

func prefixes(all ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(all))
	for i, p := range all {
		out[i] = netip.MustParsePrefix(p)
	}
	return out
}

// nat64 addresses embed an IPv4 address in their last 32 bits. The checks apply to that address.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Check returns a *ForbiddenAddressError unless addr may be dialled.
func (p DialPolicy) Check(addr netip.AddrPort) error {
	ip := addr.Addr().Unmap().WithZone("")
	if nat64.Contains(ip) {
		b := ip.As16()
		ip = netip.AddrFrom4([4]byte(b[12:]))
	}
	refused := slices.Contains(p.Refuse, netip.AddrPortFrom(ip, addr.Port())) ||
		ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast() || ip.IsLoopback() && !p.AllowLoopback ||
		!ip.IsLoopback() && slices.ContainsFunc(refusedRanges, func(r netip.Prefix) bool { return r.Contains(ip) })
	if refused {
		return &ForbiddenAddressError{addr}
	}
	return nil
}

func (p DialPolicy) control(_, address string, _ syscall.RawConn) error {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	return p.Check(addr)
}

// dialer dials under a policy. It tracks the open connections, to find stale ones after the process was frozen.
type dialer struct {
	net net.Dialer

	mu   sync.Mutex
	open map[*conn]struct{}
}

func newDialer(p DialPolicy) *dialer {
	return &dialer{
		net:  net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Control: p.control},
		open: map[*conn]struct{}{},
	}
}

// The policy applies to the tunnel port only. Agents dial just their API server and the services that they list.
func (d *dialer) tunnelDial(t Tunnel, cluster string, proxy *url.URL) func(ctx context.Context, network,
	address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		if t == nil {
			return nil, status.New(status.Misconfigured, cluster,
				"cluster %q is private, which this part of the gateway cannot reach; it needs the gateway's URL, CLUSTERPASS_URL",
				cluster)
		}
		return t.Dial(ctx, cluster, address, proxy, d.dial)
	}
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.net.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	tracked := &conn{TCPConn: c.(*net.TCPConn), d: d} // http.Transport dials tcp only
	d.mu.Lock()
	d.open[tracked] = struct{}{}
	d.mu.Unlock()
	return tracked, nil
}

// isStale reports whether an open connection was closed by its peer, or has unread data, which announces its end.
func (d *dialer) isStale() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.open {
		if c.isStale() {
			return true
		}
	}
	return false
}

type conn struct {
	*net.TCPConn
	d *dialer
}

func (c *conn) Close() error {
	c.d.mu.Lock()
	delete(c.d.open, c)
	c.d.mu.Unlock()
	return c.TCPConn.Close()
}
