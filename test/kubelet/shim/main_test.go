package shim

import (
	"encoding/json"
	"net"
	"os"
	"syscall"
	"testing"
)

// TestKubeletDiesUnread: if the kubelet dies before it has read all data, Go's read returns -1 bytes. The container
// must still be killed.
func TestKubeletDiesUnread(t *testing.T) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(pair[0]), "shim")
	conn, err := net.FileConn(file)
	file.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("an event")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Close(pair[1]); err != nil {
		t.Fatal(err)
	}
	k := &keeper{socket: &fileReceiver{conn: conn.(*net.UnixConn)}, events: json.NewEncoder(conn), mine: map[int]bool{}}
	if err := k.serve(); err != nil {
		t.Error(err)
	}
}
