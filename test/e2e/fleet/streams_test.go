package fleet_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestFleetStreams: exec, cp, attach and port-forward must not reach the pod of another cluster.
func TestFleetStreams(t *testing.T) {
	ns := e2e.StreamPods(t, e2e.Members, "shell", "reader")
	d := e2e.Direct("member2")
	d.Apply(t, "{apiVersion: v1, kind: Pod, metadata: {name: alone}, spec: {terminationGracePeriodSeconds: 1, "+
		"containers: [{name: alone, image: any}]}}", "-n", ns)
	d.Must(t, "wait", "-n", ns, "--for=condition=Ready", "pod/alone", "--timeout=4m")
	k := fleet(t, "{apiVersion: v1, kind: Pod}")
	waittest.Until(t, "fleet has the pod alone", func() bool {
		return k.Run(t, "get", "pod", "alone", "-n", ns).Code == 0
	})
	if r := k.Run(t, "exec", "shell", "-n", ns, "--", "true"); r.Code == 0 ||
		!strings.Contains(r.Stderr, "shell@member1 or shell@member2") {
		t.Errorf("exec in one of several: %v", r)
	}
	port := e2e.EchoServer(t)
	bin := e2e.Clusters.BuiltKubectl()
	for i, dialect := range e2e.Dialects {
		k.Env = dialect.Env
		for name, m := range map[string]string{"alone": "member2", "shell@" + e2e.Members[i]: e2e.Members[i]} {
			t.Run(dialect.Name+"/"+name, func(t *testing.T) {
				text := fmt.Sprintf("for %s by %s", name, dialect.Name)
				file := filepath.Join(t.TempDir(), "file")
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				k.Must(t, "cp", file, ns+"/"+name+":in-the-fleet")
				base, _, _ := strings.Cut(name, "@")
				if got := e2e.Direct(m).Must(t, "exec", base, "-n", ns, "--", "cat", "in-the-fleet"); got != text {
					t.Errorf("%s has %q", m, got)
				}
				if got := k.Must(t, "exec", name, "-n", ns, "--", "cat", "in-the-fleet"); got != text {
					t.Errorf("exec has %q", got)
				}
				k.Must(t, "cp", ns+"/"+name+":in-the-fleet", file+"-back")
				if got, err := os.ReadFile(file + "-back"); err != nil || string(got) != text {
					t.Errorf("cp brings back %q, %v", got, err)
				}
				s := k.Start(t, bin, "-n", ns, "port-forward", "pod/"+name, fmt.Sprintf(":%d", port))
				line := s.Line("Forwarding from 127.0.0.1:")
				addr, _, _ := strings.Cut(strings.TrimPrefix(line, "Forwarding from "), " ")
				if got, err := e2e.RoundTrip(addr, []byte(text)); err != nil || string(got) != text {
					t.Errorf("port-forward has %q, %v", got, err)
				}
			})
		}
		t.Run(dialect.Name+"/attach", func(t *testing.T) {
			s := k.Start(t, bin, "-n", ns, "attach", "-i", "reader@"+e2e.Members[i])
			_, _ = io.WriteString(s.Stdin, dialect.Name+"\n")
			s.Line("got " + dialect.Name)
			waittest.Until(t, "log of the reader in "+e2e.Members[i], func() bool {
				return strings.Contains(e2e.Direct(e2e.Members[i]).Must(t, "logs", "reader", "-n", ns), "got "+dialect.Name+"\n")
			})
		})
	}
}

