package console

import (
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/test/e2e"
)

// startOnLine is startAsOwner over a TCP line between browser and gateway, which the test can cut.
func startOnLine(t *testing.T, name string, env ...string) (*script, *e2e.Connections) {
	t.Helper()
	gateway, line := e2e.HostOf(t, e2e.Shared(t).Kubeconfig), &e2e.Connections{}
	port := e2e.ServeTCP(t, func(client net.Conn) {
		line.Add(client)
		server, err := net.Dial("tcp", gateway)
		if err != nil {
			return
		}
		line.Add(server)
		copied := make(chan struct{})
		go func() {
			defer close(copied)
			_, _ = io.Copy(server, client)
			_ = server.Close()
		}()
		_, _ = io.Copy(client, server)
		_ = client.Close()
		<-copied
	})
	t.Cleanup(line.Close)
	pass, err := os.ReadFile(e2e.Shared(t).Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	addr := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}).String()
	return start(t, name, e2e.WriteFile(t, strings.ReplaceAll(string(pass), gateway, addr)), env...), line
}

// onHost runs a shell command in the container of a pod of member, past the gateway.
func onHost(t *testing.T, member, namespace, pod, command string) {
	t.Helper()
	e2e.Direct(member).Must(t, "-n", namespace, "exec", pod, "--", "sh", "-c", `cd "$CONTAINER_ROOT" && `+command)
}
