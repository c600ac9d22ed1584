package bridge

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/policy"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/text"
)

// TestSessionsWithoutARecorder: a required recording that cannot begin refuses the session before the member gets it.
func TestSessionsWithoutARecorder(t *testing.T) {
	var called atomic.Bool
	member := func(w http.ResponseWriter, r *http.Request) {
		called.Store(true)
		talking(t, echoing)(w, r)
	}
	for _, path := range []string{recordedPath, portsPath, strings.Replace(recordedPath, "/exec", "/attach", 1)} {
		rb := serveRecorded(t, required, Limits{}, member)
		rb.store.isBroken.Store(true)
		resp, _ := rb.get("alice", path, "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
			"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol: v5.channel.k8s.io")
		gatewaytest.WantStatus(t, resp, http.StatusServiceUnavailable, "recording_failed", "the recorder cannot begin")
		a := rb.audit.Events(t, 2)[1].Annotations
		if called.Load() || !strings.Contains(a[audit.UnrecordedAnnotation], "disk is full") ||
			a[audit.FailureAnnotation] != "recording_failed" {
			t.Errorf("the member was called: %v; audit %v", called.Load(), a)
		}
	}
	rb := serveRecorded(t, bestEffort, Limits{}, member)
	rb.store.isBroken.Store(true)
	conn := rb.mustDial("alice", recordedPath, "v5.channel.k8s.io")
	_ = conn.WriteMessage(websocket.BinaryMessage, []byte("\x00x"))
	if _, m, err := conn.ReadMessage(); err != nil || string(m) != "\x00x" {
		t.Errorf("%q, %v", m, err)
	}
	_ = conn.Close()
	for _, e := range rb.audit.Events(t, 2) {
		if !strings.Contains(e.Annotations[audit.UnrecordedAnnotation], "disk is full") ||
			e.Annotations[audit.RecordingAnnotation] != "" {
			t.Errorf("%s: %v", e.Stage, e.Annotations)
		}
	}
	if n := rb.metric("clusterpass_recording_failures_total", "level=bestEffort"); n != 1 {
		t.Errorf("%v failures are counted, want 1", n)
	}
	// The alarm on AWS needs this metric.
	line, all, err := rb.bridge.cloudWatchLine("Clusterpass/test", time.Now(), totals{})
	for _, want := range []string{`"RecordingFailures":1,`, `{"Name":"RecordingFailures","Unit":"Count"}`} {
		if err != nil || !bytes.Contains(line, []byte(want)) {
			t.Errorf("no %s in %s, %v", want, line, err)
		}
	}
	line, _, err = rb.bridge.cloudWatchLine("Clusterpass/test", time.Now(), all)
	if err != nil || bytes.Contains(line, []byte("RecordingFailures")) {
		t.Errorf("%s, %v", line, err)
	}
}

// printing is a program that prints its input.
func printing(conn *websocket.Conn) {
	for {
		_, m, err := conn.ReadMessage()
		if err != nil || conn.WriteMessage(websocket.BinaryMessage, append([]byte{1}, m[1:]...)) != nil {
			return
		}
	}
}

