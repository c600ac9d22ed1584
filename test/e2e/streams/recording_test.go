package streams_test

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

func recordedCommand(word string) func(e2e.Recording) bool {
	return func(r e2e.Recording) bool { return strings.Contains(strings.Join(r.Command, " "), word) }
}

// TestRecordings fails if the recording of a session differs from what the user of kubectl typed and saw. It also fails
// if kubectl behaves differently because its session is recorded.
func TestRecordings(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell", "reader")
	g := e2e.Through(t, "member1")
	e2e.RecordNamespace(t, ns, "required", true, func() { g.Run(t, "-n", ns, "exec", "shell", "--", "true") })
	for _, dialect := range e2e.Dialects {
		g.Env = dialect.Env
		for kind, check := range map[string]func(t *testing.T, g e2e.Kubectl, ns, word string){
			"exec": checkRecordedExec, "transfer": checkRecordedTransfer, "terminal": checkRecordedTerminal,
			"attach": checkRecordedAttach, "debug": checkRefusedDebug, "port-forward": checkRecordedPortForward,
			"run": checkRecordedRun,
		} {
			t.Run(dialect.Name+"/"+kind, func(t *testing.T) { check(t, g, ns, kind+"-by-"+dialect.Name) })
		}
	}
}

func checkRecordedExec(t *testing.T, g e2e.Kubectl, ns, word string) {
	t.Helper()
	d := e2e.Direct("member1")
	d.Env = g.Env
	e2e.CheckSameResult(t, e2e.Clusters.BuiltKubectl(), d, g, "typed\n", "-n", ns, "exec", "-i", "shell", "--", "sh", "-c",
		"read x; echo got $x; echo bad >&2; exit 7; : "+word)
	r := e2e.WaitForRecording(t, ns, "exec", recordedCommand(word))
	if r.Events[recording.Output] != "got typed\n" || r.Events[recording.Stderr] != "bad\n" ||
		r.Events[recording.Input] != "typed\n" || !strings.Contains(r.Events[recording.Exit], `"message":"7"`) {
		t.Errorf("recorded %q", r.Events)
	}
	if since := time.Since(r.Start); since < 0 || since > time.Hour || r.Command[0] != "sh" {
		t.Errorf("header %+v", r.Info)
	}
	if r.Kind != recording.Exec || r.Cluster != "member1" || r.Pod != "shell" || r.User == "" || r.RequestID == "" ||
		r.TTY {
		t.Errorf("header %+v", r.Info)
	}
	out, err := e2e.CLI(t, "", "recording", "verify", r.ID)
	if err != nil || !strings.Contains(out, "complete and unchanged") {
		t.Errorf("verify: %s%v", out, err)
	}
}

func checkRecordedTransfer(t *testing.T, g e2e.Kubectl, ns, word string) {
	t.Helper()
	data := make([]byte, 5<<20)
	_, _ = rand.Read(data)
	r := g.RunWith(t, e2e.Clusters.BuiltKubectl(), strings.NewReader(string(data)), "-n", ns, "exec", "-i", "shell", "--",
		"sh", "-c", "cat; : "+word)
	if r.Code != 0 || r.Stdout != string(data) {
		t.Errorf("exit %d, %d of %d bytes\n%s", r.Code, len(r.Stdout), len(data), r.Stderr)
	}
	got := e2e.WaitForRecording(t, ns, "transfer", recordedCommand(word))
	if got.Events[recording.Output] != string(data) || got.Events[recording.Input] != string(data) {
		t.Errorf("recorded %d and %d of %d bytes", len(got.Events[recording.Input]), len(got.Events[recording.Output]),
			len(data))
	}
}

func checkRecordedAttach(t *testing.T, g e2e.Kubectl, ns, word string) {
	t.Helper()
	s := g.Start(t, e2e.Clusters.BuiltKubectl(), "-n", ns, "attach", "-i", "reader")
	_, _ = fmt.Fprintln(s.Stdin, word)
	s.Line("got " + word)
	_ = s.Cmd.Process.Kill()
	r := e2e.WaitForRecording(t, ns, "attach", func(r e2e.Recording) bool {
		return strings.Contains(r.Events[recording.Input], word)
	})
	if r.Kind != recording.Attach || !strings.Contains(r.Events[recording.Output], "got "+word) {
		t.Errorf("recorded %q of %+v", r.Events, r.Info)
	}
}

