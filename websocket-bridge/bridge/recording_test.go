package bridge

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/dirstore"
	"github.com/clusterpass/clusterpass/shared/recording/policy"
	"github.com/clusterpass/clusterpass/shared/recording/storetest"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/text"
)

// rules is a gateway.RecordingPolicies with the same rule for all sessions.
type rules policy.Rule

func (r rules) For(context.Context, policy.Call) (policy.Rule, error) { return policy.Rule(r), nil }

var (
	required   = rules{Level: policy.Required, RecordInput: true, Policy: "all"}
	bestEffort = rules{Level: policy.BestEffort, Policy: "all"}
)

// recordedBridge is a bridge that records the sessions of its member.
type recordedBridge struct {
	*bridgeServer
	audit *gatewaytest.AuditLog
	store *breakingStore
	keys  recording.Keys
}

// breakingStore is a directory that fails while isBroken is set.
type breakingStore struct {
	*dirstore.Store
	isBroken atomic.Bool
}

func (s *breakingStore) Put(ctx context.Context, id string, number int, part []byte) error {
	if s.isBroken.Load() {
		return errors.New("the disk is full")
	}
	return s.Store.Put(ctx, id, number, part)
}

func serveRecorded(t *testing.T, rule rules, l Limits, member http.HandlerFunc) *recordedBridge {
	t.Helper()
	return serveRechecked(t, rule, l, 0, member)
}

// serveRechecked is serveRecorded with a pause between checks of open sessions.
func serveRechecked(
	t *testing.T, rule gateway.RecordingPolicies, l Limits, recheck time.Duration, member http.HandlerFunc,
) *recordedBridge {
	t.Helper()
	signer, keys := storetest.NewSigner(t)
	dir, err := dirstore.Open(dirstore.Config{Path: filepath.Join(t.TempDir(), "recordings")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	rb := &recordedBridge{
		audit: &gatewaytest.AuditLog{}, store: &breakingStore{Store: dir}, keys: keys,
	}
	rb.bridgeServer = serveFresh(t, l, Drain{}, cluster.Freshness{}, member, func(b *Bridge, c *gateway.Config) {
		c.Recordings, c.Audit, c.Recheck = rule, audit.New(audit.Config{To: rb.audit}), recheck
		quiet := slog.New(slog.DiscardHandler)
		b.RecordTo(recording.New(recording.Config{Store: rb.store, Signer: signer}), quiet)
	})
	return rb
}

// recorded is the content of a recording.
type recorded struct {
	recording.Info
	events map[recording.Type]string
	isCut  bool
}

func (r recorded) String() string {
	return fmt.Sprintf("out %q, err %q, in %q, size %s, exit %s", r.events[recording.Output], r.events[recording.Stderr],
		r.events[recording.Input], r.events[recording.Resize], r.events[recording.Exit])
}

// recordings waits until all sessions have ended, and reads the verified recordings.
func (rb *recordedBridge) recordings() []recorded {
	rb.t.Helper()
	waittest.Until(rb.t, "all sessions have ended", rb.isIdle)
	ids, err := rb.store.List(rb.t.Context(), "")
	if err != nil {
		rb.t.Fatal(err)
	}
	var all []recorded
	for _, id := range ids {
		r, err := recording.Open(rb.t.Context(), rb.store, id, rb.keys)
		if err != nil {
			rb.t.Fatal(err)
		}
		one := recorded{Info: *r.Info(), events: map[recording.Type]string{}}
		for {
			e, err := r.Next(rb.t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			var fault *recording.Fault
			if errors.As(err, &fault) && fault.Kind == recording.Cut {
				one.isCut = true
				break
			}
			if err != nil {
				rb.t.Fatal(err)
			}
			one.events[e.Type] += string(e.Data)
			switch e.Type {
			case recording.Resize:
				one.events[e.Type] += fmt.Sprintf("%dx%d ", e.Width, e.Height)
			case recording.Transferred:
				one.events[e.Type] = fmt.Sprintf("in=%d out=%d", e.In, e.Out) // the last one counts all bytes
			}
		}
		all = append(all, one)
	}
	return all
}

func (rb *recordedBridge) onlyRecording() recorded {
	rb.t.Helper()
	all := rb.recordings()
	if len(all) != 1 {
		rb.t.Fatalf("%d recordings, want 1", len(all))
	}
	return all[0]
}

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

const recordedPath = "/clusters/m/api/v1/namespaces/a/pods/p/exec?command=sh&command=-l&container=c&stdin=1&stdout=1"

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
	native := answerInput(t, "v5.channel.k8s.io", "v4.base64.channel.k8s.io", "base64.channel.k8s.io")
	all("websocket", "v5.channel.k8s.io", native)
	all("websocket in base64", "v4.base64.channel.k8s.io", native)
	all("old websocket in base64", "base64.channel.k8s.io", native)
	all("text", text.Protocol, native)
	all("websocket translated to SPDY", "v4.channel.k8s.io", answerInputBySPDY(t))
	all("text translated to SPDY", text.Protocol, answerInputBySPDY(t))
	exit = "" // before v4, success has no Status
	all("old websocket in base64 translated to SPDY", "base64.channel.k8s.io", answerInputBySPDY(t))
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

// TestRefusedSessionsAreRecorded: attempts are evidence, too.
func TestRefusedSessionsAreRecorded(t *testing.T) {
	rb := serveRecorded(t, required, Limits{}, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no such pod", http.StatusNotFound)
	})
	_, resp, err := rb.dial("alice", recordedPath, nil, "v5.channel.k8s.io")
	if err == nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("%v, %v", resp, err)
	}
	if r := rb.onlyRecording(); r.isCut || !strings.Contains(r.events[recording.Exit], "HTTP 404") {
		t.Errorf("recorded %s", r)
	}
}

// TestPassthroughCallerIsRecorded: only the token identifies who opened a session that only the member authorizes. A
// list must not show the claims of a token as a user.
func TestPassthroughCallerIsRecorded(t *testing.T) {
	rb := serveRecorded(t, required, Limits{}, nil)
	rb.addMember("open", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Passthrough })
	claims := fmt.Sprintf(`{"iss":"https://issuer.example","sub":"system:serviceaccount:ci:deploy","jti":"%s"}`,
		strings.Repeat("j", 1000))
	token := "x." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".y"
	path := strings.Replace(recordedPath, "/m/", "/open/", 1)
	resp, _ := rb.get("", path, "Authorization: Bearer "+token)
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("%s", resp.Status)
	}
	r := rb.onlyRecording()
	want := recording.Unverified{
		TokenSHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(token))), Issuer: "https://issuer.example",
		Subject: "system:serviceaccount:ci:deploy", TokenID: strings.Repeat("j", 256) + "…",
	}
	if r.Unverified != want || r.User != "" || r.Caller() != "unverified system:serviceaccount:ci:deploy" {
		t.Errorf("header %+v, want %+v", r.Info, want)
	}
	// A token without claims has only its digest.
	_, _ = rb.get("", path, "Authorization: Bearer opaque")
	waittest.Until(t, "the second session is recorded", func() bool { return len(rb.recordings()) == 2 })
	for _, r := range rb.recordings() {
		if r.Subject == "" && r.Caller() != fmt.Sprintf("unverified token %x", sha256.Sum256([]byte("opaque")))[:33] {
			t.Errorf("caller %q of %+v", r.Caller(), r.Info)
		}
	}
}

