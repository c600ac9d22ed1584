package agentserver_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// TestNoBodies: a client must not keep a connection open by sending a body slowly, with or without a credential.
func TestNoBodies(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t)
	r := w.replica()
	token := w.enrol("prod", time.Hour)
	for name, body := range map[string]string{
		"of a size": "Content-Length: 100", "without end": "Transfer-Encoding: chunked",
	} {
		for _, credential := range []string{string(token.Token.Reveal()), "none"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				conn, err := tls.Dial("tcp", r.front.Listener.Addr().String(), &tls.Config{
					InsecureSkipVerify: true, MinVersion: tls.VersionTLS12,
				})
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(waittest.Patience))
				_, err = fmt.Fprintf(conn, "POST %s%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n\r\n",
					route.AgentPath("prod"), route.AgentCredential, credential, body)
				if err != nil {
					t.Fatal(err)
				}
				br := bufio.NewReader(conn)
				resp, err := http.ReadResponse(br, nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusBadRequest || !resp.Close {
					t.Errorf("%s %v, %v", resp.Status, resp.Header, err)
				}
				var late net.Error
				if _, err := br.ReadByte(); err == nil || errors.As(err, &late) && late.Timeout() {
					t.Errorf("the connection goes on: %v", err)
				}
			})
		}
	}
}
