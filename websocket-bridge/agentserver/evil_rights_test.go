package agentserver_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/agentserver"
)

// TestEvilCredential: no response of an agent may prevent later requests to it, a drain, or the revocation of others.
// Its own tunnel ends with the credential that it was opened with.
func TestEvilCredential(t *testing.T) {
	t.Parallel() // it mostly waits
	long := strings.Repeat("x", 1<<10)
	for name, says := range map[string]func(w *world, own possession.Credential) http.HandlerFunc{
		"101 and silence":      bytesSay("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", ""),
		"nothing":              bytesSay("", ""),
		"no body":              bytesSay("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", ""),
		"a body without end":   bytesSay("HTTP/1.1 200 OK\r\n\r\n", long),
		"a header without end": bytesSay("HTTP/1.1 200 OK\r\nX: ", long),
		"hints without end":    bytesSay("", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"),
		"another cluster's": func(w *world, _ possession.Credential) http.HandlerFunc {
			return w.credentialSays(w.enrol("third", 100*time.Hour))
		},
		"an expired one": func(w *world, own possession.Credential) http.HandlerFunc {
			w.Clock.Advance(time.Minute)
			return w.credentialSays(w.exchange("evil", own, func(a *passes.Agent) { a.TTL = time.Hour }))
		},
		"one without proof": func(w *world, own possession.Credential) http.HandlerFunc {
			w.Clock.Advance(time.Minute)
			next := w.exchange("evil", own, func(a *passes.Agent) { a.TTL = 100 * time.Hour })
			return func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(next.Token.Reveal()) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			r := w.replica()
			own := w.enrol("evil", 20*time.Hour)
			ws := w.evil("evil", own, r)
			answer := says(w, own)
			var requests atomic.Int64
			w.serve(ws, func(rw http.ResponseWriter, req *http.Request) {
				if req.URL.Path == agentserver.CredentialPath {
					requests.Add(1)
				}
				answer(rw, req)
			})
			w.agent("other", w.enrol("other", 100*time.Hour), w.front.address())
			r.connects(t, 2)
			s, err := w.echo(w.client("other", r.port))
			if err != nil {
				t.Fatal(err)
			}

			w.Clock.Advance(16 * time.Hour) // the last quarter of its lifetime, and after the end of the expired one
			drained := make(chan struct{})
			go func() { defer close(drained); r.Drain(t.Context()) }()
			waittest.Until(t, "it is asked again", func() bool { return requests.Load() >= 2 })
			select {
			case <-drained:
			case <-time.After(waittest.Patience):
				t.Fatal("it holds up the drain")
			}
			if err := w.issuer.RevokeAgent(t.Context(), "other"); err != nil {
				t.Fatal(err)
			}
			if err := s.ended(); err == nil {
				t.Error("the stream of another cluster goes on, whose agents are revoked")
			}
			w.Clock.Advance(5 * time.Hour)
			r.connects(t, 0)
		})
	}
}

// bytesSay responds with answer, and then repeats more. The connection stays open.
func bytesSay(answer, more string) func(*world, possession.Credential) http.HandlerFunc {
	return func(*world, possession.Credential) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				return
			}
			_, err = io.WriteString(conn, answer)
			for err == nil && more != "" {
				_, err = io.WriteString(conn, more)
			}
		}
	}
}

func (w *world) credentialSays(c possession.Credential) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		proof, err := c.Prove(possession.Connect, "", w.Clock.Now())
		if err == nil {
			_, _ = io.WriteString(rw, string(c.Token.Reveal())+"\n"+proof)
		}
	}
}
