package conns

import (
	"net"
	"net/http"
	"testing"
)

// fakeConn is a connection from an address that records whether it was closed.
type fakeConn struct {
	net.Conn
	from   string
	closed bool
}

func (c *fakeConn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.ParseIP(c.from), Port: 4711}
}

func (c *fakeConn) Close() error {
	c.closed = true
	return nil
}

// connect opens n idle connections from an address.
func connect(i *Idle, n int, from string) []*fakeConn {
	opened := make([]*fakeConn, n)
	for k := range opened {
		opened[k] = &fakeConn{from: from}
		i.Track(opened[k], http.StateNew)
	}
	return opened
}

func closed(conns []*fakeConn) int {
	n := 0
	for _, c := range conns {
		if c.closed {
			n++
		}
	}
	return n
}

// TestIdleConnectionsAreBounded: an address that opens many connections must lose its own, not those of others, and
// never one with a request.
func TestIdleConnectionsAreBounded(t *testing.T) {
	i := &Idle{Max: 20, MaxPerSource: 10}
	other := connect(i, 5, "192.0.2.1")
	busy := &fakeConn{from: "198.51.100.1"}
	i.Track(busy, http.StateNew)
	i.Track(busy, http.StateActive)
	greedy := connect(i, 15, "198.51.100.1")
	if closed(greedy) != 5 || !greedy[0].closed || greedy[14].closed || closed(other) != 0 || busy.closed {
		t.Errorf("of one source %d are closed, of another %d", closed(greedy), closed(other))
	}
	// More sources reach the limit of all. The largest source loses connections.
	for n := range 10 {
		connect(i, 1, net.IPv4(203, 0, 113, byte(n)).String())
	}
	if closed(other) != 0 || closed(greedy) <= 5 {
		t.Errorf("the smaller source lost %d connections, the largest has lost %d", closed(other), closed(greedy))
	}
	i.Track(busy, http.StateIdle)
	for _, c := range append(append(greedy, other...), busy) {
		i.Track(c, http.StateClosed)
	}
	if len(i.open) != 10 || len(i.bySource) != 10 {
		t.Errorf("%d connections of %d sources are remembered", len(i.open), len(i.bySource))
	}
}

// TestConnectionsOfUnknownSourcesShareOnlyTheLimitOfAll: behind a listener that has no addresses, clients must not
// count as one source.
func TestConnectionsOfUnknownSourcesShareOnlyTheLimitOfAll(t *testing.T) {
	i := &Idle{Max: 20, MaxPerSource: 1}
	if opened := connect(i, 21, "none"); closed(opened) != 1 || !opened[0].closed {
		t.Errorf("%d are closed", closed(opened))
	}
}