// checkRecordedRun fails if the session with a new pod is not recorded. Its command runs, as that of any pod.
func checkRecordedRun(t *testing.T, g e2e.Kubectl, ns, word string) {
	t.Helper()
	// kube-apiserver may lose the last output of a command that ends before its stdin, so the command reads all of it.
	r := g.RunWith(t, e2e.Clusters.BuiltKubectl(), strings.NewReader(word+"\n"), "-n", ns, "run", word, "-i", "--rm",
		"--grace-period=1", "--quiet", "--restart=Never", "--image=any", "--",
		"sh", "-c", "read x; echo got $x; cat >/dev/null")
	if !strings.Contains(r.Stdout, "got "+word) {
		t.Errorf("run: %v", r)
	}
	got := e2e.WaitForRecording(t, ns, "run", func(r e2e.Recording) bool { return r.Pod == word })
	if got.Kind != recording.Attach || !strings.Contains(got.Events[recording.Output], "got "+word) ||
		got.Events[recording.Input] != word+"\n" {
		t.Errorf("recorded %q of %+v", got.Events, got.Info)
	}
}

// checkRefusedDebug fails if a policy that requires recordings permits a debug container. Its command could run without
// a session.
func checkRefusedDebug(t *testing.T, g e2e.Kubectl, ns, word string) {
	t.Helper()
	r := g.RunWith(t, e2e.Clusters.BuiltKubectl(), strings.NewReader(""), "-n", ns, "debug", "shell", "-i", "--quiet",
		"--image=any", "--", "sh", "-c", "echo debugged "+word)
	if r.Code == 0 || !strings.Contains(r.Stderr, "a debug container can run a command without one") {
		t.Errorf("debug: %v", r)
	}
}

// TestRecordedPass fails if a recording does not name the pass of its caller, so that it cannot be revoked.
func TestRecordedPass(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell")
	g := e2e.Through(t, "member1")
	e2e.RecordNamespace(t, ns, "required", false, func() { g.Run(t, "-n", ns, "exec", "shell", "--", "true") })
	e2e.Grant(t, "member1", "recorded-user")
	k := e2e.Kubectl{Context: "member1",
		Kubeconfig: e2e.WriteFile(t, e2e.CreatePass(t, "recorded-pass", "--user", "recorded-user"))}
	k.MustEventually(t, "-n", ns, "exec", "shell", "--", "echo", "with a pass")
	r := e2e.WaitForRecording(t, ns, "exec with a pass", recordedCommand("with a pass"))
	if r.User != "recorded-user" || r.Pass != "recorded-pass" || r.Impersonator != "" {
		t.Errorf("header %+v", r.Info)
	}
	if out, err := e2e.CLI(t, "", "recording", "list", "--user", "recorded-user"); err != nil ||
		!strings.Contains(out, r.ID) {
		t.Errorf("list: %s%v", out, err)
	}
}

// TestRecordedDebugContainers fails if the session of a debug container is not recorded where the policy permits it.
func TestRecordedDebugContainers(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell")
	g := e2e.Through(t, "member1")
	e2e.RecordNamespace(t, ns, "bestEffort", false, func() { g.Run(t, "-n", ns, "exec", "shell", "--", "true") })
	for _, dialect := range e2e.Dialects {
		g.Env = dialect.Env
		t.Run(dialect.Name, func(t *testing.T) { checkRecordedDebug(t, g, ns, "debug-by-"+dialect.Name) })
	}
}

func checkRecordedDebug(t *testing.T, g e2e.Kubectl, ns, word string) {
	t.Helper()
	// kube-apiserver may lose the last output of a command that ends before its stdin, which kubectl debug never ends.
	var r e2e.Result
	for range 3 {
		r = g.RunWith(t, e2e.Clusters.BuiltKubectl(), strings.NewReader(word+"\n"), "-n", ns, "debug", "shell", "-i",
			"--quiet", "--image=any", "--", "sh", "-c", "read x; echo debugged $x; sleep 1")
		if r.Code != 0 || strings.Contains(r.Stdout, "debugged "+word) {
			break
		}
		t.Logf("without output: %v", r)
	}
	if !strings.Contains(r.Stdout, "debugged "+word) {
		t.Errorf("debug: %v", r)
	}
	got := e2e.WaitForRecording(t, ns, "debug", func(r e2e.Recording) bool {
		return strings.Contains(r.Events[recording.Output], "debugged "+word)
	})
	if got.Kind != recording.Attach || !strings.HasPrefix(got.Container, "debugger-") {
		t.Errorf("header %+v", got.Info)
	}
}

