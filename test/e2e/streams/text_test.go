package streams_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestTextEndpoint: scripts must use streams of members with and without websockets.
func TestTextEndpoint(t *testing.T) {
	pods := "/api/v1/namespaces/" + e2e.StreamPods(t, []string{"member1"}, "shell", "talker-a", "finite-a") + "/pods"
	old, _ := registerOldMember(t, "old-text")
	for name, k := range map[string]e2e.Kubectl{"new": e2e.Through(t, "member1"), "old": old} {
		t.Run(name, func(t *testing.T) {
			const protocol = "v1.text.clusterpass.io"
			conn := e2e.DialWebsocket(t, k, pods+"/finite-a/log?follow=true", protocol)
			if got := readAll(conn); got != "one|two|three" {
				t.Errorf("log: %q", got)
			}
			conn = e2e.DialWebsocket(t, k, pods+"/talker-a/log?follow=true&tailLines=1", protocol)
			if _, line, err := conn.ReadMessage(); err != nil || !strings.HasPrefix(string(line), "a ") {
				t.Errorf("followed log: %q, %v", line, err)
			}
			conn = e2e.DialWebsocket(t, k, pods+"?watch=1&fieldSelector=metadata.name%3Dshell", protocol)
			var event struct {
				Type   string
				Object struct{ Metadata struct{ Name string } }
			}
			if err := conn.ReadJSON(&event); err != nil || event.Type != "ADDED" || event.Object.Metadata.Name != "shell" {
				t.Errorf("watch: %+v, %v", event, err)
			}
			conn = e2e.DialWebsocket(t, k, pods+"/shell/exec?stdin=1&stdout=1&stderr=1&"+
				url.Values{"command": {"sh", "-c", "cat; echo bad >&2; exit 4"}}.Encode(), protocol)
			long := strings.Repeat("é", 10_000)
			for _, m := range []any{map[string]string{"stdin": long}, map[string]bool{"eof": true}} {
				if err := conn.WriteJSON(m); err != nil {
					t.Fatal(err)
				}
			}
			var out struct {
				Stdout, Stderr string
				Exit           *struct{ Code int }
			}
			var stdout, stderr string
			for out.Exit == nil {
				out.Stdout, out.Stderr = "", ""
				if err := conn.ReadJSON(&out); err != nil {
					t.Fatal(err)
				}
				stdout, stderr = stdout+out.Stdout, stderr+out.Stderr
			}
			if stdout != long || stderr != "bad\n" || out.Exit.Code != 4 {
				t.Errorf("exec: %.50q of %d bytes, %q, exit %d", stdout, len(stdout), stderr, out.Exit.Code)
			}
			if _, _, err := conn.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
				t.Errorf("exec ends with %v", err)
			}
			// The size has its own stream, so the command waits for it.
			conn = e2e.DialWebsocket(t, k, pods+"/shell/exec?stdin=1&stdout=1&tty=1&command=sh", protocol)
			for _, m := range []string{`{"resize":{"width":77,"height":22}}`,
				`{"stdin":"until stty size | grep '22[ ]77'; do sleep 0.1; done; exit\n"}`} {
				if err := conn.WriteMessage(websocket.TextMessage, []byte(m)); err != nil {
					t.Fatal(err)
				}
			}
			if got := readAll(conn); !strings.Contains(got, "22 77") {
				t.Errorf("terminal: %q", got)
			}
		})
	}
}

func readAll(conn *websocket.Conn) string {
	var all []string
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			return strings.Join(all, "|")
		}
		var out struct{ Stdout string }
		if json.Unmarshal(message, &out) == nil {
			message = []byte(out.Stdout)
		}
		all = append(all, string(message))
	}
}
