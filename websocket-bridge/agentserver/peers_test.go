package agentserver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/agentserver"
)

// TestPeersByName: one host name must stand for the addresses of all replicas.
func TestPeersByName(t *testing.T) {
	w := newWorld(t)
	addresses := []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}
	lns := samePort(t, addresses)
	_, port, err := net.SplitHostPort(lns[0].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	know := func(c *agentserver.Config) {
		c.Peers = agentserver.Peers{"bridge.internal:" + port}
		c.Lookup = func(_ context.Context, host string) ([]string, error) {
			if host != "bridge.internal" {
				return nil, fmt.Errorf("no such host %q", host)
			}
			return addresses, nil
		}
	}
	var all []*replica
	for _, ln := range lns {
		all = append(all, w.replicaAt(ln, know))
	}
	token, one := w.enrol("prod", time.Hour), w.enrol("one", time.Hour)
	a := w.agent("prod", token, w.front.address())
	waittest.Until(t, "the agent is connected to all", func() bool { return a.Links() == len(addresses) })
	last := all[len(all)-1]
	w.agent("one", one, last.front.Listener.Addr().String())
	last.connects(t, 2)
	for _, r := range all {
		waittest.Until(t, "a call through any replica", func() bool { return w.version(w.client("one", r.port)) == nil })
	}
}

// TestPeersThatHang: a connection attempt ends, however many peers do not respond.
func TestPeersThatHang(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	t.Parallel() // it mostly waits
	w := newWorld(t)
	w.enrol("prod", time.Hour)
	const many = 150 // nearly three times as many as can be tried in 20 s
	var (
		peers    agentserver.Peers
		requests atomic.Int64
	)
	for range many {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		t.Cleanup(func() { _ = ln.Close(); <-ended })
		go func() {
			defer close(ended)
			for first := true; ; first = false {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				if first {
					requests.Add(1)
				}
			}
		}()
		peers = append(peers, ln.Addr().String())
	}
	r := w.replica(func(c *agentserver.Config) { c.Peers = peers })
	_, err := r.Dial(context.Background(), "prod", "", nil, nil)
	var e *status.Error
	if !errors.As(err, &e) || e.Reason != status.Timeout || e.Cluster != "prod" {
		t.Errorf("%v", err)
	}
	if n := requests.Load(); n == 0 || n == many {
		t.Errorf("%d of %d got a request", n, many)
	}
}

// TestPeerThatRefusesConnections: a caller must not read that no agent is connected if the agent's replica is down.
func TestPeerThatRefusesConnections(t *testing.T) {
	w := newWorld(t)
	w.enrol("prod", time.Hour)
	peer := strings.TrimPrefix(clustertest.RefusingURL(t), "https://")
	r := w.replica(func(c *agentserver.Config) { c.Peers = agentserver.Peers{peer} })
	_, err := r.Dial(t.Context(), "prod", "", nil, nil)
	var e *status.Error
	if !errors.As(err, &e) || e.Reason != status.Unreachable || e.Cluster != "prod" ||
		!strings.Contains(e.Message, "tunnel port at "+peer+" cannot be reached") {
		t.Error(err)
	}
}

func samePort(t *testing.T, addresses []string) []net.Listener {
	t.Helper()
	var lns []net.Listener
	waittest.Until(t, "a port is free at all addresses", func() bool {
		port := "0"
		for _, a := range addresses {
			ln, err := net.Listen("tcp", net.JoinHostPort(a, port))
			if err != nil {
				for _, ln := range lns {
					_ = ln.Close()
				}
				lns = nil
				return false
			}
			lns = append(lns, ln)
			_, port, _ = net.SplitHostPort(ln.Addr().String())
		}
		return true
	})
	return lns
}
