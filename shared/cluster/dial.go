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

	"github.com/clusterpass/clusterpass/shared/status"
)

// DialPolicy says which addresses a member may have. It is asked after name resolution, for every connection, so
// that no DNS answer gets around it.
type DialPolicy struct {
	// AllowLoopback permits 127.0.0.0/8 and ::1: for local mode only.
	AllowLoopback bool
	// Refuse lists addresses refused whatever else is allowed, such as the Lambda Runtime API's.
	Refuse []netip.AddrPort
	// Tunnel reaches members of mode Pull; nil where nothing does.
	Tunnel Tunnel
}

// Tunnel reaches private clusters through the bridge.
type Tunnel interface {
	// Prepare reads what Dial needs whatever the cluster, unless that was read before. It has no answer: Dial says what is wrong.
	Prepare(ctx context.Context)
	// Dial connects to the API server of a cluster, address in its kubeconfig, whose spec.proxyURL is proxy, over connections that dial
	// makes. Its errors are *status.Error, or the context's.
	Dial(ctx context.Context, cluster, address string, proxy *url.URL, dial func(ctx context.Context, network, address string) (net.Conn, error)) (net.Conn, error)
}

// ForbiddenAddressError is a refusal by a DialPolicy.
type ForbiddenAddressError struct{ Addr netip.AddrPort }

func (e *ForbiddenAddressError) Error() string {
	return fmt.Sprintf("address %s is one that a member cluster may not have", e.Addr)
}

// refusedRanges are metadata services outside the link-local ranges, which are refused anyhow, and what is no unicast address of
// today's internet, among it the forms of IPv6 that lead to an IPv4 address of the sender's choice.
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

// nat64 embeds an IPv4 address in its last 32 bits, which is then what counts.
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

// control is a net.Dialer.Control: it sees the address that is about to be dialled.
func (p DialPolicy) control(_, address string, _ syscall.RawConn) error {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	return p.Check(addr)
}

// dialer dials under a policy and remembers the open connections, so that stale ones can be found after
// the process was frozen.
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

// through gives an http.Transport.DialContext that reaches the cluster by the tunnel. What the address is good for, the tunnel knows.
func (d *dialer) through(t Tunnel, cluster string, proxy *url.URL) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		if t == nil {
			return nil, status.New(status.Misconfigured, cluster, "cluster %q is private, which this part of the gateway cannot reach; it needs the gateway's URL, CLUSTERPASS_URL", cluster)
		}
		return t.Dial(ctx, cluster, address, proxy, d.dial)
	}
}

// dial implements http.Transport.DialContext.
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

// stale reports whether the peer has closed any open connection, or sent something that nobody has read:
// on an idle connection that is a farewell.
func (d *dialer) stale() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.open {
		if c.stale() {
			return true
		}
	}
	return false
}

type conn struct {
	*net.TCPConn
	d *dialer
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.d.mu.Lock()
	delete(c.d.open, c)
	c.d.mu.Unlock()
	return c.TCPConn.Close()
}

// stale peeks at the socket without waiting: only "nothing there yet" is a live idle connection.
func (c *conn) stale() bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	idle := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		idle = err == syscall.EAGAIN
	})
	return err != nil || !idle
}
