package streams_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/test/e2e"
)

// readChannels reads a websocket to its end. It returns the data of each channel and the closing error.
func readChannels(conn *websocket.Conn, decode func([]byte) []byte) (map[byte]string, string) {
	channels := map[byte]string{}
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			return channels, err.Error()
		}
		if len(message) > 0 {
			channels[message[0]] += string(decode(message[1:]))
		}
	}
}

func asIs(b []byte) []byte { return b }

func fromBase64(b []byte) []byte {
	out, err := base64.StdEncoding.DecodeString(string(b))
	if err != nil {
		return []byte(err.Error())
	}
	return out
}

// TestRawExec: client libraries must run commands by each websocket protocol.
func TestRawExec(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell")
	exec := func(command ...string) string {
		return "/api/v1/namespaces/" + ns + "/pods/shell/exec?" + url.Values{"command": command, "stdout": {"1"},
			"stderr": {"1"}, "stdin": {"1"}}.Encode()
	}
	for _, tt := range []struct {
		protocol string
		stdin    byte
		encode   func([]byte) string
		decode   func([]byte) []byte
	}{
		{"v5.channel.k8s.io", 0, func(b []byte) string { return string(b) }, asIs},
		{"v4.channel.k8s.io", 0, func(b []byte) string { return string(b) }, asIs},
		{"v4.base64.channel.k8s.io", '0', base64.StdEncoding.EncodeToString, fromBase64},
		{"channel.k8s.io", 0, func(b []byte) string { return string(b) }, asIs},
		{"base64.channel.k8s.io", '0', base64.StdEncoding.EncodeToString, fromBase64},
	} {
		t.Run(tt.protocol, func(t *testing.T) {
			var got [2]string
			for i, k := range []e2e.Kubectl{e2e.Direct("member1"), e2e.Through(t, "member1")} {
				conn := e2e.DialWebsocket(t, k, exec("sh", "-c", "read x; echo got $x; echo bad >&2; exit 3"), tt.protocol)
				if err := conn.WriteMessage(websocket.BinaryMessage,
					append([]byte{tt.stdin}, tt.encode([]byte("hello\n"))...)); err != nil {
					t.Fatal(err)
				}
				channels, end := readChannels(conn, tt.decode)
				got[i] = fmt.Sprint(conn.Subprotocol(), channels, end)
				if !strings.Contains(got[i], "got hello") {
					t.Errorf("%s", got[i])
				}
			}
			if got[0] != got[1] {
				t.Errorf("directly: %s\nthrough the gateway: %s", got[0], got[1])
			}
		})
	}
}

// TestRawWatchAndLogs: client libraries must follow watches and logs by websocket, also of a member without websockets.
func TestRawWatchAndLogs(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell", "finite-a")
	old, _ := registerOldMember(t, "old-raw")
	for _, k := range []e2e.Kubectl{e2e.Direct("member1"), e2e.Through(t, "member1"), old} {
		conn := e2e.DialWebsocket(t, k, "/api/v1/namespaces/"+ns+"/pods?watch=1&fieldSelector=metadata.name%3Dshell")
		_, message, err := conn.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		var event metav1.WatchEvent
		if err := json.Unmarshal(message, &event); err != nil || event.Type != "ADDED" ||
			!bytes.Contains(event.Object.Raw, []byte(`"name":"shell"`)) {
			t.Errorf("%.200s, %v", message, err)
		}
		for protocol, decode := range map[string]func([]byte) []byte{"binary.k8s.io": asIs,
			"base64.binary.k8s.io": fromBase64} {
			conn := e2e.DialWebsocket(t, k, "/api/v1/namespaces/"+ns+"/pods/finite-a/log?follow=true", protocol)
			var got strings.Builder
			for {
				_, message, err := conn.ReadMessage()
				if err != nil {
					break
				}
				got.Write(decode(message))
			}
			if got.String() != "one\ntwo\nthree\n" {
				t.Errorf("%s: %q", protocol, got.String())
			}
		}
	}
}

// TestRawPortForward: client libraries must forward ports by the older websocket protocol, also to a member without
// websockets.
func TestRawPortForward(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell")
	old, _ := registerOldMember(t, "old-ports")
	one, two := greeter(t, "one"), greeter(t, "two")
	port := func(n int) string { return string([]byte{byte(n), byte(n >> 8)}) }
	for name, k := range map[string]e2e.Kubectl{"directly": e2e.Direct("member1"), "through": e2e.Through(t, "member1"),
		"old": old} {
		for _, tt := range []struct {
			protocol string
			first    byte
			encode   func([]byte) string
			decode   func([]byte) []byte
		}{
			{"v4.channel.k8s.io", 0, func(b []byte) string { return string(b) }, asIs},
			{"v4.base64.channel.k8s.io", '0', base64.StdEncoding.EncodeToString, fromBase64},
		} {
			t.Run(name+"/"+tt.protocol, func(t *testing.T) {
				conn := e2e.DialWebsocket(t, k, fmt.Sprintf("/api/v1/namespaces/%s/pods/shell/portforward?ports=%d&ports=%d", ns,
					one, two), tt.protocol)
				for ch, text := range map[byte]string{0: "hello", 2: "world"} {
					if err := conn.WriteMessage(websocket.BinaryMessage,
						append([]byte{tt.first + ch}, tt.encode([]byte(text))...)); err != nil {
						t.Fatal(err)
					}
				}
				got, end := readChannels(conn, tt.decode)
				for ch, want := range map[byte]string{0: port(one) + "one got hello", 1: port(one), 2: port(two) + "two got world",
					3: port(two)} {
					if got[tt.first+ch] != want {
						t.Errorf("channel %d: %q, want %q (%s)", ch, got[tt.first+ch], want, end)
					}
				}
			})
		}
	}
	conn := e2e.DialWebsocket(t, old, "/api/v1/namespaces/"+ns+"/pods/shell/portforward?ports=1", "v4.channel.k8s.io")
	if got, _ := readChannels(conn, asIs); !strings.Contains(got[1], "refused") {
		t.Errorf("a port that nobody listens at: %q", got)
	}
}

// greeter returns the port of a server that responds to the first five bytes of each connection.
func greeter(t *testing.T, name string) int {
	t.Helper()
	return e2e.ServeTCP(t, func(c net.Conn) {
		b := make([]byte, 5)
		if _, err := io.ReadFull(c, b); err == nil {
			_, _ = io.WriteString(c, name+" got "+string(b))
		}
	})
}
