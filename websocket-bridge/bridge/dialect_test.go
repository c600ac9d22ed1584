package bridge

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	spdyframes "github.com/moby/spdystream/spdy"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/limits"
)

// spdyMember is a member that refuses websockets. It passes the streams of an exec session to talk, by type.
func spdyMember(upgrades *atomic.Int64,
	talk func(streams map[string]httpstream.Stream, conn httpstream.Connection)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			upgrades.Add(1)
			http.Error(w, "what is a websocket?", http.StatusBadRequest)
			return
		}
		if strings.Contains(r.URL.Path, "nosuch") {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","code":404}`)
			return
		}
		if strings.Contains(r.URL.Path, "neither") || r.Method != http.MethodPost || r.Header.Get("Sec-Websocket-Key") != "" {
			http.Error(w, "nor SPDY", http.StatusBadRequest)
			return
		}
		if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io", "portforward.k8s.io"}); err != nil {
			return
		}
		arrived := make(chan httpstream.Stream, 5)
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
			go func() { <-replied; arrived <- s }()
			return nil
		})
		if conn == nil {
			return
		}
		defer func() { _ = conn.Close() }()
		streams := map[string]httpstream.Stream{}
		for range 1 + strings.Count(r.URL.RawQuery, "std") + strings.Count(r.URL.RawQuery, "tty") +
			strings.Count(r.URL.RawQuery, "ports") {
			select {
			case s := <-arrived:
				streams[s.Headers().Get("streamType")] = s
			case <-conn.CloseChan():
			}
		}
		talk(streams, conn)
	}
}

const (
	translated = execPath + "&stdin=1&stdout=1"
	portsPath  = "/clusters/m/api/v1/namespaces/a/pods/p/portforward?ports=80"
)

func TestTranslation(t *testing.T) {
	success := `{"status":"Success"}`
	// For the session in which stdin is not read: the bytes that the client sent, and a signal that it has read the end.
	var sent atomic.Int64
	ended := make(chan struct{})
	tests := []struct {
		name       string
		talk       func(t *testing.T, streams map[string]httpstream.Stream, conn httpstream.Connection)
		client     func(t *testing.T, conn *websocket.Conn)
		wantOut    string
		wantCode   int
		wantStatus bool
		ended      chan struct{} // optional; receives a signal when the client has read the end
	}{
		{
			name: "echo to the end of stdin",
			talk: func(_ *testing.T, s map[string]httpstream.Stream, _ httpstream.Connection) {
				_, _ = io.Copy(s["stdout"], s["stdin"])
				_, _ = io.WriteString(s["error"], success)
			},
			client: func(_ *testing.T, conn *websocket.Conn) {
				_ = conn.WriteMessage(websocket.BinaryMessage, []byte("\x00hello"))
				_ = conn.WriteMessage(websocket.BinaryMessage, []byte{255, 0})
			},
			wantOut: "hello", wantCode: websocket.CloseNormalClosure, wantStatus: true,
		},
		{
			name: "the member breaks off",
			talk: func(_ *testing.T, s map[string]httpstream.Stream, _ httpstream.Connection) {
				_, _ = io.WriteString(s["stdout"], "half")
			},
			client:  func(*testing.T, *websocket.Conn) {},
			wantOut: "half", wantCode: websocket.CloseInternalServerErr,
		},
		{
			name: "the member does not read stdin",
			talk: func(_ *testing.T, s map[string]httpstream.Stream, _ httpstream.Connection) {
				hasStalled(&sent, math.MaxInt64) // unread input fills all buffers
				_, _ = io.WriteString(s["error"], success)
				_ = s["stdout"].Close()
				_ = s["error"].Close()
				<-ended
			},
			client: func(_ *testing.T, conn *websocket.Conn) {
				sent.Store(0)
				go func() {
					for conn.WriteMessage(websocket.BinaryMessage, bytes.Repeat([]byte{0}, 100_000)) == nil {
						sent.Add(100_000)
					}
				}()
			},
			ended:    ended,
			wantCode: websocket.CloseNormalClosure, wantStatus: true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var upgrades atomic.Int64
			hs := serve(t, Limits{PingPeriod: 20 * time.Millisecond}, Drain{},
				spdyMember(&upgrades, func(s map[string]httpstream.Stream, conn httpstream.Connection) {
					tt.talk(t, s, conn)
				}))
			for range 2 {
				conn := hs.mustDial("alice", translated, "v5.channel.k8s.io")
				tt.client(t, conn)
				stdout, status, code := readSession(t, conn)
				if tt.ended != nil {
					tt.ended <- struct{}{}
				}
				if stdout != tt.wantOut || code != tt.wantCode || (status == success) != tt.wantStatus {
					t.Errorf("%q, %q, code %d", stdout, status, code)
				}
			}
			if upgrades.Load() != 1 {
				t.Errorf("the member got %d requests for a websocket, want 1", upgrades.Load())
			}
		})
	}
}

