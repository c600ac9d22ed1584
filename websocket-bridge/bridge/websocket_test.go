package bridge

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/clusterpass/clusterpass/shared/waittest"
)

func talking(t *testing.T, talk func(*websocket.Conn)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		u := websocket.Upgrader{
			Subprotocols: []string{"v5.channel.k8s.io", "v4.channel.k8s.io"},
			CheckOrigin:  func(*http.Request) bool { return true },
		}
		conn, err := u.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		talk(conn)
	}
}

func echoing(conn *websocket.Conn) {
	for {
		kind, message, err := conn.ReadMessage()
		if err != nil || conn.WriteMessage(kind, message) != nil {
			return
		}
	}
}

func (hs *bridgeServer) dial(user, path string, header http.Header, protocols ...string) (*websocket.Conn,
	*http.Response, error) {
	hs.t.Helper()
	d := websocket.Dialer{TLSClientConfig: hs.tls(user), Subprotocols: protocols, HandshakeTimeout: 5 * time.Minute}
	conn, resp, err := d.DialContext(hs.t.Context(), "wss://"+hs.addr+path, header)
	if err == nil {
		hs.t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Minute))
	}
	return conn, resp, err
}

func (hs *bridgeServer) mustDial(user, path string, protocols ...string) *websocket.Conn {
	hs.t.Helper()
	conn, resp, err := hs.dial(user, path, nil, protocols...)
	if err != nil {
		if resp != nil {
			body, _ := io.ReadAll(resp.Body)
			hs.t.Fatalf("%v: %s %s", err, resp.Status, body)
		}
		hs.t.Fatal(err)
	}
	return conn
}

// TestPingsKeepSilentWebsocketsAlive: only the client's responses to the bridge's own pings stay at the bridge.
func TestPingsKeepSilentWebsocketsAlive(t *testing.T) {
	var pongs atomic.Int64
	var strange atomic.Value
	hs := serve(t, Limits{PingPeriod: 20 * time.Millisecond}, Drain{}, talking(t, func(conn *websocket.Conn) {
		conn.SetPongHandler(func(s string) error {
			pongs.Add(1)
			if s != "of the member" {
				strange.Store(s)
			}
			return nil
		})
		_ = conn.WriteControl(websocket.PingMessage, []byte("of the member"), deadlineSoon())
		echoing(conn)
	}))
	conn := hs.mustDial("alice", execPath, "v5.channel.k8s.io")
	pings, echoes := make(chan struct{}, 1), make(chan []byte)
	answer := conn.PingHandler()
	conn.SetPingHandler(func(s string) error {
		select {
		case pings <- struct{}{}:
		default: // the test has not received the last one
		}
		return answer(s)
	})
	go func() {
		defer close(echoes)
		for {
			_, got, err := conn.ReadMessage()
			if err != nil {
				return
			}
			echoes <- got
		}
	}()
	for i := range 30 {
		want := make([]byte, i*i*50)
		_, _ = rand.Read(want)
		if err := conn.WriteMessage(websocket.BinaryMessage, want); err != nil {
			t.Fatal(err)
		}
		if got, ok := <-echoes; !ok || !bytes.Equal(got, want) {
			t.Fatalf("message %d: %d of %d bytes, or the end", i, len(got), len(want))
		}
		for range i % 3 { // silence until pings have come
			select {
			case <-pings:
			case got := <-echoes:
				t.Fatalf("%d bytes or the end, in a silence", len(got))
			}
		}
	}
	_ = conn.Close()
	<-echoes
	if pongs.Load() != 1 || strange.Load() != nil {
		t.Errorf("the member got %d pongs, and %v", pongs.Load(), strange.Load())
	}
}