func checkRecordedPortForward(t *testing.T, g e2e.Kubectl, ns, word string) {
	t.Helper()
	isLater := e2e.LaterRecordings(t, ns)
	s, addr := e2e.PortForward(t, g, e2e.Clusters.BuiltKubectl(), ns, e2e.EchoServer(t))
	secret := []byte("a secret of the application: " + word)
	if got, err := e2e.RoundTrip(addr, secret); err != nil || string(got) != string(secret) {
		t.Errorf("%q, %v", got, err)
	}
	_ = s.Cmd.Process.Kill()
	r := e2e.WaitForRecording(t, ns, "port-forward", func(r e2e.Recording) bool {
		return isLater(r) && r.Kind == recording.PortForward
	})
	var in, out int
	if _, err := fmt.Sscanf(r.Events[recording.Transferred], "in=%d out=%d", &in, &out); err != nil || in < len(secret) ||
		out < len(secret) || strings.Contains(fmt.Sprint(r.Events), string(secret)) {
		t.Errorf("recorded %q, %v", r.Events, err)
	}
}

// checkRecordedTerminal types into a terminal and compares its recording with what it showed.
func checkRecordedTerminal(t *testing.T, g e2e.Kubectl, ns, word string) {
	t.Helper()
	cmd := g.Command(t.Context(), t, e2e.Clusters.BuiltKubectl(), "-n", ns, "exec", "-it", "shell", "--", "sh", "-c",
		"stty -echo; echo ready; while read x; do echo got $x; done; : "+word)
	tty := startTerminal(t, cmd)
	out := tty.out
	waittest.Until(t, "terminal of the command", func() bool { return strings.Contains(out.String(), "ready") })
	_, _ = io.WriteString(tty, "typed ☃\n")
	waittest.Until(t, "answer", func() bool { return strings.Contains(out.String(), "got typed ☃") })
	_, _ = io.WriteString(tty, "\x04") // the end of input
	_ = tty.wait()
	r := e2e.WaitForRecording(t, ns, "terminal", recordedCommand(word))
	shown := out.String()
	shown = shown[strings.Index(shown, "ready"):] // kubectl may print something before
	if got := r.Events[recording.Output]; got != shown {
		t.Errorf("recorded %q\nwant %q", got, shown)
	}
	if !r.TTY || !strings.HasPrefix(r.Events[recording.Resize], "111x33") ||
		!strings.HasPrefix(r.Events[recording.Input], "typed ☃") {
		t.Errorf("recorded %q of %+v", r.Events, r.Info)
	}
}

// TestFailingRecorder: kubectl must show why a session ended whose recording is required, in any dialect. Another
// session must go on.
func TestFailingRecorder(t *testing.T) {
	g := e2e.Through(t, "member1")
	for _, level := range []string{"required", "bestEffort"} {
		ns := e2e.StreamPods(t, []string{"member1"}, "shell")
		e2e.RecordNamespace(t, ns, level, false, func() { g.Run(t, "-n", ns, "exec", "shell", "--", "true") })
		for _, dialect := range e2e.Dialects {
			g.Env = dialect.Env
			t.Run(level+"/"+dialect.Name, func(t *testing.T) { checkFailingRecorder(t, g, ns, dialect.Name, level) })
		}
	}
}

