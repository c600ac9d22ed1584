package streams_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// eachDialect runs a test for every kubectl, dialect and cluster. The tests of one cluster share a namespace with pods.
func eachDialect(t *testing.T, pods []string, test func(t *testing.T, bin, ns string, d, g e2e.Kubectl)) {
	t.Helper()
	for _, cluster := range e2e.Members {
		ns := e2e.StreamPods(t, []string{cluster}, pods...)
		for version, bin := range e2e.Kubectls() {
			for _, dialect := range e2e.Dialects {
				t.Run(fmt.Sprintf("%s/%s/%s", cluster, version, dialect.Name), func(t *testing.T) {
					d, g := e2e.Direct(cluster), e2e.Through(t, cluster)
					d.Env, g.Env = dialect.Env, dialect.Env
					test(t, bin, ns, d, g)
				})
			}
		}
	}
}

func directlyAndThrough(t *testing.T, test func(t *testing.T, bin, ns string, k e2e.Kubectl)) {
	t.Helper()
	eachDialect(t, []string{"shell"}, func(t *testing.T, bin, ns string, d, g e2e.Kubectl) {
		t.Run("directly", func(t *testing.T) { test(t, bin, ns, d) })
		t.Run("through", func(t *testing.T) { test(t, bin, ns, g) })
	})
}

// TestStreamsThatEnd: commands must have the same exit code and complete output through the gateway.
func TestStreamsThatEnd(t *testing.T) {
	tests := []struct {
		stdin string
		args  []string
	}{
		{"", []string{"exec", "shell", "--", "echo", "hello"}},
		{"", []string{"exec", "shell", "--", "sh", "-c", "echo out; echo err >&2; exit 7"}},
		{"", []string{"exec", "shell", "--", "nosuchcommand"}},
		{"", []string{"exec", "nosuchpod", "--", "true"}},
		{"one\ntwo\n", []string{"exec", "-i", "shell", "--", "cat"}},
		{strings.Repeat("0123456789", 100_000), []string{"exec", "-i", "shell", "--", "wc", "-c"}},
		{"ignored", []string{"exec", "-i", "shell", "--", "true"}},
		{"", []string{"logs", "-f", "finite-a"}},
		{"", []string{"logs", "-f", "-l", "app=finite", "--prefix"}},
		{"", []string{"logs", "-f", "-l", "app=finite", "--since=10h", "--tail=2"}},
		{"", []string{"logs", "-f", "nosuchpod"}},
		{"", []string{"wait", "--for=condition=Ready", "pod/shell", "--timeout=4m"}},
		{"", []string{"wait", "--for=condition=Ready", "pod/finite-a", "--timeout=1s"}},
		{"", []string{"wait", "--for=delete", "pod/nosuchpod", "--timeout=4m"}},
		{"", []string{"rollout", "status", "deployment/idle", "--timeout=4m"}},
		{"", []string{"rollout", "status", "deployment/nosuch"}},
		{"", []string{"get", "pods", "-w", "--request-timeout=2s", "-o", "name", "--field-selector=metadata.name=shell"}},
		{"", []string{"port-forward", "nosuchpod", ":80"}},
		{"", []string{"attach", "finite-a"}},
	}
	eachDialect(t, []string{"shell", "finite-a", "finite-b"}, func(t *testing.T, bin, ns string, d, g e2e.Kubectl) {
		d.Apply(t, e2e.Deployment, "-n", ns)
		d.Must(t, "-n", ns, "rollout", "status", "deployment/idle", "--timeout=4m")
		for _, tt := range tests {
			e2e.CheckSameResult(t, bin, d, g, tt.stdin, append([]string{"-n", ns}, tt.args...)...)
		}
	})
}

// TestTerminal: interactive programs must have the right size, input and exit code.
func TestTerminal(t *testing.T) {
	directlyAndThrough(t, func(t *testing.T, bin, ns string, k e2e.Kubectl) {
		cmd := k.Command(t.Context(), t, bin, "-n", ns, "exec", "-it", "shell", "--", "sh")
		tty := startTerminal(t, cmd)
		out := tty.out
		write := func(format string, args ...any) {
			if _, err := fmt.Fprintf(tty, format, args...); err != nil {
				t.Fatal(err)
			}
		}
		waitForOutput := func(want string) {
			t.Helper()
			if !e2e.Within(t, func() bool { return strings.Contains(out.String(), want) }) {
				t.Fatalf("no %q in\n%s", want, out)
			}
		}
		attempts := 0
		waitForSize := func(want string) { // a size has its own stream, so it may arrive after input
			t.Helper()
			found := e2e.Within(t, func() bool {
				attempts++
				write("echo %d: $(stty size)\n", attempts)
				waitForOutput(fmt.Sprintf("%d: ", attempts))
				return strings.Contains(out.String(), want)
			})
			if !found {
				t.Fatalf("no size %s in\n%s", want, out)
			}
		}
		write("tty -s && echo terminal=$((1+1))\n")
		waitForOutput("terminal=2")
		waitForSize("33 111")
		if err := pty.Setsize(tty.File, &pty.Winsize{Rows: 44, Cols: 122}); err != nil {
			t.Fatal(err)
		}
		waitForSize("44 122")
		write("exit 5\n")
		err := tty.wait()
		if cmd.ProcessState.ExitCode() != 5 {
			t.Errorf("exit %v\n%s", err, out)
		}
	})
}