func TestTranslationRefused(t *testing.T) {
	var upgrades atomic.Int64
	hs := serve(t, Limits{}, Drain{}, spdyMember(&upgrades, nil))
	for path, want := range map[string]string{
		"/m/api/v1/namespaces/a/pods/nosuch/exec?stdout=1":  `404 {"kind":"Status","code":404}`,
		"/m/api/v1/namespaces/a/pods/neither/exec?stdout=1": "400 what is a websocket?",
	} {
		_, resp, err := hs.dial("alice", path, nil, "v5.channel.k8s.io")
		if err == nil {
			t.Fatal("a session")
		}
		body, _ := io.ReadAll(resp.Body)
		if got := resp.Status[:4] + strings.TrimSpace(string(body)); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// TestTranslationEnds: the session ends with a client that is cut within a frame, and a drain sends a close message.
func TestTranslationEnds(t *testing.T) {
	for protocol, path := range map[string]string{
		"v5.channel.k8s.io": translated,
		"v4.channel.k8s.io": portsPath,
	} {
		t.Run(protocol, func(t *testing.T) {
			var upgrades atomic.Int64
			begun, ended := make(chan struct{}, 2), make(chan struct{}, 2)
			hs := serve(t, Limits{}, Drain{},
				spdyMember(&upgrades, func(_ map[string]httpstream.Stream, conn httpstream.Connection) {
					begun <- struct{}{}
					<-conn.CloseChan()
					ended <- struct{}{}
				}))
			conn := hs.mustDial("alice", path, protocol)
			_, _ = conn.NetConn().Write([]byte{0x82, 0x80 | 100, 1, 2, 3, 4, 'h', 'a', 'l', 'f'})
			_ = conn.NetConn().Close()
			<-begun
			<-ended
			conn = hs.mustDial("alice", path, protocol)
			<-begun
			// Separate from the bridge's drain, whose deadlines could pass on a slow machine.
			over, end := context.WithCancel(t.Context())
			end()
			drained := make(chan struct{})
			go func() { hs.bridge.streams.Drain(t.Context(), over); close(drained) }()
			defer func() { <-drained }()
			for {
				_, _, err := conn.ReadMessage()
				if err == nil { // the session has started
					continue
				}
				if !websocket.IsCloseError(err, websocket.CloseGoingAway) {
					t.Errorf("%v", err)
				}
				break
			}
			<-ended
		})
	}
}

// TestOversizedMessages: a client must get the right close code even if it sends more. The member's connection ends,
// too.
func TestOversizedMessages(t *testing.T) {
	for protocol, path := range map[string]string{
		"v5.channel.k8s.io": translated, "v4.channel.k8s.io": portsPath, "SPDY/3.1+portforward.k8s.io": portsPath,
	} {
		t.Run(protocol, func(t *testing.T) {
			var upgrades atomic.Int64
			ended := make(chan struct{}, 2)
			spdy := spdyMember(&upgrades, func(_ map[string]httpstream.Stream, conn httpstream.Connection) {
				<-conn.CloseChan()
				ended <- struct{}{}
			})
			hs := serve(t, Limits{MaxMessage: 10_000}, Drain{}, func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(protocol, "SPDY") && r.Header.Get("Upgrade") != "websocket" {
					stays(w, r) // a websocket
					ended <- struct{}{}
					return
				}
				spdy(w, r)
			})
			for _, size := range []int{10_001, 1 << 20} { // in several frames of 4 KB, with and without more to come
				conn := hs.mustDial("alice", path, protocol)
				go func() { _ = conn.WriteMessage(websocket.BinaryMessage, make([]byte, size)) }()
				var err error
				for err == nil { // the session has started
					_, _, err = conn.ReadMessage()
				}
				if !websocket.IsCloseError(err, websocket.CloseMessageTooBig) {
					t.Errorf("%d bytes: %v", size, err)
				}
				_ = conn.Close()
				<-ended
			}
		})
	}
}

// TestPortForwardBreaksOff: a stream that is cut within a frame must not look complete.
func TestPortForwardBreaksOff(t *testing.T) {
	var upgrades atomic.Int64
	raw := make(chan net.Conn, 1)
	talk := spdyMember(&upgrades, func(s map[string]httpstream.Stream, conn httpstream.Connection) {
		_, _ = io.WriteString(s["data"], "half")
		member := <-raw
		_, _ = member.Write([]byte{0, 0, 0, byte(s["data"].Identifier()), 0, 0, 0, 100, 'l', 'o', 's', 't'})
		_ = member.(*tls.Conn).NetConn().Close()
		<-conn.CloseChan()
	})
	hs := serve(t, Limits{}, Drain{}, func(w http.ResponseWriter, r *http.Request) { talk(hijacked{w, raw}, r) })
	conn := hs.mustDial("alice", portsPath, "v4.channel.k8s.io")
	var got string
	for {
		_, m, err := conn.ReadMessage()
		if err != nil {
			if !websocket.IsCloseError(err, websocket.CloseInternalServerErr) || got != "\x00P\x00\x01P\x00\x00half" {
				t.Errorf("%q, %v", got, err)
			}
			return
		}
		got += string(m)
	}
}

type hijacked struct {
	http.ResponseWriter
	conn chan net.Conn
}

func (h hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err == nil {
		h.conn <- conn
	}
	return conn, rw, err
}

// TestTranslationAfterRotation: a member with only SPDY and a new credential must stay reachable, even if only
// translated requests could renew the credential.
func TestTranslationAfterRotation(t *testing.T) {
	var upgrades atomic.Int64
	var known atomic.Value
	known.Store("members-token")
	member := spdyMember(&upgrades, func(s map[string]httpstream.Stream, _ httpstream.Connection) {
		_, _ = io.WriteString(s["error"], `{"status":"Success"}`)
	})
	hs := serveFresh(t, Limits{}, Drain{}, cluster.Freshness{Object: time.Hour, Secret: time.Hour},
		func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+known.Load().(string) {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			member(w, r)
		})
	rotate := func(from, to string) {
		t.Helper()
		sec, err := hs.Secrets.Get(t.Context(), "clusters/m")
		if err != nil {
			t.Fatal(err)
		}
		hs.RotateSecret("m", bytes.ReplaceAll(sec.Value.Reveal(), []byte(from), []byte(to)))
		known.Store(to)
		hs.Clock.Advance(time.Minute) // since the last renewal
	}
	session := func(what string, wantAsked int64) {
		t.Helper()
		conn := hs.mustDial("alice", translated, "v5.channel.k8s.io")
		defer func() { _ = conn.Close() }()
		var closed *websocket.CloseError
		for {
			if _, _, err := conn.ReadMessage(); errors.As(err, &closed) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		if closed.Code != websocket.CloseNormalClosure || upgrades.Load() != wantAsked {
			t.Errorf("%s: %v, and %d websockets asked for, want %d", what, closed, upgrades.Load(), wantAsked)
		}
	}
	_, _ = hs.get("alice", "/clusters/m/version") // reads the credential
	rotate("members-token", "second-token")
	session("rotated", 1)
	session("known to need translation", 1)
	rotate("second-token", "third-token")
	session("rotated, and known to need translation", 1)
	known.Store("nobody's")
	_, resp, err := hs.dial("alice", translated, nil, "v5.channel.k8s.io")
	if err == nil || resp == nil {
		t.Fatalf("%v, want a refusal", err)
	}
	gatewaytest.WantStatus(t, resp, http.StatusBadGateway, "credential_refused", "register it again")
}

// TestRememberedTranslation: a wrong fact about a member is forgotten at once, and only a successful session adds one.
func TestRememberedTranslation(t *testing.T) {
	var upgrades, switched atomic.Int64
	old := spdyMember(&upgrades, func(s map[string]httpstream.Stream, _ httpstream.Connection) {
		if s["error"] != nil { // otherwise there was no session
			switched.Add(1)
			_, _ = io.WriteString(s["error"], `{"status":"Success"}`)
		}
	})
	renewed := talking(t, func(conn *websocket.Conn) {
		_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{3}, `{"status":"Success"}`...))
		_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""),
			deadlineSoon())
		_, _, _ = conn.ReadMessage()
	})
	var takesWebsockets, takesSPDY atomic.Bool
	hs := serve(t, Limits{}, Drain{}, func(w http.ResponseWriter, r *http.Request) {
		webSocket := strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
		switch {
		case webSocket && takesWebsockets.Load() && r.Header.Get("Sec-Websocket-Version") == "13":
			renewed(w, r)
		case !webSocket && !takesSPDY.Load():
			http.Error(w, "what is SPDY?", http.StatusBadRequest)
		default:
			old(w, r)
		}
	})
	session := func(what string, wantAsked, wantSwitched int64) {
		t.Helper()
		conn := hs.mustDial("alice", translated, "v5.channel.k8s.io")
		defer func() { _ = conn.Close() }()
		var err error
		for err == nil {
			_, _, err = conn.ReadMessage()
		}
		if !websocket.IsCloseError(err, websocket.CloseNormalClosure) || upgrades.Load() != wantAsked ||
			switched.Load() != wantSwitched {
			t.Errorf("%s: %v; %d websockets refused, want %d, and %d translated, want %d", what, err, upgrades.Load(), wantAsked,
				switched.Load(), wantSwitched)
		}
	}
	takesWebsockets.Store(true)
	takesSPDY.Store(true)
	resp, _ := hs.get("alice", translated, "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 12",
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
		"Sec-WebSocket-Protocol: v5.channel.k8s.io")
	gatewaytest.WantStatus(t, resp, http.StatusBadRequest, "bad_request", "handshake")
	session("after a handshake of another version", 1, 0)

	takesWebsockets.Store(false)
	session("a member that takes SPDY only", 2, 1)
	session("known", 2, 2)
	takesWebsockets.Store(true)
	takesSPDY.Store(false)
	session("a member that takes websockets only, by now", 2, 2)
	takesSPDY.Store(true)
	session("known no more", 2, 2)
}

