package bridge

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/websocket-bridge/channels"
	"github.com/clusterpass/clusterpass/websocket-bridge/text"
)

const (
	success     = `{"metadata":{},"status":"Success"}`
	typedInput  = "echo hällo\xff\n"
	shownOutput = "h\u00e4llo \xff\r\n"
	shownError  = "warning"
)

// answerInput is an API server that reads a size and typedInput from a terminal, and then answers.
func answerInput(t *testing.T, protocols ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		u := websocket.Upgrader{Subprotocols: protocols, CheckOrigin: func(*http.Request) bool { return true }}
		conn, err := u.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		isBase64 := strings.Contains(conn.Subprotocol(), "base64")
		received := map[byte]string{}
		for len(received[0]) < len(typedInput) || received[4] == "" {
			_, m, err := conn.ReadMessage()
			if err != nil {
				return
			}
			channel, content := m[0], m[1:]
			if isBase64 {
				channel -= '0'
				content, _ = base64.StdEncoding.DecodeString(string(content))
			}
			received[channel] += string(content)
		}
		for _, m := range []string{
			"\x01", "\x01" + shownOutput[:3], "\x01" + shownOutput[3:], "\x02" + shownError, "\x03" + success,
		} {
			if isBase64 {
				m = string('0'+m[0]) + base64.StdEncoding.EncodeToString([]byte(m[1:]))
			}
			_ = conn.WriteMessage(websocket.BinaryMessage, []byte(m))
		}
		_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""),
			deadlineSoon())
		_, _, _ = conn.ReadMessage()
	}
}

func answerInputBySPDY(_ *testing.T) http.HandlerFunc {
	var upgrades atomic.Int64
	return spdyMember(&upgrades, func(s map[string]httpstream.Stream, _ httpstream.Connection) {
		_, _ = io.ReadFull(s["stdin"], make([]byte, len(typedInput)))
		_, _ = io.WriteString(s["stdout"], shownOutput)
		if s["stderr"] != nil {
			_, _ = io.WriteString(s["stderr"], shownError)
		}
		_, _ = io.WriteString(s["error"], success)
	})
}

// TestRecordedDialects fails if a recording lacks what a client of some dialect sent or saw.
func TestRecordedDialects(t *testing.T) {
	send := func(conn *websocket.Conn, isBase64 bool) {
		for _, m := range []string{"\x04" + `{"Width":100,"Height":30}`, "\x00" + typedInput[:4], "\x00" + typedInput[4:]} {
			if isBase64 {
				m = string('0'+m[0]) + base64.StdEncoding.EncodeToString([]byte(m[1:]))
			}
			_ = conn.WriteMessage(websocket.BinaryMessage, []byte(m))
		}
	}
	exit := success
	all := func(client, protocol string, member http.HandlerFunc) {
		t.Run(client, func(t *testing.T) {
			rb := serveRecorded(t, required, Limits{}, member)
			conn := rb.mustDial("alice", recordedPath+"&stderr=1", protocol)
			if protocol == text.Protocol {
				_ = conn.WriteMessage(websocket.TextMessage, []byte(`{"resize":{"width":100,"height":30}}`))
				_ = conn.WriteMessage(websocket.TextMessage, []byte(`{"stdin":"echo h\u00e4llo?\n"}`))
			} else {
				send(conn, strings.Contains(protocol, "base64"))
			}
			var err error
			for err == nil {
				_, _, err = conn.ReadMessage()
			}
			if !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
				t.Errorf("%v", err)
			}
			_ = conn.Close()
			got := rb.onlyRecording()
			want := fmt.Sprintf("out %q, err %q, in %q, size 100x30 , exit %s", shownOutput, shownError, typedInput, exit)
			if protocol == text.Protocol {
				want = strings.Replace(want, `\xff\n`, `?\n`, 1) // text cannot have other bytes
			}
			if got.String() != want || got.isCut {
				t.Errorf("recorded %s\nwant %s", got, want)
			}
			checkHeader(t, rb, got)
		})
	}
	native := answerInput(t, channels.Protocols...)
	all("websocket", "v5.channel.k8s.io", native)
	all("websocket v4", "v4.channel.k8s.io", native)
	all("old websocket", "channel.k8s.io", native)
	all("websocket in base64", "v4.base64.channel.k8s.io", native)
	all("old websocket in base64", "base64.channel.k8s.io", native)
	all("text", text.Protocol, native)
	all("websocket translated to SPDY", "v4.channel.k8s.io", answerInputBySPDY(t))
	all("text translated to SPDY", text.Protocol, answerInputBySPDY(t))
	exit = "" // before v4, success has no Status
	all("old websocket in base64 translated to SPDY", "base64.channel.k8s.io", answerInputBySPDY(t))
}

