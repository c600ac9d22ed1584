package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"go.uber.org/goleak"

	"github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

func TestMain(m *testing.M) {
	Main()
	if null, err := os.Open(os.DevNull); err == nil {
		os.Stdin = null // no terminal
	}
	// klog flushes for the whole life of a process.
	leaktest.Main(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// marker is part of every text in a definition that must not be stored or printed.
const marker = "sesame-open"

// program is a credential plugin in shell. It writes a line into the file runs, and runs its last lines in its folder.
type program struct {
	t       *testing.T
	dir     string
	version string
}

func newProgram(t *testing.T, version, script string) *program {
	t.Helper()
	p := &program{t: t, dir: t.TempDir(), version: "client.authentication.k8s.io/" + version}
	syscall.ForkLock.RLock() // the system refuses to execute a file that a child of a parallel test can still write
	p.write("plugin", "#!/bin/sh\ncd '"+p.dir+"' || exit 9\necho run >> runs\n"+script+"\n")
	syscall.ForkLock.RUnlock()
	if err := os.Chmod(filepath.Join(p.dir, "plugin"), 0o700); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *program) write(name, content string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *program) read(name string) string {
	data, _ := os.ReadFile(filepath.Join(p.dir, name))
	return string(data)
}

// answer sets the token and the expiry in the file that "cat answer" prints.
func (p *program) answer(token string, expires time.Time) {
	p.t.Helper()
	p.write("answer", fmt.Sprintf(`{"apiVersion":%q,"kind":"ExecCredential",`+
		`"status":{"token":%q,"expirationTimestamp":%q}}`, p.version, token, expires.UTC().Format(time.RFC3339)))
}

func (p *program) wantRuns(want int) {
	p.t.Helper()
	if got := strings.Count(p.read("runs"), "run\n"); got != want {
		p.t.Errorf("the plugin ran %d times, want %d", got, want)
	}
}

// kubeconfig returns one whose definition has these further fields, in YAML.
func (p *program) kubeconfig(fields string) secrets.Value {
	return secrets.NewValue(fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c,
contexts: [{name: c, context: {cluster: c, user: u, namespace: shop}}],
clusters: [{name: c, cluster: {server: "https://member.example.com:6443", certificate-authority-data: Q0E=,
  tls-server-name: other.example.com,
  extensions: [{name: client.authentication.k8s.io/exec, extension: {audience: %s-config}}]}}],
users: [{name: u, user: {exec: {apiVersion: %s, command: %q, interactiveMode: Never, installHint: %s-hint%s}}}]}`,
		marker, p.version, filepath.Join(p.dir, "plugin"), marker, fields))
}

func (p *program) open(o Options, fields string) *Plugin {
	p.t.Helper()
	plugin, _, err := Open(p.kubeconfig(fields), o)
	if err != nil || plugin == nil {
		p.t.Fatalf("%v, %v", plugin, err)
	}
	return plugin
}

func wantToken(t *testing.T, p *Plugin, want string) {
	t.Helper()
	if got, err := p.Credential(t.Context()); err != nil || got.Token != want {
		t.Errorf("token %q, %v; want %q", got.Token, err, want)
	}
}

var future, past = time.Now().Add(24 * time.Hour), time.Now().Add(-time.Hour)

// TestPluginRunsAsForKubectl: a plugin that works with kubectl works here, so it needs the same arguments and
// environment.
func TestPluginRunsAsForKubectl(t *testing.T) {
	t.Setenv("OF_THE_GATEWAY", "inherited")
	for _, version := range []string{"v1", "v1beta1"} {
		t.Run(version, func(t *testing.T) {
			prog := newProgram(t, version, `printf '%s\n' "$@" > args; env > env; cat answer`)
			prog.answer("the-token", future)
			plugin, stored, err := Open(prog.kubeconfig(`, provideClusterInfo: true, args: [get-token, `+marker+`-arg, ""],
				env: [{name: OF_THE_DEFINITION, value: `+marker+`-env}, {name: PATH, value: "/nowhere:/usr/bin:/bin"}]`), Options{})
			if err != nil {
				t.Fatal(err)
			}
			wantToken(t, plugin, "the-token")
			if args := prog.read("args"); args != "get-token\n"+marker+"-arg\n\n" {
				t.Errorf("arguments %q", args)
			}
			for _, want := range []string{
				"OF_THE_GATEWAY=inherited\n", "OF_THE_DEFINITION=" + marker + "-env\n", "PATH=/nowhere:/usr/bin:/bin\n",
				`"server":"https://member.example.com:6443"`, `"tls-server-name":"other.example.com"`,
				`"config":{"audience":"` + marker + `-config"}`, `"interactive":false`, `"apiVersion":"` + prog.version + `"`,
			} {
				if !strings.Contains(prog.read("env"), want) {
					t.Errorf("the environment lacks %s:\n%s", want, prog.read("env"))
				}
			}
			parsed, err := kubeconfig.Parse(stored.Reveal(), kubeconfig.Options{})
			if text := string(stored.Reveal()); strings.Contains(text, marker) || strings.Contains(text, "plugin") {
				t.Errorf("the definition would be stored: %s", text)
			}
			if err == nil || !strings.Contains(err.Error(), "certificate-authority-data: contains no PEM") {
				t.Errorf("%v, %v", parsed, err)
			}
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
				if out := fmt.Sprintf(verb, plugin); strings.Contains(out, marker) || strings.Contains(out, "the-token") {
					t.Errorf("%s prints %s", verb, out)
				}
			}
		})
	}
}

// TestPluginIsOpened lists which contexts get a plugin. The others are left to package kubeconfig.
func TestPluginIsOpened(t *testing.T) {
	prog := newProgram(t, "v1", "")
	base := string(prog.kubeconfig("").Reveal())
	replace := func(old, by string) string { return strings.Replace(base, old, by, 1) }
	for _, tt := range []struct {
		name, kubeconfig, wantErr string
		want                      bool
	}{
		{"a plugin", base, "", true},
		{"a token beside it", replace("{exec: ", "{token: t, exec: "), "", false},
		{"impersonation beside it", replace("{exec: ", "{as: root, exec: "), "", false},
		{"no plugin", replace("{exec: ", "{token: t, x: "), "", false},
		{"no user", replace("users: ", "x: "), "", false},
		{"no interactiveMode", replace("interactiveMode: Never, ", ""), "interactiveMode must be specified", false},
		{"an unknown version", replace("k8s.io/v1", "k8s.io/v2"), "invalid apiVersion", false},
		{"no kubeconfig", "token: " + marker + "\n: ]", "not the YAML or JSON of a kubeconfig", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, stored, err := Open(secrets.NewValue([]byte(tt.kubeconfig)), Options{})
			if (p != nil) != tt.want || (err == nil) != (tt.wantErr == "") {
				t.Errorf("%v, %v", p, err)
			}
			if err != nil && (!strings.Contains(err.Error(), tt.wantErr) || strings.Contains(err.Error(), marker)) {
				t.Errorf("error %v, want %q", err, tt.wantErr)
			}
			if isWhole := string(stored.Reveal()) == tt.kubeconfig; isWhole == tt.want {
				t.Errorf("the stored kubeconfig is %s", stored.Reveal())
			}
		})
	}
}

// TestCredentialExpires: a token is used as long as it is valid, and no longer.
func TestCredentialExpires(t *testing.T) {
	prog := newProgram(t, "v1", "cat answer")
	plugin := prog.open(Options{}, "")
	prog.answer("first", past)
	wantToken(t, plugin, "first") // as for kubectl, each request of an expired token runs the plugin
	prog.answer("second", future)
	wantToken(t, plugin, "second")
	runs := strings.Count(prog.read("runs"), "run\n")
	prog.answer("third", future)
	wantToken(t, plugin, "second")
	prog.wantRuns(runs)
}

// TestFailuresAreExplained: errors reach clients, logs and stores. They must help, and not show the plugin's output.
func TestFailuresAreExplained(t *testing.T) {
	const valid = `"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1"`
	for _, tt := range []struct{ name, script, fields, want string }{
		{"it fails", "echo " + marker + "; echo why >&2; exit 3", "",
			"it exited with code 3; its own messages are at the terminal"},
		{"it is killed", "kill -9 $$", "", "it exited with code 1"},
		{"its exit code is one of ours", "exit 240", "", "it exited with code 1"},
		{"it prints a bare token", "echo " + marker, "", "its output is no ExecCredential"},
		{"it prints a credential without a kind", `echo '{"status":{"token":"` + marker + `"}}'`, "",
			"its output is no ExecCredential"},
		{"it prints a token of a wrong type", `echo '{` + valid + `,"status":{"token":["` + marker + `"]}}'`, "",
			"its output is no ExecCredential"},
		{"it prints nothing", "", "", "its output is no ExecCredential"},
		{"it prints no credential", `echo '{` + valid + `,"status":{}}'`, "", "its output is no ExecCredential"},
		{"it prints a broken certificate",
			`echo '{` + valid + `,"status":{"clientCertificateData":"` + marker + `","clientKeyData":"x"}}'`, "",
			"it returned no valid token or certificate"},
		{"another version", `echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1",` +
			`"status":{"token":"` + marker + `"}}'`, "", "it returned another API version than its definition names"},
		{"it prints too much", "while :; do echo " + marker + marker + marker + "; done", "", "it wrote too much output"},
		{"it prints too many messages", "yes " + marker + " | head -c 10000000 >&2; exit 4", "", "it exited with code 4"},
		{"it needs a terminal", "", ", interactiveMode: Always",
			"it needs a terminal (interactiveMode: Always), and the gateway has none (standard input is not a terminal)"},
		{"it is missing", "", ", command: " + marker, "its program cannot be started: it is missing"},
		{"its path is wrong", "", ", command: /nowhere/" + marker, "its program cannot be started: it is missing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			prog := newProgram(t, "v1", tt.script)
			kc := string(prog.kubeconfig("").Reveal())
			if tt.fields != "" { // YAML keys must not be repeated
				field, _, _ := strings.Cut(strings.TrimPrefix(tt.fields, ", "), ":")
				for _, old := range []string{"interactiveMode: Never, ", `command: "` + filepath.Join(prog.dir, "plugin") + `", `} {
					if strings.HasPrefix(old, field) {
						kc = strings.Replace(kc, old, strings.TrimPrefix(tt.fields, ", ")+", ", 1)
					}
				}
			}
			plugin, _, err := Open(secrets.NewValue([]byte(kc)), Options{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = plugin.Credential(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), marker) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if _, latest := plugin.Latest(); latest == nil || latest.Error() != err.Error() {
				t.Errorf("Latest returns %v, want %v", latest, err)
			}
		})
	}
}

