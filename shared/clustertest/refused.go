package clustertest

import (
	"fmt"
	"syscall"
	"testing"
)

// RefusingURL returns the URL of a port that refuses connections. The port stays bound until the test ends, so that no
// other process can use it meanwhile.
func RefusingURL(tb testing.TB) string {
	tb.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = syscall.Close(fd) })
	syscall.CloseOnExec(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		tb.Fatal(err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		tb.Fatal(err)
	}
	addr, ok := bound.(*syscall.SockaddrInet4)
	if !ok {
		tb.Fatalf("the socket is bound to %T", bound)
	}
	return fmt.Sprintf("https://127.0.0.1:%d", addr.Port)
}