// TestRequestIDWithoutAuditLog: without an audit log of the gateway, the audit log of the member must still be able to
// name the request of a recording.
func TestRequestIDWithoutAuditLog(t *testing.T) {
	signer, _ := storetest.NewSigner(t)
	store, arrived := &storetest.Memory{}, make(chan string, 1)
	hs := serveFresh(t, Limits{}, Drain{}, cluster.Freshness{}, func(w http.ResponseWriter, r *http.Request) {
		arrived <- r.Header.Get(audit.IDHeader)
		w.WriteHeader(http.StatusNotFound)
	}, func(b *Bridge, c *gateway.Config) {
		c.Recordings = required
		b.RecordTo(recording.New(recording.Config{Store: store, Signer: signer}), slog.New(slog.DiscardHandler))
	})
	resp, _ := hs.get("alice", recordedPath, audit.IDHeader+": chosen")
	ids, err := store.List(t.Context(), "")
	if err != nil || len(ids) != 1 {
		t.Fatalf("recordings %v, %v", ids, err)
	}
	r, err := recording.OpenUnverified(t.Context(), store, ids[0])
	if err != nil {
		t.Fatal(err)
	}
	id, member := r.Info().RequestID, <-arrived
	if len(id) != 36 || member != id || resp.Header.Get(audit.IDHeader) != id {
		t.Errorf("the recording has the id %q, the member %q, the response %q", id, member, resp.Header.Get(audit.IDHeader))
	}
}

// TestImpossibleNamesStoreNothing: a client needs no credential for a session of a passthrough cluster. It must not
// fill a directory of recordings with names that no API server accepts.
func TestImpossibleNamesStoreNothing(t *testing.T) {
	member := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
	for name, tt := range map[string]struct{ namespace, pod, container, want string }{
		"namespace": {strings.Repeat("n", 64), "p", "c", "the name of the namespace has 64 bytes; want at most 63"},
		"pod":       {"n", strings.Repeat("p", 254), "c", "the name of the pod has 254 bytes; want at most 253"},
		"container": {"n", "p", strings.Repeat("c", 64), "the name of the container has 64 bytes; want at most 63"},
		"none":      {strings.Repeat("n", 63), strings.Repeat("p", 253), strings.Repeat("c", 63), ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, rule := range []rules{required, bestEffort} {
				rb := serveRecorded(t, rule, Limits{}, nil)
				rb.addMember("open", member, func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Passthrough })
				resp, _ := rb.get("", "/clusters/open/api/v1/namespaces/"+tt.namespace+"/pods/"+tt.pod+"/exec?container="+
					tt.container, "Authorization: Bearer made-up")
				if tt.want != "" {
					gatewaytest.WantStatus(t, resp, http.StatusBadRequest, "bad_request", tt.want)
				} else if resp.StatusCode != http.StatusUnauthorized {
					t.Errorf("%s", resp.Status)
				}
				if n := len(rb.recordings()); n > 0 != (tt.want == "") {
					t.Errorf("%d recordings are stored", n)
				}
			}
		})
	}
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