// TestFailedPluginPauses: kubectl sends several requests for one command, and each would start a plugin that fails.
func TestFailedPluginPauses(t *testing.T) {
	for _, tt := range []struct {
		pause    time.Duration
		wantRuns int
	}{{time.Hour, 1}, {time.Nanosecond, 3}} {
		prog := newProgram(t, "v1", "cat answer")
		plugin := prog.open(Options{Pause: tt.pause}, "")
		for range 3 {
			if _, err := plugin.Credential(t.Context()); err == nil {
				t.Error("no error")
			}
		}
		prog.wantRuns(tt.wantRuns)
		prog.answer("good", future)
		if tt.pause > time.Minute {
			continue
		}
		wantToken(t, plugin, "good")
		if got, err := plugin.Latest(); err != nil || got.Token != "good" {
			t.Errorf("%q, %v", got.Token, err)
		}
	}
}

// TestRefusedCredential: a revoked token is renewed once, and a token that is refused for good runs the plugin rarely.
func TestRefusedCredential(t *testing.T) {
	for _, pause := range []time.Duration{time.Nanosecond, time.Hour} {
		prog := newProgram(t, "v1", "cat answer")
		plugin := prog.open(Options{Pause: pause}, "")
		prog.answer("first", future)
		wantToken(t, plugin, "first")
		prog.answer("second", future)
		isRare := pause == time.Hour
		if got := plugin.Renew(t.Context(), "first"); got == isRare {
			t.Errorf("pause %v: renewed %v", pause, got)
		}
		if isRare {
			prog.wantRuns(1)
			continue
		}
		prog.wantRuns(2)
		wantToken(t, plugin, "second")
		if !plugin.Renew(t.Context(), "first") { // as a concurrent request would
			t.Error("the second token is not used for a request that sent the first")
		}
		prog.wantRuns(2)
		if plugin.Renew(t.Context(), "second") {
			t.Error("the same token counts as another one")
		}
		prog.wantRuns(3)
		prog.write("answer", "broken")
		if plugin.Renew(t.Context(), "second") {
			t.Error("a plugin that fails counts as another token")
		}
		prog.wantRuns(4)
		wantToken(t, plugin, "second") // it has not expired
	}
}

