package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
)

// eachDialect runs a test for every kubectl, dialect and cluster.
func eachDialect(t *testing.T, test func(t *testing.T, bin, cluster string, d, g kubectl)) {
	t.Helper()
	for _, cluster := range []string{"member1", "member2"} {
		withStreamPods(t, cluster)
		for version, bin := range kubectls() {
			for _, dia := range dialects {
				t.Run(fmt.Sprintf("%s/%s/%s", cluster, version, dia.name), func(t *testing.T) {
					d, g := direct(cluster), through(t, cluster)
					d.env, g.env = dia.env, dia.env
					test(t, bin, cluster, d, g)
				})
			}
		}
	}
}

// bothWays runs a test for every kubectl, dialect and cluster, directly and through the gateway.
func bothWays(t *testing.T, test func(t *testing.T, bin string, k kubectl)) {
	t.Helper()
	eachDialect(t, func(t *testing.T, bin, _ string, d, g kubectl) {
		t.Run("directly", func(t *testing.T) { test(t, bin, d) })
		t.Run("through", func(t *testing.T) { test(t, bin, g) })
	})
}

// TestStreamsThatEnd compares commands that stream and come to an end, directly and through the gateway: exit code and every byte
// of both outputs.
func TestStreamsThatEnd(t *testing.T) {
	in := func(args ...string) []string { return append([]string{"-n", "streams"}, args...) }
	tests := []struct {
		stdin string
		args  []string
	}{
		{"", in("exec", "shell", "--", "echo", "hello")},
		{"", in("exec", "shell", "--", "sh", "-c", "echo out; echo err >&2; exit 7")},
		{"", in("exec", "shell", "--", "nosuchcommand")},
		{"", in("exec", "nosuchpod", "--", "true")},
		{"one\ntwo\n", in("exec", "-i", "shell", "--", "cat")},
		{strings.Repeat("0123456789", 100_000), in("exec", "-i", "shell", "--", "wc", "-c")},
		{"ignored", in("exec", "-i", "shell", "--", "true")},
		{"", in("logs", "-f", "finite-a")},
		{"", in("logs", "-f", "-l", "app=finite", "--prefix")},
		{"", in("logs", "-f", "-l", "app=finite", "--since=10h", "--tail=2")},
		{"", in("logs", "-f", "nosuchpod")},
		{"", in("wait", "--for=condition=Ready", "pod/shell", "--timeout=4m")},
		{"", in("wait", "--for=condition=Ready", "pod/finite-a", "--timeout=1s")},
		{"", in("wait", "--for=delete", "pod/nosuchpod", "--timeout=4m")},
		{"", in("rollout", "status", "deployment/still", "--timeout=4m")},
		{"", in("rollout", "status", "deployment/nosuch")},
		{"", in("get", "pods", "-w", "--request-timeout=2s", "-o", "name", "--field-selector=metadata.name=shell")},
		{"", in("port-forward", "nosuchpod", ":80")},
		{"", in("attach", "finite-a")},
	}
	eachDialect(t, func(t *testing.T, bin, _ string, d, g kubectl) {
		for _, tt := range tests {
			sameEnd(t, bin, d, g, tt.stdin, tt.args...)
		}
	})
}

// sameEnd runs one command both ways at once and compares exit code and outputs. It returns that of the gateway's way.
func sameEnd(t *testing.T, bin string, d, g kubectl, stdin string, args ...string) result {
	t.Helper()
	var dr, gr result
	hurried := slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--request-timeout=") }) // it may be over before anything came
	// A command that ends before its stdin does may lose its verdict in kube-apiserver, and its last words, either way.
	hurried = hurried || stdin != "" && !slices.Contains(args, "cat") && !slices.Contains(args, "wc")
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); { // stderr of kubectl depends on time now and then, and nothing else does
		var wg sync.WaitGroup
		wg.Go(func() { dr = d.runWith(t, bin, strings.NewReader(stdin), args...) })
		wg.Go(func() { gr = g.runWith(t, bin, strings.NewReader(stdin), args...) })
		wg.Wait()
		same := dr.code == gr.code && sorted(dr.stdout) == sorted(gr.stdout)
		if !same && !hurried {
			break
		}
		if same && normal(dr.stderr) == normal(gr.stderr) {
			return gr
		}
	}
	t.Errorf("kubectl %s\ndirectly: %v\nthrough the gateway: %v", strings.Join(args, " "), dr, gr)
	return gr
}

