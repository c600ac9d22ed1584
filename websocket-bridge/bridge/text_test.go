package bridge

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorilla/websocket"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/websocket-bridge/text"
)

const bearer = "base64url.bearer.authorization.k8s.io.c2VjcmV0"

func texts(conn *websocket.Conn) (messages []string, end *websocket.CloseError) {
	for {
		kind, message, err := conn.ReadMessage()
		if errors.As(err, &end) {
			return messages, end
		}
		if err != nil || kind != websocket.TextMessage {
			return messages, &websocket.CloseError{Code: -1, Text: fmt.Sprint(kind, err)}
		}
		messages = append(messages, string(message))
	}
}

// TestWebSocketsHaveTheGatewaysHeaders: the response that opens a websocket must have the id of the audit event, as any
// other, and no header twice. The header of the sandbox stands for the id here, because this gateway has no audit log.
func TestWebSocketsHaveTheGatewaysHeaders(t *testing.T) {
	var asked atomic.Int64
	hs := serve(t, Limits{}, Drain{}, stays)
	hs.addMember("spdy", spdyMember(&asked, func(_ map[string]httpstream.Stream, conn httpstream.Connection) {
		<-conn.CloseChan()
	}))
	const exec = "/clusters/spdy/api/v1/namespaces/a/pods/p/exec?command=sh&stdout=1"
	for _, tt := range []struct{ path, protocol string }{
		{exec, "v5.channel.k8s.io"}, {exec, text.Protocol}, {watchPath, text.Protocol},
		{"/clusters/m/api/v1/namespaces/a/pods/p/exec?command=sh&stdout=1", "v5.channel.k8s.io"},
	} {
		_, resp, err := hs.dial("alice", tt.path, nil, tt.protocol)
		if resp == nil || resp.Header.Get("Content-Security-Policy") != "sandbox" ||
			len(resp.Header["Upgrade"]) != 1 || len(resp.Header["Connection"]) != 1 {
			t.Errorf("%s by %s: %+v, %v", tt.path, tt.protocol, resp, err)
		}
	}
}

// TestTextLines: logs and watches arrive line by line, and errors look like those of other requests.
func TestTextLines(t *testing.T) {
	seen := make(chan http.Header, 10)
	hs := serve(t, Limits{}, Drain{}, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Clone()
		switch {
		case strings.Contains(r.URL.Path, "nosuch"):
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","code":404}`)
		case strings.Contains(r.URL.Path, "broken"):
			_, _ = io.WriteString(w, "one\ntw")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		default:
			for _, piece := range []string{"one\ntw", "o\n\nthr\xe2\x82", "\xac\xffee"} {
				_, _ = io.WriteString(w, piece)
				_ = http.NewResponseController(w).Flush()
			}
		}
	})
	tests := []struct {
		path, want string
		code       int
	}{
		{logPath, "[one two  thr€\uFFFDee]", websocket.CloseNormalClosure},
		{watchPath, "[one two  thr€\uFFFDee]", websocket.CloseNormalClosure},
		{
			"/apis/cluster.karmada.io/v1alpha1/clusters/m/proxy/api/v1/watch/pods", "[one two  thr€\uFFFDee]",
			websocket.CloseNormalClosure,
		},
		{"/m/api/v1/namespaces/a/pods/broken/log", "[one tw]", websocket.CloseInternalServerErr},
	}
	for _, tt := range tests {
		conn := hs.mustDial("alice", tt.path, bearer, text.Protocol)
		if conn.Subprotocol() != text.Protocol {
			t.Errorf("%s: protocol %q", tt.path, conn.Subprotocol())
		}
		if got, end := texts(conn); fmt.Sprint(got) != tt.want || end.Code != tt.code {
			t.Errorf("%s: %q, %v; want %s and %d", tt.path, got, end, tt.want, tt.code)
		}
		h := <-seen
		for name := range h {
			if strings.HasPrefix(name, "Sec-Websocket") || name == "Upgrade" || name == "Origin" {
				t.Errorf("%s: %s arrived at the member", tt.path, name)
			}
		}
	}
	_, resp, err := hs.dial("alice", "/m/api/v1/namespaces/a/pods/nosuch/log", nil, text.Protocol)
	if err == nil || resp.StatusCode != 404 {
		t.Errorf("no such pod: %v", err)
	}
	_, resp, err = hs.dial("alice", "/m/api/v1/pods", nil, text.Protocol)
	if err == nil {
		t.Fatal("a list by websocket")
	}
	gatewaytest.WantStatus(t, resp, 400, "bad_request", "watch, log, exec and attach")
}