// TestCallersShareRuns: many requests must not start many plugins. A caller who leaves must not end the run of others.
func TestCallersShareRuns(t *testing.T) {
	prog := newProgram(t, "v1", "cat gate; cat answer")
	if err := syscall.Mkfifo(filepath.Join(prog.dir, "gate"), 0o600); err != nil {
		t.Fatal(err)
	}
	prog.answer("good", future)
	plugin := prog.open(Options{Wait: waittest.Patience}, "")
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() { wantToken(t, plugin, "good") })
	}
	gone, leave := context.WithCancel(t.Context())
	waittest.Until(t, "the plugin runs", func() bool { return prog.read("runs") != "" })
	leave()
	if _, err := plugin.Credential(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who is gone: %v", err)
	}
	impatient := prog.open(Options{Wait: time.Millisecond}, "") // client-go shares the run of one definition
	if _, err := impatient.Credential(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller who waited: %v", err)
	}
	prog.write("gate", "") // blocks until the plugin reads, and lets it go on
	group.Wait()
	waittest.Until(t, "the other caller's run ends", func() bool {
		got, err := impatient.Latest()
		return err == nil && got.Token == "good"
	})
	prog.wantRuns(1)
}

// hang is a plugin that starts a child, and never ends.
const hang = "sleep 100000 & echo $! > child; echo $$ > self; wait"

