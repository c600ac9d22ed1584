package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/keys"
	"github.com/clusterpass/clusterpass/shared/recording/location"
	"github.com/clusterpass/clusterpass/shared/recording/replay"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// recorded is a store of an installation with recordings beside it.
type recorded struct {
	clusterpass
	dir      string // the directory of the recordings
	store    recording.Store
	recorder *recording.Recorder
	now      func() time.Time // clock of the recorder; nil means time.Now
}

func newRecorded(t *testing.T) *recorded {
	t.Helper()
	dir := t.TempDir()
	c := clusterpass{"dir:" + dir}
	if out, err := c.run(t, "init"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	l := location.In(dir)
	store, err := location.Open(t.Context(), l, location.Retention{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	r := &recorded{clusterpass: c, dir: l.Where, store: store}
	r.restart(t)
	return r
}

// restart sets the recorder to one of a bridge that has just started.
func (r *recorded) restart(t *testing.T) {
	t.Helper()
	st, err := stores.Open(t.Context(), stores.Address{Kind: "dir", Where: filepath.Dir(r.dir)})
	if err != nil {
		t.Fatal(err)
	}
	signer, err := keys.Ensure(t.Context(), st.Secrets, st.Objects)
	if err != nil {
		t.Fatal(err)
	}
	r.recorder = recording.New(recording.Config{Store: r.store, Signer: signer, Now: r.now})
}

// record returns the id of a session with output.
func (r *recorded) record(t *testing.T, i recording.Info, output string) string {
	t.Helper()
	s, err := r.recorder.Begin(t.Context(), i)
	if err == nil {
		err = s.Output(1, []byte(output))
	}
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return s.ID()
}

func (r *recorded) want(t *testing.T, want string, args ...string) string {
	t.Helper()
	out, err := r.run(t, append([]string{"recording"}, args...)...)
	if err != nil || !strings.Contains(out, want) {
		t.Errorf("recording %s: %s%v, want %q", strings.Join(args, " "), out, err, want)
	}
	return out
}

func (r *recorded) wantError(t *testing.T, want string, args ...string) {
	t.Helper()
	out, err := r.run(t, append([]string{"recording"}, args...)...)
	if err == nil || !strings.Contains(out+err.Error(), want) {
		t.Errorf("recording %s: %s%v, want %q", strings.Join(args, " "), out, err, want)
	}
}

func TestRecordingList(t *testing.T) {
	r := newRecorded(t)
	if out := r.want(t, "ID ", "list"); strings.Count(out, "\n") != 1 {
		t.Errorf("an empty directory lists %s", out)
	}
	ann := r.record(t, recording.Info{
		User: "ann", Kind: recording.Exec, Cluster: "prod", Namespace: "web", Pod: "web-0",
		Command: []string{"sh", "-c", "\x1b]0;owned\a" + strings.Repeat("x", 100)},
	}, "hi")
	bob := r.record(t, recording.Info{User: "bob", Kind: recording.Attach, Cluster: "test"}, "hi")
	running, err := r.recorder.Begin(t.Context(), recording.Info{User: "eve", Kind: recording.Exec, Cluster: "prod"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = running.Close() }()
	out := r.want(t, ann, "list")
	for _, want := range []string{bob, "complete", "no end", "sh -c \uFFFD]0;owned\uFFFD", "…"} {
		if !strings.Contains(out, want) {
			t.Errorf("the list %s lacks %q", out, want)
		}
	}
	for name, tt := range map[string]struct {
		args []string
		want int
	}{
		"user": {[]string{"--user", "ann"}, 1}, "cluster": {[]string{"--cluster", "prod"}, 2},
		"namespace": {[]string{"--namespace", "web"}, 1}, "limit": {[]string{"--limit", "2"}, 2},
		"day": {[]string{"--day", "2001-02-03"}, 0}, "all": {[]string{"--limit", "0"}, 3},
	} {
		out := r.want(t, "ID ", append([]string{"list"}, tt.args...)...)
		if got := strings.Count(out, "\n") - 1; got != tt.want {
			t.Errorf("%s: %d recordings, want %d: %s", name, got, tt.want, out)
		}
	}
	r.record(t, recording.Info{
		Kind: recording.Exec, Cluster: "open",
		Unverified: recording.Unverified{TokenSHA256: strings.Repeat("a", 64), Subject: "system:admin"},
	}, "hi")
	if out := r.want(t, "unverified system:admin", "list", "--user", ""); strings.Count(out, "\n") != 5 {
		t.Errorf("the list has %s", out)
	}
	if out := r.want(t, "ID ", "list", "--user", "system:admin"); strings.Count(out, "\n") != 1 {
		t.Errorf("a claim counts as a user: %s", out)
	}
}

func TestRecordingPlayAndExport(t *testing.T) {
	r := newRecorded(t)
	id := r.record(t, recording.Info{User: "ann", Kind: recording.Exec, Cluster: "prod"}, "one\x1b[6n\ntwo\n")
	r.want(t, "one\ntwo\n", "play", id, "--speed", "0")
	r.wantError(t, "must not be negative", "play", id, "--speed", "-1")
	r.wantError(t, "recording not found", "play", recording.NewID(time.Now()))
	file := filepath.Join(t.TempDir(), "session.cast")
	r.want(t, "", "export", id, file)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var header struct{ Version int }
	first, rest, _ := bytes.Cut(data, []byte("\n"))
	if json.Unmarshal(first, &header) != nil || header.Version != 2 || !bytes.Contains(rest, []byte(`two\r\n`)) {
		t.Errorf("the file is %s", data)
	}
	if fi, err := os.Stat(file); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the file has %v, %v", fi.Mode(), err)
	}
	if !bytes.Contains(rest, []byte(`\u001b[6n`)) {
		t.Errorf("the file lacks a sequence of the session: %s", data)
	}
	if out := r.want(t, `one\r\ntwo`, "export", "--filter", id, "-"); strings.Contains(out, "[6n") {
		t.Errorf("a query passes the filter: %s", out)
	}
	if out := r.want(t, `"version":2`, "export", id, "-"); out != string(data) {
		t.Errorf("standard output has %s, want %s", out, data)
	}
}

// TestRecordingPlayInATerminal fails if the keys of a terminal do not control the player, or if the terminal stays in
// another mode.
func TestRecordingPlayInATerminal(t *testing.T) {
	r := newRecorded(t)
	now := time.Now()
	r.now = func() time.Time { return now }
	r.restart(t)
	s, err := r.recorder.Begin(t.Context(), recording.Info{Kind: recording.Exec})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		output string
		pause  time.Duration
	}{{"one\n", 25 * time.Second}, {"two\n", 5 * time.Minute}, {"three\n", 100 * time.Hour}, {"four\n", 0}} {
		if err := s.Output(1, []byte(step.output)); err != nil {
			t.Fatal(err)
		}
		now = now.Add(step.pause)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	user, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = user.Close(), terminal.Close() }()
	before, err := term.GetState(int(terminal.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	shown := &waittest.Buffer{}
	go func() { _, _ = io.Copy(shown, user) }()
	cmd := root()
	cmd.SetIn(terminal)
	cmd.SetOut(terminal)
	cmd.SetArgs([]string{"--store", r.clusterpass.store, "recording", "play", s.ID()})
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(t.Context()) }()
	for _, step := range []struct{ output, keys string }{
		{"one\r\n", "\x1b[C\x1b[C\x1b[C"},           // forward by 30 seconds
		{"two\r\n", strings.Repeat("+", 10) + "  "}, // 1024 times as fast; pause and go on
		{"three\r\n", "q"},
	} {
		waittest.Until(t, "output "+step.output, func() bool { return strings.HasSuffix(shown.String(), step.output) })
		_, _ = io.WriteString(user, step.keys)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	waittest.Until(t, "reset of the terminal", func() bool { return strings.HasSuffix(shown.String(), replay.Reset) })
	if after, err := term.GetState(int(terminal.Fd())); err != nil || !reflect.DeepEqual(after, before) {
		t.Errorf("the terminal has the state %+v, %v; want %+v", after, err, before)
	}
	if strings.Contains(shown.String(), "four") {
		t.Errorf("the player goes on: %q", shown)
	}
}

// TestRecordingVerify fails if a changed recording passes, or is shown as if it were not.
func TestRecordingVerify(t *testing.T) {
	r := newRecorded(t)
	id := r.record(t, recording.Info{User: "ann", Kind: recording.Exec, Cluster: "prod"}, "rm -rf /")
	good := r.record(t, recording.Info{User: "ann", Kind: recording.Exec, Cluster: "prod"}, "ls")
	r.want(t, "complete and unchanged: 2 parts", "verify", id, good)
	part := filepath.Join(r.dir, id, recording.PartName(1))
	data, err := os.ReadFile(part)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Replace(data, []byte("rm -rf /"), []byte("ls -la /"), 1)
	if err := os.WriteFile(part, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	r.wantError(t, "part 1 is changed", "verify", id, good)
	r.wantError(t, "1 of 2 are not complete", "verify", id, good)
	unreadable := recording.NewID(time.Now())
	for _, want := range []string{unreadable + ": not readable", good + ": complete", "2 of 3 are not complete"} {
		r.wantError(t, want, "verify", unreadable, id, good)
	}
	r.wantError(t, "part 1 is changed", "play", id, "--speed", "0")
	r.wantError(t, "part 1 is changed", "export", id, filepath.Join(t.TempDir(), "out.cast"))
	r.want(t, "ls -la /", "play", id, "--speed", "0", "--unverified")
	if err := os.Remove(part); err != nil {
		t.Fatal(err)
	}
	r.wantError(t, "the recording is cut: it has no end", "verify", id)
	r.want(t, "the recording is cut: it has no end", "verify", "--end=false", id, good)
	r.wantError(t, "1 of 2 are not complete", "verify", "--end=false", unreadable, id)
	r.want(t, "warning: the recording is cut", "play", id, "--speed", "0")
}

// TestRecordingKeyRotate fails if recordings of before or after the rotation of the key cannot be verified.
func TestRecordingKeyRotate(t *testing.T) {
	r := newRecorded(t)
	i := recording.Info{User: "ann", Kind: recording.Exec, Cluster: "prod"}
	before := r.record(t, i, "ls")
	r.want(t, "signs recordings after the bridges were restarted", "key", "rotate")
	r.restart(t)
	r.want(t, "complete and unchanged", "verify", before, r.record(t, i, "ls"))
	if n := strings.Count(r.want(t, "", "key"), "BEGIN PUBLIC KEY"); n != 2 {
		t.Errorf("%d public keys, want 2", n)
	}
}

// TestRecordingVerifyWithoutStores fails if an auditor needs access to the gateway's stores.
func TestRecordingVerifyWithoutStores(t *testing.T) {
	r := newRecorded(t)
	id := r.record(t, recording.Info{User: "ann", Kind: recording.Exec, Cluster: "prod"}, "ls")
	key := filepath.Join(t.TempDir(), "recordings.pem")
	pem := r.want(t, "BEGIN PUBLIC KEY", "key")
	if err := os.WriteFile(key, []byte(pem), 0o600); err != nil {
		t.Fatal(err)
	}
	auditor := &recorded{clusterpass: clusterpass{"dir:" + filepath.Join(t.TempDir(), "none")}}
	copied := "dir:" + r.dir
	auditor.want(t, "complete and unchanged", "verify", "--recordings", copied, "--key", key, id)
	auditor.wantError(t, "no public key of recordings", "verify", "--recordings", copied, id)
	other := newRecorded(t)
	if err := os.WriteFile(key, []byte(other.want(t, "BEGIN PUBLIC KEY", "key")), 0o600); err != nil {
		t.Fatal(err)
	}
	auditor.wantError(t, "unknown key", "verify", "--recordings", copied, "--key", key, id)
	if err := os.WriteFile(key, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	auditor.wantError(t, "no public key in PEM", "verify", "--recordings", copied, "--key", key, id)
	auditor.wantError(t, "want dir:PATH or s3:BUCKET", "list", "--recordings", "ftp:x")
	remote := &recorded{clusterpass: clusterpass{"kubernetes:clusterpass"}}
	remote.wantError(t, "set --recordings", "list")
}