// TestFleetRecordings: a policy must cover sessions in the fleet, whose cluster is known only from the pod.
func TestFleetRecordings(t *testing.T) {
	ns := e2e.StreamPods(t, e2e.Members, "shell", "reader")
	k := fleet(t, "{apiVersion: v1, kind: Pod}")
	for _, pod := range []string{"shell@member2", "reader@member2"} {
		waittest.Until(t, "fleet has the pod", func() bool { return k.Run(t, "get", "pod", pod, "-n", ns).Code == 0 })
	}
	e2e.RecordNamespace(t, ns, "required", false, func() { k.Run(t, "exec", "shell@member2", "-n", ns, "--", "true") })
	port, bin := e2e.EchoServer(t), e2e.Clusters.BuiltKubectl()
	for _, dialect := range e2e.Dialects {
		k.Env = dialect.Env
		isLater := e2e.LaterRecordings(t, ns)
		want := func(kind, pod string, hasContent func(events map[recording.Type]string) bool) {
			t.Helper()
			r := e2e.WaitForRecording(t, ns, kind, func(r e2e.Recording) bool { return isLater(r) && r.Kind == kind })
			if r.Cluster != "member2" || r.Pod != pod || r.User == "" || !hasContent(r.Events) {
				t.Errorf("%s recorded %q of %+v", dialect.Name, r.Events, r.Info)
			}
		}
		k.Must(t, "exec", "shell@member2", "-n", ns, "--", "echo", "by", dialect.Name)
		want(recording.Exec, "shell", func(e map[recording.Type]string) bool {
			return e[recording.Output] == "by "+dialect.Name+"\n"
		})
		attach := k.Start(t, bin, "-n", ns, "attach", "-i", "reader@member2")
		_, _ = io.WriteString(attach.Stdin, dialect.Name+"\n")
		attach.Line("got " + dialect.Name)
		_ = attach.Cmd.Process.Kill()
		want(recording.Attach, "reader", func(e map[recording.Type]string) bool {
			return strings.Contains(e[recording.Output], "got "+dialect.Name+"\n")
		})
		forward := k.Start(t, bin, "-n", ns, "port-forward", "pod/shell@member2", fmt.Sprintf(":%d", port))
		line := forward.Line("Forwarding from 127.0.0.1:")
		addr, _, _ := strings.Cut(strings.TrimPrefix(line, "Forwarding from "), " ")
		if got, err := e2e.RoundTrip(addr, []byte(dialect.Name)); err != nil || string(got) != dialect.Name {
			t.Errorf("port-forward has %q, %v", got, err)
		}
		_ = forward.Cmd.Process.Kill()
		want(recording.PortForward, "shell", func(e map[recording.Type]string) bool {
			var in, out int
			_, err := fmt.Sscanf(e[recording.Transferred], "in=%d out=%d", &in, &out)
			return err == nil && in >= len(dialect.Name) && out >= len(dialect.Name)
		})
	}
	r := k.RunWith(t, bin, strings.NewReader(""), "debug", "shell@member2", "-n", ns, "--image=any", "--", "true")
	if r.Code == 0 || !strings.Contains(r.Stderr, "a debug container can run a command without one") {
		t.Errorf("debug: %v", r)
	}
}

// TestFleetWatchForms: clients of deprecated paths and of websockets must see the same events as others.
func TestFleetWatchForms(t *testing.T) {
	ns := e2e.StreamPods(t, e2e.Members, "shell")
	k := fleet(t, "{apiVersion: v1, kind: Pod}")
	waittest.Until(t, "first list", func() bool { return k.Run(t, "get", "pods", "-n", ns).Code == 0 })
	client, root := e2e.Caller(t)
	first := func(event []byte) string {
		t.Helper()
		var e struct {
			Type   string
			Object corev1.Pod
		}
		if err := json.Unmarshal(event, &e); err != nil || bytes.ContainsRune(event, '\n') {
			t.Fatalf("an event %.200s: %v", event, err)
		}
		return fmt.Sprintf("%s %s in %s", e.Type, e.Object.Name, e.Object.Annotations[e2e.SourceAnnotation])
	}
	pods, watched := "/api/v1/namespaces/"+ns+"/pods", "/api/v1/watch/namespaces/"+ns+"/pods"
	const watchedAll = "/api/v1/watch/pods"
	selector := "metadata.name%3Dshell,metadata.namespace%3D" + ns
	for path, want := range map[string]string{
		pods + "?watch=1&fieldSelector=metadata.name%3Dshell%40member2":          "ADDED shell@member2 in member2",
		watched + "/shell@member2":                                               "ADDED shell@member2 in member2",
		watched + "?clusters=member2&labelSelector=app%3Dshell":                  "ADDED shell in member2",
		watchedAll + "?clusters=member1&fieldSelector=" + selector:               "ADDED shell in member1",
		watched + "/shell?fieldSelector=status.phase%3DRunning&clusters=member2": "ADDED shell in member2",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), e2e.Patience)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, root+e2e.FleetPrefix+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(resp.Body).ReadBytes('\n')
		_ = resp.Body.Close()
		if err != nil {
			t.Errorf("%s: %s, %v", path, resp.Status, err)
			continue
		}
		if got := first(bytes.TrimSuffix(line, []byte("\n"))); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
		for _, protocols := range [][]string{nil, {"v1.text.clusterpass.io"}, {"any"}} {
			conn := e2e.DialWebsocket(t, k, path, protocols...)
			_, message, err := conn.ReadMessage()
			if err != nil {
				t.Fatalf("%s by websocket: %v", path, err)
			}
			if got := first(message); got != want || conn.Subprotocol() != strings.Join(protocols, "") {
				t.Errorf("%s by websocket %q: %s, want %s", path, conn.Subprotocol(), got, want)
			}
			_ = conn.Close()
		}
	}
	if conn, resp, err := e2e.DialWebsocketFrom(t, k, "/api/v1/pods?watch=1",
		"https://elsewhere.example.com"); err == nil {
		_ = conn.Close()
		t.Error("a page from elsewhere watches the fleet")
	} else if resp == nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("a page from elsewhere: %v", err)
	}
	if got := k.Must(t, "get", "--raw", e2e.FleetPrefix+"/api/v1/namespaces/"+ns+
		"/pods/shell@member1?watch=1"); !strings.Contains(got, `"kind":"Pod"`) || strings.Contains(got, `"type":"ADDED"`) {
		t.Errorf("a watch of an object's own path, which kube-apiserver answers with the object: %.100s", got)
	}
}