// TestTranslatedPorts: one session can forward a port twice, as with kubelets, but the number of streams is limited.
func TestTranslatedPorts(t *testing.T) {
	hs := serve(t, Limits{}, Drain{}, framing(32, func(f *spdyframes.Framer, _ spdyframes.StreamId) {
		for {
			if _, err := f.ReadFrame(); err != nil {
				return
			}
		}
	}))
	conn := hs.mustDial("alice", portsPath+strings.Repeat("&ports=80", 15), "v4.channel.k8s.io")
	for ch := range byte(32) {
		if _, m, err := conn.ReadMessage(); err != nil || string(m) != string([]byte{ch, 80, 0}) {
			t.Fatalf("channel %d: %q, %v", ch, m, err)
		}
	}
	_, resp, err := hs.dial("alice", portsPath+strings.Repeat("&ports=80", 16), nil, "v4.channel.k8s.io")
	if err == nil || resp.StatusCode != http.StatusBadRequest {
		t.Errorf("17 ports: %v", err)
	}
}

// TestStrangeFrames: irrelevant SPDY frames are ignored. A ping is answered even if the client does not read.
func TestStrangeFrames(t *testing.T) {
	hs := serve(t, Limits{}, Drain{}, framing(3, func(f *spdyframes.Framer, stdout spdyframes.StreamId) {
		for _, frame := range []spdyframes.Frame{
			&spdyframes.SynStreamFrame{StreamId: 2, Headers: http.Header{"A": {"b"}}},
			&spdyframes.DataFrame{StreamId: 2, Data: []byte("of a stream that does not exist")},
			&spdyframes.DataFrame{StreamId: 99, Data: []byte("nor this")},
			&spdyframes.HeadersFrame{StreamId: stdout, Headers: http.Header{"A": {strings.Repeat(rand.Text(), 5000)}}},
			&spdyframes.SettingsFrame{FlagIdValues: []spdyframes.SettingsFlagIdValue{{Id: 1, Value: 1}}},
			&spdyframes.WindowUpdateFrame{StreamId: stdout, DeltaWindowSize: 1},
			&spdyframes.RstStreamFrame{StreamId: 99, Status: spdyframes.Cancel},
			&spdyframes.PingFrame{Id: 2},
			&spdyframes.DataFrame{StreamId: stdout, Data: []byte("here")},
		} {
			if err := f.WriteFrame(frame); err != nil {
				t.Error(err)
			}
		}
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				t.Error(err)
				return
			}
			if pong, ok := frame.(*spdyframes.PingFrame); ok {
				if pong.Id != 2 {
					t.Errorf("pong %d", pong.Id)
				}
				break
			}
		}
		_ = f.WriteFrame(&spdyframes.DataFrame{StreamId: 1, Data: []byte(`{"status":"Success"}`)})
		for _, id := range []spdyframes.StreamId{1, stdout} {
			_ = f.WriteFrame(&spdyframes.DataFrame{StreamId: id, Flags: spdyframes.DataFlagFin})
		}
		_, _ = f.ReadFrame() // the end
	}))
	conn := hs.mustDial("alice", translated, "v5.channel.k8s.io")
	var got string
	for {
		_, m, err := conn.ReadMessage()
		if err != nil {
			if !websocket.IsCloseError(err, websocket.CloseNormalClosure) || got != "\x01\x01here\x03{\"status\":\"Success\"}" {
				t.Errorf("%q, %v", got, err)
			}
			return
		}
		got += string(m)
	}
}

// TestTranslatedSessionProvesItsToken: otherwise the session would occupy a slot of unknown tokens until its end.
func TestTranslatedSessionProvesItsToken(t *testing.T) {
	var asked atomic.Int64
	began := make(chan struct{}, 2)
	hs := serve(t, Limits{
		MaxUnverified: 8, Unidentified: Unidentified{MaxUnknown: 1, Source: limits.ForwardedSource},
	}, Drain{}, stays)
	hs.addMember("open", spdyMember(&asked, func(_ map[string]httpstream.Stream, conn httpstream.Connection) {
		began <- struct{}{}
		<-conn.CloseChan()
	}), func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Passthrough })
	header := http.Header{"Authorization": {"Bearer good"}, "X-Forwarded-For": {"192.0.2.1"}}
	const path = "/clusters/open/api/v1/namespaces/a/pods/p/exec?command=sh&stdin=1&stdout=1"
	for n := range 2 {
		if _, resp, err := hs.dial("", path, header.Clone(), "v5.channel.k8s.io"); err != nil {
			t.Fatalf("session %d: %v, %+v", n, err, resp)
		}
		<-began
	}
}
