package keeper

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// A heldPort is bound without a listener, so that no other program gets it. Connections are refused until an API server
// shares the port (SO_REUSEPORT, its --permit-port-sharing).
type heldPort struct {
	fd     int
	number int
}

func holdPort() (*heldPort, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	p := &heldPort{fd: fd}
	if err := p.bind(); err != nil {
		p.close()
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return p, nil
}

func (p *heldPort) bind() error {
	if err := unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return err
	}
	if err := unix.Bind(p.fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	address, err := unix.Getsockname(p.fd)
	if err != nil {
		return err
	}
	p.number = address.(*unix.SockaddrInet4).Port
	return nil
}

func (p *heldPort) close() { _ = unix.Close(p.fd) }