// TestFollowing: events and lines must arrive at once, not only at the end.
func TestFollowing(t *testing.T) {
	pods := []string{"shell", "reader", "talker-a", "talker-b"}
	eachDialect(t, pods, func(t *testing.T, bin, ns string, d, g e2e.Kubectl) {
		clients := []e2e.Kubectl{d, g}
		var watches, logs, attached []*e2e.Session
		for _, k := range clients {
			watches = append(watches, k.Start(t, bin, "-n", ns, "get", "pods", "-w", "-L", "moved"))
			logs = append(logs, k.Start(t, bin, "-n", ns, "logs", "-f", "-l", "app=talker", "--prefix", "--since=1s"))
			attached = append(attached, k.Start(t, bin, "-n", ns, "attach", "-i", "reader"))
		}
		label := fmt.Sprint("at-", time.Now().UnixNano())
		for _, watch := range watches {
			watch.Line("shell")
		}
		d.Must(t, "-n", ns, "label", "pod", "shell", "--overwrite", "moved="+label)
		for i := range clients {
			watches[i].Line(label)
			logs[i].Line("[pod/talker-a/talker] a ")
			logs[i].Line("[pod/talker-b/talker] b ")
			for j := range 3 {
				if _, err := fmt.Fprintf(attached[i].Stdin, "line %s %d %d\n", label, i, j); err != nil {
					t.Fatal(err)
				}
				attached[i].Line(fmt.Sprintf("got line %s %d %d", label, i, j))
			}
		}
	})
}

// TestFollowedLogIsWhole: the gateway must not lose or repeat lines.
func TestFollowedLogIsWhole(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "talker-a")
	s := e2e.Through(t, "member1").Start(t, e2e.Clusters.BuiltKubectl(), "-n", ns, "logs", "-f", "talker-a")
	for i := range 40 {
		if line := s.WaitForLine("a line", func(string) bool { return true }); line != fmt.Sprint("a ", i) {
			t.Fatalf("line %d is %q", i, line)
		}
	}
}

func TestRollout(t *testing.T) {
	for _, cluster := range e2e.Members {
		for version, bin := range e2e.Kubectls() {
			t.Run(cluster+"/"+version, func(t *testing.T) {
				g, ns := e2e.Through(t, cluster), e2e.NewNamespace(t, cluster)
				g.Apply(t, e2e.Deployment, "-n", ns)
				d, r := e2e.RunTogether(t, bin, e2e.Direct(cluster), g, "", "-n", ns, "rollout", "status", "deployment/idle",
					"--timeout=4m")
				// The number of progress lines varies.
				last := func(r e2e.Result) string { return r.Stdout[strings.LastIndex(strings.TrimSpace(r.Stdout), "\n")+1:] }
				if d.Code != 0 || r.Code != 0 || last(d) != last(r) || !strings.Contains(last(r), "successfully rolled out") {
					t.Errorf("directly: %v\nthrough the gateway: %v", d, r)
				}
			})
		}
	}
}

func TestDebug(t *testing.T) {
	eachDialect(t, []string{"shell"}, func(t *testing.T, bin, ns string, d, g e2e.Kubectl) {
		// kube-apiserver may lose the last output of a command that ends before its stdin, which kubectl debug never ends.
		r := e2e.CheckSameResult(t, bin, d, g, "it\n", "-n", ns, "debug", "shell", "-i", "--quiet", "--image=any", "--", "sh",
			"-c", "read x; echo debugged $x; sleep 1")
		if !strings.Contains(r.Stdout, "debugged it\n") {
			t.Errorf("debug: %v", r)
		}
	})
}

func TestKubectlProxy(t *testing.T) {
	for _, cluster := range e2e.Members {
		ns := e2e.StreamPods(t, []string{cluster}, "finite-a")
		for version, bin := range e2e.Kubectls() {
			t.Run(cluster+"/"+version, func(t *testing.T) {
				var urls [2]string
				var proxies [2]*e2e.Session
				for i, k := range []e2e.Kubectl{e2e.Direct(cluster), e2e.Through(t, cluster)} {
					proxies[i] = k.Start(t, bin, "proxy", "--port=0")
				}
				for i, s := range proxies {
					urls[i] = "http://" + strings.TrimPrefix(s.Line("Starting to serve on "), "Starting to serve on ")
				}
				urls[1] += "/clusters/" + cluster // kubectl proxies the root of the host
				read := func(url string) string {
					resp, err := http.Get(url)
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					body, err := io.ReadAll(resp.Body)
					if err != nil || resp.StatusCode != http.StatusOK {
						t.Logf("%s: %s, %v\n%.200s", url, resp.Status, err, body)
						return ""
					}
					return string(body)
				}
				for _, path := range []string{"/finite-a", "?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dfinite-a",
					"/finite-a/log?follow=true"} {
					var d, g string
					t.Cleanup(func() {
						if t.Failed() {
							t.Logf("%s\ndirectly: %s\nthrough the gateway: %s", path, d, g)
						}
					})
					// A slow API server may send nothing within the watch's second.
					waittest.Until(t, "same answer of "+path, func() bool {
						path := "/api/v1/namespaces/" + ns + "/pods" + path
						d, g = read(urls[0]+path), read(urls[1]+path)
						return d == g && d != ""
					})
				}
			})
		}
	}
}

// TestPortForward: connections must not mix their bytes, or end with each other.
func TestPortForward(t *testing.T) {
	port := e2e.EchoServer(t)
	directlyAndThrough(t, func(t *testing.T, bin, ns string, k e2e.Kubectl) {
		_, addr := e2e.PortForward(t, k, bin, ns, port)
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				want := bytes.Repeat([]byte{byte(i)}, 300_000+i)
				if got, err := e2e.RoundTrip(addr, want); err != nil || !bytes.Equal(got, want) {
					t.Errorf("connection %d: %d of %d bytes, %v", i, len(got), len(want), err)
				}
			})
		}
		wg.Wait()
	})
}
