package agentserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/metrictest"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/agentserver"
)

// TestTwoAgents: the death of one agent must not affect streams of the other.
func TestTwoAgents(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	token := w.enrol("prod", time.Hour)
	balancer := newBalancer(t) // in front of the agent that dies
	balancer.add(r.front.Listener.Addr().String())
	dies, stays := w.agent("prod", token, balancer.address()), w.agent("prod", token, w.front.address())
	r.connects(t, 2)
	c := w.client("prod", r.port)
	var open []*echo
	for range 10 {
		s, err := w.echo(c)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, s)
	}
	// On a slow machine one connection may try both agents. Abandoned attempts count until the tunnel has closed them.
	var ofDies, ofStays int
	waittest.Until(t, "the agents carry 10 together", func() bool {
		ofDies, ofStays = dies.carries(t), stays.carries(t)
		return ofDies+ofStays == len(open)
	})
	if ofDies == 0 || ofStays == 0 {
		t.Errorf("the agents carry %d and %d", ofDies, ofStays)
	}
	balancer.remove(r.front.Listener.Addr().String()) // it does not reconnect
	balancer.cut()
	r.connects(t, 1)
	lost := 0
	for _, s := range open {
		if s.send() != nil {
			lost++
		}
	}
	if lost != ofDies {
		t.Errorf("%d streams were lost with the agent that carried %d", lost, ofDies)
	}
	if err := w.version(c); err != nil {
		t.Errorf("a new call: %v", err)
	}
}

func TestCut(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	w.agent("prod", w.enrol("prod", time.Hour), w.front.address())
	c := w.client("prod", r.port)
	waittest.Until(t, "the agent is connected", func() bool { return w.version(c) == nil })
	for range 3 {
		s, err := w.echo(c)
		if err != nil {
			t.Fatal(err)
		}
		w.front.cut()
		if err := s.ended(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("a stream that was cut ended with %v", err)
		}
		waittest.Until(t, "the agent is back", func() bool { return w.version(c) == nil })
	}
}

// TestBridgeKilled: another replica with the agent is used at once. A restarted bridge gets its agents back.
func TestBridgeKilled(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	w.agent("prod", w.enrol("prod", time.Hour), w.front.address())
	r.connects(t, 1)
	s, err := w.echo(w.client("prod", r.port))
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	if err := s.ended(); err == nil {
		t.Error("a stream goes on whose bridge was killed")
	}
	var e *status.Error
	if err := w.version(w.client("prod", r.port)); !errors.As(err, &e) || e.Reason != status.Unreachable ||
		e.Cluster != "prod" {
		t.Errorf("without a bridge: %v", err)
	}
	again := w.replica()
	waittest.Until(t, "the agent is connected again", func() bool {
		return w.version(w.client("prod", again.port)) == nil
	})
}

var blackHoles = map[string]func(b *balancer, on bool){
	"both ways":       func(b *balancer, on bool) { b.up.Store(on); b.down.Store(on) },
	"from the bridge": func(b *balancer, on bool) { b.down.Store(on) },
	"from the agent":  func(b *balancer, on bool) { b.up.Store(on) },
}

// TestBlackHole: both ends must notice a network that silently drops traffic, so that requests get a response.
func TestBlackHole(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, swallow := range blackHoles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			r := w.replica()
			token := w.enrol("prod", time.Hour)
			a := w.agent("prod", token, w.front.address())
			c := w.client("prod", r.port)
			waittest.Until(t, "the agent is connected", func() bool { return w.version(c) == nil })
			s, err := w.echo(c)
			if err != nil {
				t.Fatal(err)
			}
			swallow(w.front, true)
			var e *status.Error
			if err := w.version(c); !errors.As(err, &e) || e.Code() != 502 && e.Code() != 504 || e.Cluster != "prod" {
				t.Errorf("a call into the black hole: %v", err)
			}
			if err := s.ended(); err == nil {
				t.Error("a stream goes on in the black hole")
			}
			waittest.Until(t, "the agent has noticed", func() bool { return a.Links() == 0 })
			waittest.Until(t, "the bridge has noticed", func() bool {
				return metrictest.Gauge(t, r.metrics, "clusterpass_agents") == 0
			})
			w.agent("prod", token, r.front.Listener.Addr().String()) // by another path
			waittest.Until(t, "calls go the other way", func() bool { return w.version(c) == nil })
			swallow(w.front, false)
			waittest.Until(t, "the first agent is back", func() bool { return a.Links() == 1 })
		})
	}
}

