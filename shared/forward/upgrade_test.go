package forward

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
)

func tcp(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	d, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); _ = d.Close() })
	return c.(*net.TCPConn), d.(*net.TCPConn)
}

// The client must receive the exit code of a command that ended without reading its input.
func TestOutputAfterInputFails(t *testing.T) {
	near, member := tcp(t)
	client, carried := net.Pipe()
	piped := make(chan struct{})
	go func() {
		defer close(piped)
		pipe(context.Background(), carried, near)
	}()
	input := make([]byte, 1<<20)
	if _, err := client.Write(input); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(member, make([]byte, 1)); err != nil { // so that the rest stays unread
		t.Fatal(err)
	}
	words := bytes.Repeat([]byte("exit code 3 "), 1000)
	if _, err := member.Write(words); err != nil {
		t.Fatal(err)
	}
	_ = member.Close()  // resets the connection
	for i := range 64 { // more than the buffers can absorb
		if _, err := client.Write(input); err != nil {
			t.Fatalf("MB %d is not delivered: %v", i, err)
		}
	}
	got := make([]byte, len(words))
	if _, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, words) {
		t.Errorf("%q, %v", got, err)
	}
	_ = client.Close()
	<-piped
}
