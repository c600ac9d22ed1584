package agentserver_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/gorilla/websocket"

	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/version"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/links"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/target"
	"github.com/clusterpass/clusterpass/websocket-bridge/agentserver"
	"github.com/clusterpass/clusterpass/websocket-bridge/mux"
)

// dial connects as an agent, without the agent's program.
func (w *world) dial(cluster string, c possession.Credential, r *replica) (*websocket.Conn, *http.Response, error) {
	d := mux.NewDialer()
	d.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	header := w.header(c, possession.Connect, "")
	header.Set(agentserver.AgentHeader, uuid.NewString())
	return d.DialContext(w.t.Context(), "wss"+strings.TrimPrefix(r.front.URL, "https")+route.AgentPath(cluster), header)
}

func (w *world) evil(cluster string, c possession.Credential, r *replica) *websocket.Conn {
	w.t.Helper()
	ws, resp, err := w.dial(cluster, c, r)
	if err != nil {
		w.t.Fatal(err)
	}
	_ = resp.Body.Close()
	w.t.Cleanup(func() { _ = ws.Close() })
	return ws
}

func (w *world) serve(ws *websocket.Conn, answer http.HandlerFunc) {
	w.t.Helper()
	session, err := mux.Accepter(ws)
	if err != nil {
		w.t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(rw http.ResponseWriter, r *http.Request) {
			if r.UserAgent() != version.UserAgent() {
				w.t.Errorf("%s %s of the bridge has the User-Agent %q", r.Method, r.URL, r.UserAgent())
			}
			answer(rw, r)
		})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = srv.Serve(session) }()
	w.t.Cleanup(func() { _, _ = srv.Close(), session.Close(); <-ended })
}

// TestTurnedAway: an agent above the maximum is refused before it is connected, with a time to wait.
func TestTurnedAway(t *testing.T) {
	w := newWorld(t)
	r := w.replica(func(c *agentserver.Config) { c.Max = 1 })
	token := w.enrol("prod", time.Hour)
	w.agent("prod", token, w.front.address())
	r.connects(t, 1)
	_, resp, err := w.dial("prod", token, r)
	if err == nil || resp == nil || resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%+v, %v", resp, err)
	}
}

// TestEvilAnswers: an agent must not be able to forge errors of other clusters.
func TestEvilAnswers(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	w.enrol("other", time.Hour)
	says := make(chan func(http.ResponseWriter), 1)
	w.serve(w.evil("prod", w.enrol("prod", time.Hour), r), func(rw http.ResponseWriter, _ *http.Request) { (<-says)(rw) })
	r.connects(t, 1)
	for name, say := range map[string]func(http.ResponseWriter){
		"as another cluster": func(rw http.ResponseWriter) {
			status.Write(rw,
				status.New(status.UnknownCluster, "other", "no cluster %q\r\nX-Evil: 1 %s", "other", strings.Repeat("long", 2000)))
		},
		"as one who decides": func(rw http.ResponseWriter) {
			status.Write(rw, status.New(status.Forbidden, "prod", "you may not"))
		},
		"no Status": func(rw http.ResponseWriter) { rw.WriteHeader(http.StatusTeapot) },
		"a Status that is no end": func(rw http.ResponseWriter) {
			rw.WriteHeader(http.StatusBadGateway)
			_, _ = rw.Write(bytes.Repeat([]byte("{"), 1<<20))
		},
		"a header without end": func(rw http.ResponseWriter) {
			conn, _, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				return
			}
			_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nX: ")
			for err == nil {
				_, err = io.WriteString(conn, strings.Repeat("x", 1<<10))
			}
			_ = conn.Close()
		},
		"bytes after the answer": func(rw http.ResponseWriter) {
			conn, _, err := http.NewResponseController(rw).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\nhello")
				_ = conn.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			says <- say
			err := w.version(w.client("prod", r.port))
			var e *status.Error
			if !errors.As(err, &e) || e.Code() != http.StatusBadGateway || e.Cluster != "prod" || len(e.Message) > 700 ||
				strings.ContainsAny(e.Message, "\r\n") {
				t.Errorf("%+v", err)
			}
		})
	}
	if err := w.version(w.client("other", r.port)); err == nil || !strings.Contains(err.Error(), "none of its agents") {
		t.Errorf("another cluster: %v", err)
	}
}

// TestEvilServer: an agent that connects to another server than its cluster's must not receive a request.
func TestEvilServer(t *testing.T) {
	w := newWorld(t)
	r := w.replica()
	requests := make(chan struct{}, 100)
	thief := httptest.NewUnstartedServer(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests <- struct{}{} }))
	cert, err := pki.SelfSigned("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	thief.TLS = &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12}
	thief.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	thief.StartTLS()
	t.Cleanup(thief.Close)
	w.agent("prod", w.enrol("prod", time.Hour), w.front.address(), func(c *links.Config) {
		c.Target = &target.APIServer{Cluster: "prod", Address: thief.Listener.Addr().String()}
	})
	r.connects(t, 1)
	var unknown *tls.CertificateVerificationError
	if err := w.version(w.client("prod", r.port)); !errors.As(err, &unknown) || len(requests) > 0 {
		t.Errorf("%v, and the thief got a request %d times", err, len(requests))
	}
}

// TestEvilTunnel: an agent must fill only the windows of streams that the bridge has opened.
func TestEvilTunnel(t *testing.T) {
	// The following are frames of yamux: version, type, flags, stream, length.
	w := newWorld(t)
	r := w.replica()
	token := w.enrol("prod", time.Hour)
	t.Run("streams", func(t *testing.T) {
		ws := w.evil("prod", token, r)
		open := []byte{0, 1, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0} // a window update with SYN for stream 2
		if err := ws.WriteMessage(websocket.BinaryMessage, open); err != nil {
			t.Fatal(err)
		}
		_ = ws.SetReadDeadline(time.Now().Add(waittest.Patience))
		for {
			_, frame, err := ws.ReadMessage()
			if err != nil {
				t.Fatalf("the stream is neither refused nor is the tunnel ended by name: %v", err)
			}
			if len(frame) == 12 && frame[1] == 1 && frame[3]&8 != 0 && frame[7] == 2 { // RST for stream 2
				return
			}
		}
	})
	t.Run("pings", func(t *testing.T) {
		ws := w.evil("prod", token, r)
		ping := []byte{0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7}
		data := []byte{0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 3, 'a', 'b'} // for an unknown stream: discarded
		for _, part := range [][]byte{data, append([]byte{'c'}, ping[:5]...), ping[5:]} {
			if err := ws.WriteMessage(websocket.BinaryMessage, part); err != nil {
				t.Fatal(err)
			}
		}
		_ = ws.SetReadDeadline(time.Now().Add(waittest.Patience))
		for {
			_, frame, err := ws.ReadMessage()
			var late net.Error
			switch {
			case err == nil && frame[1] == 2:
				t.Fatal("a ping was answered")
			case errors.As(err, &late) && late.Timeout():
				t.Fatal("the tunnel goes on")
			case err != nil:
				return
			}
		}
	})
}