// dialWithInput opens a session in v4.channel.k8s.io, and sends the input "ls" together with the handshake.
func (rb *recordedBridge) dialWithInput() (*http.Response, *tls.Conn, *bufio.Reader) {
	rb.t.Helper()
	const frame = "\x82\x83\x00\x00\x00\x00\x00ls" // masked by zeros: "ls" on channel 0
	return gatewaytest.SendRaw(rb.t, rb.addr, rb.tls("alice"), request(recordedPath,
		"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol: v4.channel.k8s.io")+frame)
}

// TestEarlyInputIsRefused fails if input that a client sends together with its handshake reaches the command. The
// recorder would not see it.
func TestEarlyInputIsRefused(t *testing.T) {
	var upgrades, typed atomic.Int64
	rb := serveRecorded(t, required, Limits{}, spdyMember(&upgrades,
		func(s map[string]httpstream.Stream, _ httpstream.Connection) {
			n, _ := io.ReadFull(s["stdin"], make([]byte, 1))
			typed.Add(int64(n))
			_, _ = io.WriteString(s["error"], success)
		}))
	resp, _, _ := rb.dialWithInput()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "wait for the response") {
		t.Errorf("%s: %s", resp.Status, body)
	}
	if r := rb.onlyRecording(); typed.Load() > 0 {
		t.Errorf("the command got %d bytes; recorded %s", typed.Load(), r)
	}
}

// TestEarlyInputIsRecorded fails if input that a client sends together with its handshake reaches a member of the same
// dialect, but not the recording.
func TestEarlyInputIsRecorded(t *testing.T) {
	rb := serveRecorded(t, required, Limits{}, talking(t, printing))
	resp, conn, r := rb.dialWithInput()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp.Status)
	}
	printed := make([]byte, len("\x82\x03\x01ls"))
	if _, err := io.ReadFull(r, printed); err != nil || string(printed) != "\x82\x03\x01ls" {
		t.Errorf("the client got %q, %v", printed, err)
	}
	_ = conn.Close()
	if got := rb.onlyRecording(); got.events[recording.Input] != "ls" || got.events[recording.Output] != "ls" {
		t.Errorf("recorded %s", got)
	}
}

// checkHeader fails if a reader of a recording could not find out who opened the session.
func checkHeader(t *testing.T, rb *recordedBridge, got recorded) {
	t.Helper()
	i := got.Info
	if i.User != "alice" || i.Cluster != "m" || i.Namespace != "a" || i.Pod != "p" || i.Container != "c" ||
		i.Kind != recording.Exec || strings.Join(i.Command, " ") != "sh -l" || !i.HasInput || i.TTY || !i.RecordsInput {
		t.Errorf("header %+v", i)
	}
	for _, e := range rb.audit.Events(t, 2) {
		if e.Annotations[audit.RecordingAnnotation] != i.ID || e.AuditID != i.RequestID {
			t.Errorf("%s has %v, and the recording %s of %s", e.Stage, e.Annotations, i.ID, i.RequestID)
		}
	}
}

// TestRecordedPortForward: of a port-forward, only the numbers of bytes are recorded.
func TestRecordedPortForward(t *testing.T) {
	rb := serveRecorded(t, required, Limits{}, talking(t, echoing))
	conn := rb.mustDial("alice", portsPath, "v4.channel.k8s.io")
	_ = conn.WriteMessage(websocket.BinaryMessage, []byte("\x00secret"))
	if _, _, err := conn.ReadMessage(); err != nil {
		t.Error(err)
	}
	_ = conn.NetConn().Close()
	r := rb.onlyRecording()
	// A masked frame of 7 bytes has 13, and the echo 9.
	if r.Kind != recording.PortForward || r.events[recording.Transferred] != "in=13 out=9" || r.isCut ||
		len(r.events) != 1 {
		t.Errorf("recorded %v of %+v", r.events, r.Info)
	}
	t.Run("a failing recorder", func(t *testing.T) {
		rb := serveRecorded(t, required, Limits{}, talking(t, echoing))
		conn := rb.mustDial("alice", portsPath, "v4.channel.k8s.io")
		rb.store.isBroken.Store(true)
		_ = conn.Close()
		if a := rb.audit.Events(t, 2)[1].Annotations; a[audit.FailureAnnotation] != "recording_failed" {
			t.Errorf("audit %v", a)
		}
	})
}