func isRunning(pid string) bool {
	n, err := strconv.Atoi(strings.TrimSpace(pid))
	if err != nil || syscall.Kill(n, 0) != nil {
		return false
	}
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n)) // a zombie has ended
	return err != nil || !strings.Contains(string(state), ") Z ")
}

// TestHangingPluginEnds: a plugin that never ends must not stay, nor its children.
func TestHangingPluginEnds(t *testing.T) {
	prog := newProgram(t, "v1", "trap '' TERM; "+hang)
	plugin := prog.open(Options{Limit: time.Second}, "")
	if _, err := plugin.Credential(t.Context()); err == nil || err.Error() != reasons[codeTooSlow] {
		t.Errorf("error %v", err)
	}
	for _, process := range []string{"self", "child"} {
		waittest.Until(t, process+" has ended", func() bool { return !isRunning(prog.read(process)) })
	}
}

// TestPluginOnTerminal: a plugin may ask the user for a password at the terminal of the gateway.
func TestPluginOnTerminal(t *testing.T) {
	terminal, stdin, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	defer stdin.Close()
	was := os.Stdin
	os.Stdin = stdin
	defer func() { os.Stdin = was }()
	prog := newProgram(t, "v1", `read password; echo '{"apiVersion":"client.authentication.k8s.io/v1",`+
		`"kind":"ExecCredential","status":{"token":"'"$password"'"}}'`)
	kc := strings.Replace(string(prog.kubeconfig("").Reveal()), "interactiveMode: Never", "interactiveMode: Always", 1)
	plugin, _, err := Open(secrets.NewValue([]byte(kc)), Options{Wait: waittest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := terminal.WriteString("typed\n"); err != nil {
		t.Fatal(err)
	}
	wantToken(t, plugin, "typed")
}