func TestTextExec(t *testing.T) {
	hs := serve(t, Limits{MaxMessage: 1000}, Drain{}, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "nosuch") {
			http.Error(w, "no", http.StatusNotFound)
			return
		}
		talking(t, func(conn *websocket.Conn) {
			_ = conn.WriteMessage(websocket.BinaryMessage, []byte{1})
			for {
				_, m, err := conn.ReadMessage()
				if err != nil {
					return
				}
				switch m[0] {
				case 0:
					for _, b := range m[1:] { // splits every character
						_ = conn.WriteMessage(websocket.BinaryMessage, []byte{1, b})
					}
				case 4:
					_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{2}, m[1:]...))
				case 255:
					_ = conn.WriteMessage(websocket.BinaryMessage, []byte{1, 0xe2}) // an incomplete character
					_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{3},
						`{"status":"Failure","message":"exit code `+
							`3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}`...))
					_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1000, ""), deadlineSoon())
					return
				}
			}
		})(w, r)
	})
	conn := hs.mustDial("alice", execPath, text.Protocol)
	for _, m := range []string{`{"stdin":"é€"}`, `{"resize":{"width":80,"height":24}}`, `{"eof":true}`} {
		if err := conn.WriteMessage(websocket.TextMessage, []byte(m)); err != nil {
			t.Fatal(err)
		}
	}
	got, end := texts(conn)
	for i := range got {
		got[i] = strings.TrimSpace(got[i])
	}
	want := []string{
		`{"stdout":"é"}`, `{"stdout":"€"}`, `{"stderr":"{\"Height\":24,\"Width\":80}"}`, `{"stdout":"�"}`,
		`{"exit":{"code":3,"message":"exit code 3"}}`,
	}
	if !reflect.DeepEqual(got, want) || end.Code != websocket.CloseNormalClosure {
		t.Errorf("%q, %v\nwant %q", got, end, want)
	}

	for message, code := range map[string]int{
		`{"stdn":"x"}`: websocket.CloseInvalidFramePayloadData,
		`nonsense`:     websocket.CloseInvalidFramePayloadData,
		`{"stdin":"` + strings.Repeat("x", 2000) + `"}`: websocket.CloseMessageTooBig,
	} {
		conn := hs.mustDial("alice", execPath, text.Protocol)
		_ = conn.WriteMessage(websocket.TextMessage, []byte(message))
		if _, end := texts(conn); end.Code != code {
			t.Errorf("%.20s: %v, want %d", message, end, code)
		}
	}
	_, resp, err := hs.dial("alice", "/m/api/v1/namespaces/a/pods/nosuch/exec", nil, text.Protocol)
	if err == nil || resp.StatusCode != 404 {
		t.Fatalf("no such pod: %v", err)
	}
	if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), "no") {
		t.Errorf("no such pod: %q, %v", body, err)
	}
}

func TestOrigins(t *testing.T) {
	hs := serve(t, Limits{}, Drain{}, talking(t, func(*websocket.Conn) {}))
	for origin, want := range map[string]int{
		"":                                 101,
		"https://" + hs.addr:               101,
		"http://" + hs.addr:                403,
		"https://console.example.com":      101,
		"http://console.example.com":       403,
		"https://console.example.com:8443": 403,
		"https://evil.example.com":         403,
		"null":                             403,
	} {
		for _, protocol := range []string{text.Protocol, "v5.channel.k8s.io"} {
			_, resp, _ := hs.dial("alice", execPath, http.Header{"Origin": {origin}}, protocol)
			if resp == nil || resp.StatusCode != want {
				t.Errorf("%s from %q: %v, want %d", protocol, origin, resp, want)
			}
		}
	}
}