// TestTerminal holds: exec -it has a terminal of the client's size, follows its resizing, and carries keys and the exit code, as it does
// directly.
func TestTerminal(t *testing.T) {
	bothWays(t, func(t *testing.T, bin string, k kubectl) {
		cmd := k.command(t.Context(), t, bin, "-n", "streams", "exec", "-it", "shell", "--", "sh")
		cmd.SysProcAttr = nil // pty makes a session of its own
		cmd.Cancel = nil
		tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 111})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tty.Close() }()
		out := &lockedBuffer{}
		copied := make(chan struct{})
		go func() {
			defer close(copied)
			_, _ = io.Copy(out, tty)
		}()
		say := func(format string, args ...any) {
			if _, err := fmt.Fprintf(tty, format, args...); err != nil {
				t.Fatal(err)
			}
		}
		hear := func(want string) {
			t.Helper()
			for range int(patience / (50 * time.Millisecond)) {
				if strings.Contains(out.String(), want) {
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
			t.Fatalf("no %q in\n%s", want, out)
		}
		asked := 0
		hearSize := func(want string) { // sizes take a way of their own
			t.Helper()
			for range 1000 {
				asked++
				say("echo %d: $(stty size)\n", asked)
				hear(fmt.Sprintf("%d: ", asked))
				if strings.Contains(out.String(), want) {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
			t.Fatalf("no size %s in\n%s", want, out)
		}
		say("tty -s && echo terminal=$((1+1))\n")
		hear("terminal=2")
		hearSize("33 111")
		if err := pty.Setsize(tty, &pty.Winsize{Rows: 44, Cols: 122}); err != nil {
			t.Fatal(err)
		}
		hearSize("44 122")
		say("exit 5\n")
		err = cmd.Wait()
		_ = tty.Close()
		<-copied
		if cmd.ProcessState.ExitCode() != 5 {
			t.Errorf("exit %v\n%s", err, out)
		}
	})
}

// TestFollowing holds: watches, followed logs and attached terminals deliver as things happen, as they do directly.
func TestFollowing(t *testing.T) {
	eachDialect(t, func(t *testing.T, bin, _ string, d, g kubectl) {
		ways := []kubectl{d, g}
		var watches, logs, attached []*session
		for _, k := range ways {
			watches = append(watches, k.start(t, bin, "-n", "streams", "get", "pods", "-w", "-L", "moved"))
			logs = append(logs, k.start(t, bin, "-n", "streams", "logs", "-f", "-l", "app=talker", "--prefix", "--since=1s"))
			attached = append(attached, k.start(t, bin, "-n", "streams", "attach", "-i", "reader"))
		}
		label := fmt.Sprint("at-", time.Now().UnixNano())
		for _, watch := range watches {
			watch.line("shell")
		}
		d.must(t, "-n", "streams", "label", "pod", "shell", "--overwrite", "moved="+label)
		for i := range ways {
			watches[i].line(label)
			logs[i].line("[pod/talker-a/talker] a ")
			logs[i].line("[pod/talker-b/talker] b ")
			for j := range 3 {
				if _, err := fmt.Fprintf(attached[i].stdin, "line %s %d %d\n", label, i, j); err != nil {
					t.Fatal(err)
				}
				attached[i].line(fmt.Sprintf("got line %s %d %d", label, i, j))
			}
		}
	})
}

// TestFollowedLogIsWhole holds: no line is lost or doubled.
func TestFollowedLogIsWhole(t *testing.T) {
	withStreamPods(t, "member1")
	s := through(t, "member1").start(t, clusters.BuiltKubectl(), "-n", "streams", "logs", "-f", "talker-a")
	for i := range 40 {
		if line := s.wants("a line", func(string) bool { return true }); line != fmt.Sprint("a ", i) {
			t.Fatalf("line %d is %q", i, line)
		}
	}
}

// TestRollout follows a rollout as it goes on, to the same end as directly.
func TestRollout(t *testing.T) {
	for _, cluster := range []string{"member1", "member2"} {
		for version, bin := range kubectls() {
			t.Run(cluster+"/"+version, func(t *testing.T) {
				withStreamPods(t, cluster)
				g := through(t, cluster)
				g.must(t, "apply", "-f", manifest(t, "streams", deployment))
				t.Cleanup(func() { g.run(t, "-n", "streams", "delete", "deployment", "idle", "--wait=false") })
				var ends [2]result
				var wg sync.WaitGroup
				for i, k := range []kubectl{direct(cluster), g} {
					wg.Go(func() {
						ends[i] = k.runWith(t, bin, nil, "-n", "streams", "rollout", "status", "deployment/idle", "--timeout=4m")
					})
				}
				wg.Wait()
				last := func(r result) string { return r.stdout[strings.LastIndex(strings.TrimSpace(r.stdout), "\n")+1:] } // how often it is told of progress is chance
				if d, g := ends[0], ends[1]; d.code != 0 || g.code != 0 || last(d) != last(g) || !strings.Contains(last(g), "successfully rolled out") {
					t.Errorf("directly: %v\nthrough the gateway: %v", d, g)
				}
			})
		}
	}
}

// TestDebug holds: a container that is put into a running pod is talked to as it is directly.
func TestDebug(t *testing.T) {
	eachDialect(t, func(t *testing.T, bin, _ string, d, g kubectl) {
		r := sameEnd(t, bin, d, g, "it\n", "-n", "streams", "debug", "shell", "-i", "--quiet", "--image=any", "--", "sh", "-c", "read x; echo debugged $x; sleep 1")
		if !strings.Contains(r.stdout, "debugged it\n") {
			t.Errorf("debug: %v", r)
		}
	})
}

// TestKubectlProxy holds: kubectl proxy on top of the gateway carries calls and watches as on top of the cluster.
func TestKubectlProxy(t *testing.T) {
	for _, cluster := range []string{"member1", "member2"} {
		withStreamPods(t, cluster)
		for version, bin := range kubectls() {
			t.Run(cluster+"/"+version, func(t *testing.T) {
				var urls [2]string
				var proxies [2]*session
				for i, k := range []kubectl{direct(cluster), through(t, cluster)} {
					proxies[i] = k.start(t, bin, "proxy", "--port=0")
				}
				for i, s := range proxies {
					urls[i] = "http://" + strings.TrimPrefix(s.line("Starting to serve on "), "Starting to serve on ")
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
				for _, path := range []string{"/finite-a", "?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dfinite-a", "/finite-a/log?follow=true"} {
					var d, g string
					t.Cleanup(func() {
						if t.Failed() {
							t.Logf("%s\ndirectly: %s\nthrough the gateway: %s", path, d, g)
						}
					})
					eventually(t, func() bool { // within its second, a slow API server shows nothing
						path := "/api/v1/namespaces/streams/pods" + path
						d, g = read(urls[0]+path), read(urls[1]+path)
						return d == g && d != ""
					})
				}
			})
		}
	}
}

// echoServer answers each connection with what it sends, until its half ends.
func echoServer(t *testing.T) int {
	t.Helper()
	return accept(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
}

// accept hands each connection to talk and closes it then. It returns its port.
func accept(t *testing.T, talk func(net.Conn)) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				talk(c)
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); wg.Wait() })
	return ln.Addr().(*net.TCPAddr).Port
}

