package streams_test

import (
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/clusterpass/clusterpass/test/e2e"
)

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestCommandsThatEndBeforeTheirInput: the client must receive the exit code and all of the output.
func TestCommandsThatEndBeforeTheirInput(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell")
	for _, tt := range []struct {
		command []string
		stdout  string
		code    int
	}{
		{[]string{"head", "-c", "1"}, "\x00", 0},
		{[]string{"sh", "-c", "exit 3"}, "", 3},
		{[]string{"sh", "-c", "head -c 1000000 | wc -c; exit 4"}, "1000000\n", 4},
	} {
		for version, bin := range e2e.Kubectls() {
			k := e2e.Through(t, "member1")
			k.Env = e2e.Dialects[0].Env // by SPDY, kube-apiserver itself may lose the exit code
			r := k.RunWith(t, bin, endless{}, append([]string{"-n", ns, "exec", "-i", "shell", "--"}, tt.command...)...)
			if r.Code != tt.code || r.Stdout != tt.stdout {
				t.Errorf("%s kubectl, %v: %v", version, tt.command, r)
			}
		}
	}
	// The protocol for scripts has the same guarantee.
	conn := e2e.DialWebsocket(t, e2e.Through(t, "member1"), "/api/v1/namespaces/"+ns+
		"/pods/shell/exec?stdin=1&stdout=1&command=sh&command=-c&command=exit+3", "v1.text.clusterpass.io")
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for conn.WriteMessage(websocket.TextMessage, []byte(`{"stdin":"more and more"}`)) == nil {
		}
	}()
	var last string
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			if !strings.Contains(last, `"exit":{"code":3`) || !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
				t.Errorf("the last message is %q, then %v", last, err)
			}
			break
		}
		last = string(message)
	}
	_ = conn.Close()
	<-sent
}