// checkFailingRecorder opens a session and makes its recording fail: the store refuses a directory that is open to
// others.
func checkFailingRecorder(t *testing.T, g e2e.Kubectl, ns, word, level string) {
	t.Helper()
	s := g.Start(t, e2e.Clusters.BuiltKubectl(), "-n", ns, "exec", "-i", "shell", "--", "sh", "-c",
		"while read x; do echo got $x; done; : "+word)
	talk := func(word string) {
		_, _ = fmt.Fprintln(s.Stdin, word)
		s.Line("got " + word)
	}
	talk("before")
	all := e2e.RecordingsOf(t, ns)
	i := slices.IndexFunc(all, recordedCommand(": "+word))
	if i < 0 {
		t.Fatalf("no recording in %+v", all)
	}
	dir := filepath.Join(e2e.RecordingsDir(t), all[i].ID)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	wantCode := 0
	if level == "required" {
		wantCode = 1
	} else {
		waittest.Until(t, "the recording has failed", func() bool {
			talk("during")
			return strings.Contains(e2e.SharedLog(), all[i].ID)
		})
		talk("after")
		_ = s.Stdin.Close()
	}
	if code := s.ExitCode(); code != wantCode {
		t.Errorf("exit %d\n%s", code, s.Stderr)
	}
	if level == "required" {
		e2e.WantText(t, s.Stderr.String(), "the session was ended: its required recording failed")
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := e2e.CLI(t, "", "recording", "verify", all[i].ID)
	if err == nil || !strings.Contains(out, "not complete") {
		t.Errorf("verify: %s%v", out, err)
	}
}

// TestKilledBridge: what a session showed must survive the bridge, and the recording must not look complete.
func TestKilledBridge(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell")
	g := e2e.Through(t, "member1")
	e2e.RecordNamespace(t, ns, "required", false, func() { g.Run(t, "-n", ns, "exec", "shell", "--", "true") })
	b := e2e.StartBridgeProgram(t, e2e.Program(t, "websocket-bridge", "bridge"),
		"CLUSTERPASS_RECORDINGS=dir:"+e2e.RecordingsDir(t))
	g.Server = "https://" + e2e.BridgeFront(t, b) + "/clusters/member1"
	s := g.Start(t, e2e.Clusters.BuiltKubectl(), "-n", ns, "exec", "-i", "shell", "--", "cat")
	_, _ = fmt.Fprintln(s.Stdin, "before the end")
	s.Line("before the end")
	var cut e2e.Recording
	isStored := func(r e2e.Recording) bool { return r.Events[recording.Output] == "before the end\n" }
	waittest.Until(t, "output is stored", func() bool {
		all := e2e.RecordingsOf(t, ns)
		i := slices.IndexFunc(all, isStored)
		if i >= 0 {
			cut = all[i]
		}
		return i >= 0
	})
	if err := b.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if code := s.ExitCode(); code == 0 {
		t.Error("the session looks complete")
	}
	out, err := e2e.CLI(t, "", "recording", "verify", cut.ID)
	if err == nil || !strings.Contains(out, "not complete") || !cut.HasNoEnd {
		t.Errorf("verify: %s%v", out, err)
	}
}

// TestRequiredRecordingsOfOtherPrograms: a bridge without a store of recordings must refuse sessions, and functions
// must refuse proxies that could hide one.
func TestRequiredRecordingsOfOtherPrograms(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell")
	g := e2e.Through(t, "member1")
	e2e.RecordNamespace(t, ns, "required", false, func() { g.Run(t, "-n", ns, "exec", "shell", "--", "true") })
	bare := g
	b := e2e.StartBridgeProgram(t, e2e.Program(t, "websocket-bridge", "bridge"))
	bare.Server = "https://" + e2e.BridgeFront(t, b) + "/clusters/member1"
	if r := bare.Run(t, "-n", ns, "get", "pod", "shell"); r.Code != 0 {
		t.Errorf("a request that is no session: %v", r)
	}
	for _, dialect := range e2e.Dialects {
		bare.Env = dialect.Env
		if r := bare.Run(t, "-n", ns, "exec", "shell", "--", "true"); r.Code != 1 ||
			!strings.Contains(r.Stderr, "the recorder cannot begin") {
			t.Errorf("%s: %v", dialect.Name, r)
		}
	}
	if n := b.Metric(`clusterpass_recording_failures_total{level="required"}`); n == "" || n == "0" {
		t.Errorf("%q failures are counted", n)
	}
	client, root := e2e.Caller(t)
	k := e2e.OwnAPI(t)
	k.Must(t, "patch", "cluster", "member1", "--type", "merge", "-p", `{"spec":{"serviceProxy":["nodes/*"]}}`)
	t.Cleanup(func() {
		k.Run(t, "patch", "cluster", "member1", "--type", "merge", "-p", `{"spec":{"serviceProxy":null}}`)
	})
	var body []byte
	waittest.Until(t, "nodes/proxy is refused for its missing recording", func() bool {
		url := root + "/clusters/member1/api/v1/nodes/member1-node/proxy/run/" + ns + "/shell/shell?cmd=id"
		resp, err := client.Post(url, "", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err = io.ReadAll(resp.Body)
		return err == nil && resp.StatusCode == http.StatusForbidden && strings.Contains(string(body), "requires recordings")
	})
}