// forward starts kubectl port-forward to a port of pod shell and returns the local address.
func forward(t *testing.T, k kubectl, bin string, port int) (*session, string) {
	t.Helper()
	s := k.start(t, bin, "-n", "streams", "port-forward", "shell", fmt.Sprintf(":%d", port))
	line := s.line("Forwarding from 127.0.0.1:")
	addr, _, _ := strings.Cut(strings.TrimPrefix(line, "Forwarding from "), " ")
	return s, addr
}

// TestPortForward holds: several connections at once, each with its own bytes and its own end, as it is directly.
func TestPortForward(t *testing.T) {
	port := echoServer(t)
	bothWays(t, func(t *testing.T, bin string, k kubectl) {
		_, addr := forward(t, k, bin, port)
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				want := bytes.Repeat([]byte{byte(i)}, 300_000+i)
				if got, err := roundTrip(addr, want); err != nil || !bytes.Equal(got, want) {
					t.Errorf("connection %d: %d of %d bytes, %v", i, len(got), len(want), err)
				}
			})
		}
		wg.Wait()
	})
}

// roundTrip sends data, ends its half and returns all that comes back.
func roundTrip(addr string, data []byte) ([]byte, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(data)
		if err == nil {
			err = conn.(*net.TCPConn).CloseWrite()
		}
		sent <- err
	}()
	got, err := io.ReadAll(conn)
	if serr := <-sent; err == nil {
		err = serr
	}
	return got, err
}