// TestUndecodableSessions: a client must not choose a protocol that the recorder does not know.
func TestUndecodableSessions(t *testing.T) {
	offered := make(chan http.Header, 2)
	rb := serveRecorded(t, required, Limits{}, func(w http.ResponseWriter, r *http.Request) {
		offered <- r.Header.Clone()
		talking(t, echoing)(w, r)
	})
	_, resp, err := rb.dial("alice", recordedPath, nil, "v9.channel.k8s.io")
	if err == nil {
		t.Fatal("a session")
	}
	gatewaytest.WantStatus(t, resp, http.StatusBadRequest, "bad_request", "offer one of v5.channel.k8s.io")
	d := websocket.Dialer{
		TLSClientConfig: rb.tls("alice"), Subprotocols: []string{"v9.channel.k8s.io", "v4.channel.k8s.io"},
		EnableCompression: true,
	}
	conn, _, err := d.DialContext(t.Context(), "wss://"+rb.addr+recordedPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if h := <-offered; h.Get("Sec-Websocket-Protocol") != "v4.channel.k8s.io" || h.Get("Sec-Websocket-Extensions") != "" {
		t.Errorf("the member got %v", h)
	}
}

// TestUnknownProtocolByBestEffort: such a policy must not refuse what the recorder does not know, but must mark it.
func TestUnknownProtocolByBestEffort(t *testing.T) {
	offered := make(chan http.Header, 1)
	rb := serveRecorded(t, bestEffort, Limits{}, func(w http.ResponseWriter, r *http.Request) {
		offered <- r.Header.Clone()
		u := websocket.Upgrader{Subprotocols: []string{"v9.channel.k8s.io"}}
		conn, err := u.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		echoing(conn)
		_ = conn.Close()
	})
	conn := rb.mustDial("alice", recordedPath, "v9.channel.k8s.io")
	_ = conn.WriteMessage(websocket.BinaryMessage, []byte("anything"))
	if _, m, err := conn.ReadMessage(); err != nil || string(m) != "anything" {
		t.Errorf("%q, %v", m, err)
	}
	_ = conn.Close()
	if got := (<-offered).Get("Sec-Websocket-Protocol"); got != "v9.channel.k8s.io" {
		t.Errorf("the member got the protocol %q", got)
	}
	if r := rb.onlyRecording(); !r.isCut {
		t.Errorf("the recording is complete: %s", r)
	}
	if a := rb.audit.Events(t, 2)[1].Annotations; a[audit.UnrecordedAnnotation] == "" {
		t.Errorf("audit %v", a)
	}
}

// TestRecordedBodies: a member that answers with a body instead of a session would pass the recorder.
func TestRecordedBodies(t *testing.T) {
	member := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-From-Member", "1")
		w.Header().Set("Content-Type", "text/secret")
		_, _ = io.WriteString(w, "a shell of its own")
	}
	upgrade := []string{
		"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol: v5.channel.k8s.io",
	}
	for name, header := range map[string][]string{"upgrade": upgrade, "no upgrade": nil} {
		t.Run(name, func(t *testing.T) {
			get := func(rb *recordedBridge) (*http.Response, string) {
				resp, _ := rb.get("alice", recordedPath, header...)
				body, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Error(err)
				}
				return resp, string(body)
			}
			rb := serveRecorded(t, required, Limits{}, member)
			resp, body := get(rb)
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("X-From-Member") != "" ||
				resp.Header.Get("Content-Type") == "text/secret" || strings.Contains(body, "a shell") {
				t.Errorf("%s %v: %s", resp.Status, resp.Header, body)
			}
			if r := rb.onlyRecording(); !r.isCut {
				t.Errorf("the recording is complete: %s", r)
			}
			rb = serveRecorded(t, bestEffort, Limits{}, member)
			resp, body = get(rb)
			if resp.StatusCode != http.StatusOK || resp.Header.Get("X-From-Member") == "" || body != "a shell of its own" {
				t.Errorf("best effort: %s: %s", resp.Status, body)
			}
			if r := rb.onlyRecording(); !r.isCut {
				t.Errorf("best effort: the recording is complete: %s", r)
			}
		})
	}
}

