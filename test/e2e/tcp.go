package e2e

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// EchoServer returns the port of a server that echoes each connection until the client closes its half.
func EchoServer(t *testing.T) int {
	t.Helper()
	return ServeTCP(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
}

// ServeTCP runs talk for each connection and closes the connection afterwards. It returns the port.
func ServeTCP(t *testing.T, talk func(net.Conn)) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				talk(c)
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); wg.Wait() })
	return ln.Addr().(*net.TCPAddr).Port
}

// RoundTrip sends data, closes its half and returns the whole response.
func RoundTrip(addr string, data []byte) ([]byte, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(Patience))
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(data)
		if err == nil {
			err = conn.(*net.TCPConn).CloseWrite()
		}
		sent <- err
	}()
	got, err := io.ReadAll(conn)
	if serr := <-sent; err == nil {
		err = serr
	}
	return got, err
}
