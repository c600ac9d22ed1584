package main

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestDelayedConn fails if the clusters of the part far were nearer than its table states. It also fails if packets
// wait for each other.
func TestDelayedConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const latency = 25 * time.Millisecond
		near, far := net.Pipe()
		d := newDelayedConn(far, latency)
		start := time.Now()
		go func() {
			for range 100 {
				_, _ = d.Write([]byte("to the client"))
			}
		}()
		if _, err := io.ReadFull(near, make([]byte, 100*len("to the client"))); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(start); got != latency {
			t.Errorf("bytes arrive at the client after %v", got)
		}
		start = time.Now()
		go func() {
			_, _ = near.Write([]byte("to the cluster"))
			_ = near.Close()
		}()
		got, err := io.ReadAll(d)
		if err != nil || string(got) != "to the cluster" || time.Since(start) != latency {
			t.Errorf("the cluster reads %q after %v, %v", got, time.Since(start), err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if _, err := d.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after its end: %v", err)
		}
	})
}
