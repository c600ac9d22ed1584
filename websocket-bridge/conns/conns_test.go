package conns

import (
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"github.com/clusterpass/clusterpass/shared/limits"
)

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

// connect opens n connections from an address, which have had a request.
func connect(i *Idle, n int, from string) []*fakeConn {
	opened := open(i, n, from)
	for _, c := range opened {
		i.Track(c, http.StateActive)
		i.Track(c, http.StateIdle)
	}
	return opened
}

func open(i *Idle, n int, from string) []*fakeConn {
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

// TestIdleConnectionsAreBounded: an address that opens many connections must lose only its own idle ones.
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
	if p := &i.keptAlive; len(p.open) != 10 || len(p.bySource) != 10 || len(p.bySize) != 1 || p.most != 1 {
		t.Errorf("%d connections of %d sources are remembered", len(p.open), len(p.bySource))
	}
}

// TestConnectionsOfUnknownSourcesShareOnlyTheLimitOfAll: clients of a listener without addresses must not count as one
// source.
func TestConnectionsOfUnknownSourcesShareOnlyTheLimitOfAll(t *testing.T) {
	i := &Idle{Max: 20, MaxPerSource: 1}
	if opened := connect(i, 21, "none"); closed(opened) != 1 || !opened[0].closed {
		t.Errorf("%d are closed", closed(opened))
	}
}

// TestHandshakesAndIdleConnectionsDoNotCloseEachOther: a stranger without requests must not close callers' connections.
// Idle callers must not prevent handshakes.
func TestHandshakesAndIdleConnectionsDoNotCloseEachOther(t *testing.T) {
	i := &Idle{Max: 10, MaxPerSource: 5}
	kept := connect(i, 5, "192.0.2.1")
	silent := open(i, 8, "192.0.2.1")
	if closed(kept) != 0 || closed(silent) != 3 || silent[7].closed {
		t.Errorf("%d idle connections and %d of 8 without a request are closed", closed(kept), closed(silent))
	}
	more := connect(i, 5, "198.51.100.1")
	last := open(i, 5, "203.0.113.1")
	if closed(more)+closed(last) != 0 {
		t.Errorf("%d idle connections and %d without a request are closed", closed(more), closed(last))
	}
}

// TestLargestSource: the limit of all must not close a connection of a source with few.
func TestLargestSource(t *testing.T) {
	var p pool
	random := rand.New(rand.NewPCG(1, 2))
	byHand := map[limits.Source][]net.Conn{}
	for range 5000 {
		source := limits.SourceOf(netip.AddrFrom4([4]byte{192, 0, 2, byte(random.IntN(20))}))
		if own := byHand[source]; len(own) > 0 && random.IntN(5) < 2 {
			p.remove(own[0], source)
			byHand[source] = own[1:]
		} else {
			c := &fakeConn{}
			p.add(c, source)
			byHand[source] = append(own, c)
		}
		most := 0
		for _, own := range byHand {
			most = max(most, len(own))
		}
		if got := len(byHand[p.largest()]); got != most || p.most != most {
			t.Fatalf("the largest source has %d connections, want %d", got, most)
		}
	}
}
