// Package limits keeps one member cluster or one source of requests from using up what all of them share. Read
// [Breaker], [Source] and [SourceRate]. All tables are bounded.
package limits

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// ipv6Source is the prefix length of a source: one customer or host usually has a whole /64.
const ipv6Source = 64

// Source is one IPv4 address or the /64 of an IPv6 address. The zero value is an unknown source, which has no limits.
type Source struct{ prefix netip.Prefix }

// SourceOf returns the source of an address. It is unknown for the zero Addr.
func SourceOf(addr netip.Addr) Source {
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = ipv6Source
	}
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return Source{}
	}
	return Source{prefix}
}

// IsKnown reports whether the source is known.
func (s Source) IsKnown() bool { return s.prefix.IsValid() }

// String returns the prefix, such as 192.0.2.1/32, and "" for an unknown source.
func (s Source) String() string {
	if !s.IsKnown() {
		return ""
	}
	return s.prefix.String()
}

// SourceMode selects where a program finds the address of a request's sender. The zero value means [PeerSource].
type SourceMode string

// The modes.
const (
	// PeerSource is for programs that clients connect to. In a function, the peer is the one that AWS names in the event.
	PeerSource SourceMode = "peer"
	// ForwardedSource is for programs behind a balancer that appends its client's address to X-Forwarded-For.
	ForwardedSource SourceMode = "forwarded"
	// NoSource is for programs behind a balancer that hides its clients' addresses.
	NoSource SourceMode = "none"
)

// Decode implements envconfig.Decoder.
func (m *SourceMode) Decode(v string) error {
	switch mode := SourceMode(v); mode {
	case "", PeerSource, ForwardedSource, NoSource:
		*m = mode
		return nil
	}
	return fmt.Errorf("want %s, %s or %s", PeerSource, ForwardedSource, NoSource)
}

// IsPeer reports whether each connection belongs to one client.
func (m SourceMode) IsPeer() bool { return m == PeerSource || m == "" }

// Source returns the source of a request, which is unknown if the mode finds no address in it.
func (m SourceMode) Source(r *http.Request) Source { return SourceOf(m.Address(r)) }

// Address returns the address of a request's sender. It is the zero Addr if the mode finds none in the request.
func (m SourceMode) Address(r *http.Request) netip.Addr {
	switch {
	case m.IsPeer():
		return ParseAddress(r.RemoteAddr)
	case m == ForwardedSource:
		return LastForwarded(r.Header["X-Forwarded-For"])
	}
	return netip.Addr{}
}

// LastForwarded returns the last address of X-Forwarded-For, or the zero Addr. Clients can write all others.
func LastForwarded(lines []string) netip.Addr {
	if len(lines) == 0 {
		return netip.Addr{}
	}
	last := lines[len(lines)-1]
	return ParseAddress(strings.TrimSpace(last[strings.LastIndexByte(last, ',')+1:]))
}

// ParseAddress reads an IP address with or without a port. It returns the zero Addr for other text.
func ParseAddress(s string) netip.Addr {
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap()
	}
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}
	}
	return addr.Unmap()
}

type sourceKey struct{}

// WithSource returns a context for the handling of a request from a source.
func WithSource(ctx context.Context, s Source) context.Context {
	return context.WithValue(ctx, sourceKey{}, s)
}

// SourceFrom returns the source of the request that a context belongs to. It is unknown outside of requests.
func SourceFrom(ctx context.Context) Source {
	s, _ := ctx.Value(sourceKey{}).(Source)
	return s
}