// TestBlackHoleWithTwoAgents: until the failure is noticed, new requests use the agent that responds.
func TestBlackHoleWithTwoAgents(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, swallow := range blackHoles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			r := w.replica()
			token := w.enrol("prod", time.Hour)
			w.agent("prod", token, w.front.address())
			w.agent("prod", token, r.front.Listener.Addr().String())
			r.connects(t, 2)
			swallow(w.front, true)
			c := w.client("prod", r.port)
			var failed []error
			for range 8 {
				if err := w.version(c); err != nil {
					failed = append(failed, err)
				}
			}
			if len(failed) > 2 { // a machine that pauses for 5 s may cost one
				t.Errorf("with one of two agents in a black hole: %v", failed)
			}
		})
	}
}

func TestSlowReader(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	w.agent("prod", w.enrol("prod", time.Hour), w.front.address())
	c := w.client("prod", r.port)
	waittest.Until(t, "the agent is connected", func() bool { return w.version(c) == nil })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 5 { // each fills its window and all buffers
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.api.URL+"/endless", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
	}
	s, err := w.echo(c)
	if err != nil {
		t.Fatal(err)
	}
	// A tunnel without a window for each stream would block earlier.
	for range 200 {
		if err := s.send(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.version(c); err != nil {
		t.Error(err)
	}
}

func TestThousandStreams(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	w := newWorld(t)
	r := w.replica()
	token := w.enrol("prod", time.Hour)
	a := w.agent("prod", token, w.front.address())
	r.connects(t, 1)
	const n = 1000
	var (
		wg   sync.WaitGroup
		done atomic.Int64
		all  = make(chan struct{}) // closed when each has been opened, or has failed
		over = make(chan struct{})
	)
	release := sync.OnceFunc(func() { close(over); wg.Wait() })
	defer release()
	for range n {
		wg.Go(func() {
			// A loaded machine may need longer than openTimeout.
			var conn net.Conn
			err := waittest.Poll(context.Background(), func(context.Context) (err error) {
				conn, err = r.Dial(context.Background(), "prod", "", nil, nil)
				return err
			})
			if err != nil {
				t.Errorf("a stream: %v", err)
			} else {
				defer conn.Close()
			}
			if done.Add(1) == n {
				close(all)
			}
			<-over
		})
	}
	<-all
	if t.Failed() {
		return
	}
	// Abandoned attempts count until the tunnel has closed them.
	waittest.Until(t, "all are open, and counted", func() bool {
		return metrictest.Gauge(t, r.metrics, "clusterpass_tunnel_streams") == n
	})
	release()
	waittest.Until(t, "all are closed", func() bool {
		return metrictest.Gauge(t, r.metrics, "clusterpass_tunnel_streams") == 0 && a.carries(t) == 0
	})
}

func TestStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	w := newWorld(t)
	r := w.replica(func(c *agentserver.Config) { c.Recheck = time.Minute }) // fewer checks, since this machine is slow
	const clusters, each = 50, 10
	var wg sync.WaitGroup
	for i := range clusters {
		name := fmt.Sprint("c", i)
		token := w.enrol(name, time.Hour)
		wg.Go(func() {
			for range each {
				w.agent(name, token, w.front.address())
			}
		})
	}
	wg.Wait()
	r.connects(t, clusters*each)
	w.front.cut()
	waittest.Until(t, "the bridge has noticed", func() bool {
		return metrictest.Gauge(t, r.metrics, "clusterpass_agents") < clusters*each
	})
	r.connects(t, clusters*each)
	for i := range clusters {
		conn, err := r.Dial(t.Context(), fmt.Sprint("c", i), "", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
}