// TestRecorderFails: a session whose required recording fails must end and explain why, even if it is idle. Otherwise
// it must go on.
func TestRecorderFails(t *testing.T) {
	member := talking(t, printing)
	echo := func(conn *websocket.Conn) {
		_ = conn.WriteMessage(websocket.BinaryMessage, []byte("\x00x"))
		if _, m, err := conn.ReadMessage(); err != nil || string(m) != "\x01x" {
			t.Errorf("%q, %v", m, err)
		}
	}
	for name, tt := range map[string]struct{ query, protocol, want string }{
		"terminal":   {"&tty=1", "v5.channel.k8s.io", "\x01\r\nthe session was ended: its required recording failed"},
		"stderr":     {"&stderr=1", "v4.channel.k8s.io", "\x02\r\nthe session was ended: its required recording failed"},
		"no channel": {"", "v5.channel.k8s.io", "\x03{"},
		"text":       {"&stderr=1", text.Protocol, `{"stderr":"\r\nthe session was ended: its required recording failed`},
	} {
		t.Run(name, func(t *testing.T) {
			rb := serveRecorded(t, required, Limits{}, member)
			conn := rb.mustDial("alice", recordedPath+tt.query, tt.protocol)
			if tt.protocol != text.Protocol {
				echo(conn)
			} else {
				_ = conn.WriteMessage(websocket.TextMessage, []byte(`{"stdin":"x"}`))
				_, _, _ = conn.ReadMessage()
			}
			rb.store.isBroken.Store(true)
			var got []string
			var err error
			for err == nil {
				var m []byte
				if _, m, err = conn.ReadMessage(); err == nil {
					got = append(got, string(m))
				}
			}
			if len(got) == 0 || !strings.HasPrefix(got[0], tt.want) ||
				!strings.Contains(got[len(got)-1], "required recording failed") {
				t.Errorf("the client got %q, %v", got, err)
			}
			_ = conn.Close()
			if r := rb.onlyRecording(); !r.isCut {
				t.Errorf("the recording is complete: %s", r)
			}
			a := rb.audit.Events(t, 2)[1].Annotations
			if a[audit.FailureAnnotation] != "recording_failed" || a[audit.UnrecordedAnnotation] == "" {
				t.Errorf("audit %v", a)
			}
		})
	}
	t.Run("best effort", func(t *testing.T) {
		rb := serveRecorded(t, bestEffort, Limits{}, member)
		conn := rb.mustDial("alice", recordedPath, "v5.channel.k8s.io")
		rb.store.isBroken.Store(true)
		waittest.Until(t, "the recording has failed", func() bool {
			echo(conn)
			return !isRunning("recorder.(*Session).watch")
		})
		echo(conn)
		_ = conn.Close()
		if r := rb.onlyRecording(); !r.isCut {
			t.Errorf("the recording is complete: %s", r)
		}
		a := rb.audit.Events(t, 2)[1].Annotations
		if a[audit.FailureAnnotation] != "" || a[audit.UnrecordedAnnotation] == "" {
			t.Errorf("audit %v", a)
		}
	})
}

// laterRequired is a gateway.RecordingPolicies whose level changes from bestEffort to required.
type laterRequired struct{ isRequired atomic.Bool }

func (l *laterRequired) For(context.Context, policy.Call) (policy.Rule, error) {
	if l.isRequired.Load() {
		return policy.Rule(required), nil
	}
	return policy.Rule(bestEffort), nil
}

// TestRecordedSessionContinues: a session that is recorded already must go on when a policy begins to require that. It
// must end when its recorder fails later, although it began without that rule.
func TestRecordedSessionContinues(t *testing.T) {
	rule := &laterRequired{}
	rb := serveRechecked(t, rule, Limits{}, time.Millisecond, talking(t, printing))
	recorded := rb.mustDial("alice", recordedPath, "v5.channel.k8s.io")
	rb.store.isBroken.Store(true)
	unrecorded := rb.mustDial("alice", recordedPath, "v5.channel.k8s.io")
	rule.isRequired.Store(true)
	_, _, err := unrecorded.ReadMessage()
	for err == nil {
		_, _, err = unrecorded.ReadMessage()
	}
	_ = unrecorded.Close()
	// The recorder learns only from the echo that the store is broken.
	_ = recorded.WriteMessage(websocket.BinaryMessage, []byte("\x00x"))
	if _, m, err := recorded.ReadMessage(); err != nil || string(m) != "\x01x" {
		t.Errorf("the recorded session: %q, %v", m, err)
	}
	for err = nil; err == nil; {
		_, _, err = recorded.ReadMessage()
	}
	_ = recorded.Close()
	events := rb.audit.Events(t, 4)
	for _, e := range events[2:] {
		if !strings.Contains(e.ResponseStatus.Message, `RecordingPolicy "all" now requires its recording`) {
			t.Errorf("%s: ended for %+v", e.Stage, e.ResponseStatus)
		}
	}
}

// TestStoppedSessionsAreComplete: a session that the bridge ends has a complete recording, with the reason.
func TestStoppedSessionsAreComplete(t *testing.T) {
	rb := serveRecorded(t, required, Limits{IdleTimeout: 50 * time.Millisecond}, talking(t, echoing))
	for {
		conn, resp, err := rb.dial("alice", recordedPath, nil, "v5.channel.k8s.io")
		if err != nil && resp != nil && resp.StatusCode == http.StatusGatewayTimeout {
			continue // the time was over before the start
		}
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, _, err = conn.ReadMessage()
		}
		break
	}
	all := rb.recordings()
	if r := all[len(all)-1]; r.isCut || !strings.Contains(r.events[recording.Exit], "nothing was sent for too long") {
		t.Errorf("recorded %s", r)
	}
}
