package main

import (
	"context"
	"net"
	"time"

	"golang.org/x/time/rate"
)

// slowConn is a connection whose reads have a limited rate.
type slowConn struct {
	net.Conn
	limiter *rate.Limiter
}

// newSlowConn limits the reads of a connection to bytesPerSecond. ahead is the number of bytes that arrive in advance
// while the client does not read.
func newSlowConn(c net.Conn, bytesPerSecond, ahead int) net.Conn {
	limiter := rate.NewLimiter(rate.Limit(bytesPerSecond), ahead)
	limiter.AllowN(time.Now(), ahead) // nothing has arrived yet
	return &slowConn{c, limiter}
}

// Read implements net.Conn.
func (c *slowConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), c.limiter.Burst())])
	if waitErr := c.limiter.WaitN(context.Background(), n); err == nil {
		err = waitErr
	}
	return n, err
}