// TestPingsAreNotLife: a websocket with only pings and pongs is idle. Its close frame contains the reason.
func TestPingsAreNotLife(t *testing.T) {
	hs := serve(t, Limits{PingPeriod: 20 * time.Millisecond, IdleTimeout: 300 * time.Millisecond}, Drain{},
		talking(t, echoing))
	conn, resp, err := hs.dial("alice", execPath, nil)
	for err != nil && resp != nil && resp.StatusCode == http.StatusGatewayTimeout { // the time was over before the start
		conn, resp, err = hs.dial("alice", execPath, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = conn.ReadMessage()
	var closed *websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != websocket.CloseGoingAway ||
		closed.Text != "nothing was sent for too long" {
		t.Errorf("%v", err)
	}
}

// TestDrainOfWebsockets: the close frame comes between two frames, even if one stays incomplete for long.
func TestDrainOfWebsockets(t *testing.T) {
	rest := make(chan struct{})
	hs := serve(t, Limits{}, Drain{Timeout: time.Hour}, talking(t, func(conn *websocket.Conn) {
		raw := conn.NetConn()
		_, _ = raw.Write([]byte{0x82, 6, 'a', 'b', 'c'})
		<-rest
		_, _ = raw.Write([]byte{'d', 'e', 'f', 0x82, 1, 'x'})
		echoing(conn)
	}))
	conn := hs.mustDial("alice", "/clusters/m/api/v1/pods?watch=1")
	_, r, err := conn.NextReader()
	if err != nil {
		t.Fatal(err)
	}
	message := make([]byte, 6)
	if _, err := io.ReadFull(r, message[:3]); err != nil {
		t.Fatal(err)
	}
	hs.stop()
	waittest.Until(t, "the drain begins", hs.bridge.draining.Load)
	waittest.Until(t, "the drain has got to the stream, whose frame is open", func() bool {
		return isRunning("streams.(*Registry).wait")
	})
	close(rest)
	if _, err := io.ReadFull(r, message[3:]); err != nil || string(message) != "abcdef" {
		t.Errorf("%q, %v", message, err)
	}
	_, next, err := conn.ReadMessage()
	if err == nil && string(next) == "x" { // the drain had not started
		_, _, err = conn.ReadMessage()
	}
	var closed *websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != websocket.CloseGoingAway ||
		closed.Text != "the bridge is shutting down; call again" {
		t.Errorf("%v", err)
	}
}

func TestCutInTheMiddleOfAFrame(t *testing.T) {
	t.Run("client", func(t *testing.T) {
		gone := make(chan error, 1)
		hs := serve(t, Limits{}, Drain{}, talking(t, func(conn *websocket.Conn) {
			_, _, err := conn.ReadMessage()
			gone <- err
		}))
		conn := hs.mustDial("alice", execPath)
		_, _ = conn.NetConn().Write([]byte{0x82, 0x80 | 100, 1, 2, 3, 4, 'h', 'a', 'l', 'f'})
		_ = conn.NetConn().Close()
		if err := <-gone; err == nil {
			t.Error("half a message looks whole")
		}
	})
	t.Run("member", func(t *testing.T) {
		hs := serve(t, Limits{}, Drain{}, talking(t, func(conn *websocket.Conn) {
			_, _ = conn.NetConn().Write([]byte{0x82, 100, 'h', 'a', 'l', 'f'})
		}))
		conn := hs.mustDial("alice", execPath)
		if _, got, err := conn.ReadMessage(); err == nil {
			t.Errorf("half a message looks whole: %q", got)
		}
	})
	halfOfSPDY := []byte{0, 0, 0, 1, 0, 0, 0, 100, 'h', 'a', 'l', 'f'}
	for _, cut := range []string{"client by SPDY", "member by SPDY"} {
		t.Run(cut, func(t *testing.T) {
			ended := make(chan string, 1)
			hs := serve(t, Limits{}, Drain{}, func(w http.ResponseWriter, r *http.Request) {
				conn, rw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = conn.Close() }()
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
				if strings.HasPrefix(cut, "member") {
					_, _ = io.ReadFull(rw, make([]byte, 1)) // the client has read the response headers
					_, _ = conn.Write(halfOfSPDY)
					return
				}
				got, _ := io.ReadAll(rw)
				ended <- string(got)
			})
			resp, conn := hs.get("alice", execPath, upgrade...)
			if resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatal(resp.Status)
			}
			if strings.HasPrefix(cut, "client") {
				_, _ = conn.Write(halfOfSPDY)
				_ = conn.NetConn().Close()
			} else {
				_, _ = conn.Write([]byte{0})
				got, _ := io.ReadAll(conn)
				ended <- string(got)
			}
			if got := <-ended; got != string(halfOfSPDY) {
				t.Errorf("the other side got %q", got)
			}
		})
	}
}

func deadlineSoon() time.Time { return time.Now().Add(time.Minute) }
