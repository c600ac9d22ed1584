package agentserver_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

type balancer struct {
	ln      net.Listener
	down    atomic.Bool // drops traffic from the backends
	up      atomic.Bool // drops traffic to the backends
	tap     io.Writer   // receives a copy of the traffic; optional
	next    atomic.Int64
	wg      sync.WaitGroup
	mu      sync.Mutex
	targets []string
	conns   map[net.Conn]struct{}
}

func newBalancer(t *testing.T) *balancer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{ln: ln, conns: map[net.Conn]struct{}{}}
	b.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			b.wg.Go(func() { b.carry(c) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); b.cut(); b.wg.Wait() })
	return b
}

func (b *balancer) address() string { return b.ln.Addr().String() }

func (b *balancer) add(target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.targets = append(b.targets, target)
}

func (b *balancer) remove(target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, t := range b.targets {
		if t == target {
			b.targets = append(b.targets[:i:i], b.targets[i+1:]...)
			return
		}
	}
}

func (b *balancer) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		_ = c.Close()
	}
}

func (b *balancer) carry(c net.Conn) {
	defer func() { _ = c.Close() }()
	b.mu.Lock()
	if len(b.targets) == 0 {
		b.mu.Unlock()
		return
	}
	to := b.targets[int(b.next.Add(1))%len(b.targets)]
	b.mu.Unlock()
	back, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = back.Close() }()
	b.mu.Lock()
	b.conns[c], b.conns[back] = struct{}{}, struct{}{}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.conns, c)
		delete(b.conns, back)
	}()
	copied := make(chan struct{}, 2)
	pass := func(dst, src net.Conn, swallow func() bool) {
		defer func() { copied <- struct{}{} }()
		buf := make([]byte, 32<<10)
		for {
			n, err := src.Read(buf)
			if b.tap != nil {
				_, _ = b.tap.Write(buf[:n])
			}
			if swallow() {
				if err != nil {
					return
				}
				continue
			}
			if _, werr := dst.Write(buf[:n]); err != nil || werr != nil {
				_, _ = dst.Close(), src.Close()
				return
			}
		}
	}
	go pass(back, c, b.up.Load)
	go pass(c, back, b.down.Load)
	<-copied
	<-copied
}