// TestEndlessFrameIsNotRecordedForEver: a member that sends one frame without an end must not use it for output that
// nothing records.
func TestEndlessFrameIsNotRecordedForEver(t *testing.T) {
	const before, after = 4 << 10, 4 << 20
	rb := serveRecorded(t, required, Limits{}, func(w http.ResponseWriter, r *http.Request) {
		u := websocket.Upgrader{Subprotocols: []string{"base64.channel.k8s.io"}}
		conn, err := u.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		raw := conn.NetConn()
		_, _ = raw.Write([]byte("\x81\x7f\x00\x00\x00\x00\x40\x00\x00\x00" + "1" + strings.Repeat("A", before)))
		_, _, _ = conn.ReadMessage()                       // the client has received it
		_, _ = raw.Write(bytes.Repeat([]byte("!"), after)) // is no base64
		_, _, _ = conn.ReadMessage()
	})
	conn := rb.mustDial("alice", recordedPath, "base64.channel.k8s.io")
	_, m, err := conn.NextReader()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, m, 1+before); err != nil {
		t.Fatal(err)
	}
	_ = conn.WriteMessage(websocket.TextMessage, []byte("0eA=="))
	n, err := io.Copy(io.Discard, m)
	if err == nil || n > 64<<10 {
		t.Errorf("%d bytes, %v", n, err)
	}
	_ = conn.Close()
	if r := rb.onlyRecording(); !r.isCut {
		t.Errorf("the recording is complete: %s", r)
	}
}

// TestFragmentsForTheMember: kube-apiserver reads each frame as a message, so what a client types could be hidden in
// the second frame of a message. A recording that stops there must verify as cut, whatever the level of the policy.
func TestFragmentsForTheMember(t *testing.T) {
	for name, tt := range map[string]struct {
		rule rules
		want string
	}{
		"required":    {required, "required recording failed"},
		"best effort": {bestEffort, strings.Repeat("\x00", 8<<10)},
	} {
		t.Run(name, func(t *testing.T) {
			rb := serveRecorded(t, tt.rule, Limits{}, talking(t, echoing))
			conn := rb.mustDial("alice", recordedPath+"&stderr=1", "v5.channel.k8s.io")
			w, err := conn.NextWriter(websocket.BinaryMessage)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = w.Write(bytes.Repeat([]byte{0}, 8<<10)) // more than the buffer of the client
			_ = w.Close()
			_, m, err := conn.ReadMessage()
			if err != nil || !strings.Contains(string(m), tt.want) {
				t.Errorf("%.200q, %v", m, err)
			}
			_ = conn.Close()
			if r := rb.onlyRecording(); !r.isCut {
				t.Errorf("the recording is complete: %s", r)
			}
			if a := rb.audit.Events(t, 2)[1].Annotations; a[audit.UnrecordedAnnotation] == "" {
				t.Errorf("audit %v", a)
			}
		})
	}
}

// TestLongTextIsWhole: kube-apiserver would lose a part of what a client of the text dialect types, if it arrived in
// several frames of one message. The recorder refuses such messages.
func TestLongTextIsWhole(t *testing.T) {
	rb := serveRecorded(t, required, Limits{}, talking(t, func(conn *websocket.Conn) {
		for {
			if _, _, err := conn.ReadMessage(); err != nil {
				return
			}
			_ = conn.WriteMessage(websocket.BinaryMessage, []byte("\x01."))
		}
	}))
	conn := rb.mustDial("alice", recordedPath, text.Protocol)
	typed := strings.Repeat("x", 50_000) + "end"
	if err := conn.WriteJSON(map[string]string{"stdin": typed}); err != nil {
		t.Fatal(err)
	}
	for range len(typed)/(4<<10) + 1 {
		if _, m, err := conn.ReadMessage(); err != nil || string(m) != `{"stdout":"."}`+"\n" {
			t.Fatalf("%q, %v", m, err)
		}
	}
	_ = conn.Close()
	if r := rb.onlyRecording(); r.events[recording.Input] != typed || r.isCut {
		t.Errorf("recorded %d of %d bytes", len(r.events[recording.Input]), len(typed))
	}
}
