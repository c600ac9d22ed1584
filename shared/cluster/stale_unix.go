//go:build unix

package cluster

import "syscall"

// isStale peeks at the socket without blocking. A live idle connection has no data and no error.
func (c *conn) isStale() bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	idle := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		idle = err == syscall.EAGAIN
	})
	return err != nil || !idle
}
