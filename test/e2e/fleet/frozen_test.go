package fleet_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/test/e2e"
)

const (
	slow      = `cluster \"frozen\" did not answer within 25s`
	elsewhere = `cluster \"frozen\" did not respond within 2s`
)

type fleetCall func(method, path, body string, header http.Header) (*http.Response, error)

// TestFleetWithFrozenCluster: an API server that never responds must not block the fleet:
//   - A list ends at its deadline, with a warning. With strict=true it is an error.
//   - A get of an object that is known to be elsewhere does not wait.
//   - Watches continue, and show the cluster's objects once it responds again.
func TestFleetWithFrozenCluster(t *testing.T) {
	set := cluster.Start(t, cluster.Options{Clusters: []string{"frozen"}, NoKubelet: true})
	member := set.Cluster("frozen")
	_ = e2e.Shared(t)
	e2e.Register(t, "frozen", member.Kubeconfig())
	frozen, member1 := e2e.Kubectl{Kubeconfig: member.KubeconfigFile(), Context: "frozen"}, e2e.Direct("member1")
	ns := e2e.NewNamespaceIn(t, member, e2e.Clusters.Cluster("member1"))
	for m, d := range map[string]e2e.Kubectl{"frozen": frozen, "member1": member1} {
		d.Must(t, "create", "configmap", "on-"+m, "-n", ns)
		d.Must(t, "label", "configmap", "on-"+m, "-n", ns, "frozen=yes")
	}
	for _, name := range []string{"known", "fresh"} {
		member1.Must(t, "create", "configmap", name, "-n", ns)
	}
	e2e.CreateRegistry(t, "frozen", "{clusterNames: [member1, frozen]}", "{apiVersion: v1, kind: ConfigMap}")
	k := atBridge(t, e2e.Through(t, "member1"))
	in := func(args ...string) []string { return append(args, "-n", ns) }
	list := in("get", "configmaps", "-l", "frozen", "-o", "name")
	e2e.WaitForValue(t, "configmap/on-frozen\nconfigmap/on-member1\n", func() string { return k.Run(t, list...).Stdout })

	client, root := e2e.Caller(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*e2e.Patience)
	defer cancel()
	configMaps := "/api/v1/namespaces/" + ns + "/configmaps"
	call := func(method, path, body string, header http.Header) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, method, root+e2e.BridgeFleetPrefix+path, strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		for k, v := range header {
			req.Header[k] = v
		}
		return client.Do(req)
	}
	watch := func() <-chan string { return watchLines(call, configMaps+"?watch=1&labelSelector=frozen") }
	opened := time.Now()
	beforeFreeze := watch()
	expectEvents(t, beforeFreeze, "ADDED on-frozen", "ADDED on-member1")
	k.Must(t, in("get", "configmap", "known")...)

	if err := member.Pause(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	resume := sync.OnceFunc(func() {
		if err := member.Resume(context.WithoutCancel(t.Context()), cluster.APIServer); err != nil {
			t.Error(err)
		}
	})
	defer resume()
	member1.Must(t, in("label", "configmap", "on-member1", "while=frozen")...)
	expectEvents(t, beforeFreeze, "MODIFIED on-member1")
	duringFreeze := watch()
	var requests sync.WaitGroup
	defer func() { cancel(); requests.Wait() }()
	checkFrozenRequests(t, configMaps, call, &requests)
	if r := k.Run(t, "get", "--raw", e2e.BridgeFleetPrefix+configMaps+"?labelSelector=frozen"); r.Code != 0 ||
		!strings.Contains(r.Stdout, "on-member1") ||
		!strings.Contains(r.Stderr, `Warning: cluster "frozen" did not answer within 25s (left out)`) {
		t.Errorf("kubectl: %v", r)
	}
	requests.Wait()
	select {
	case got := <-duringFreeze:
		if !strings.HasPrefix(got, "299 clusterpass ") || !strings.Contains(got, slow) {
			t.Errorf("a watch that begins meanwhile says %q", got)
		}
	case <-time.After(e2e.Patience):
		t.Error("a watch does not begin")
	}
	expectEvents(t, duringFreeze, "ADDED on-member1")
	resume()
	expectEvents(t, duringFreeze, "ADDED on-frozen")
	e2e.Idle(time.Until(opened.Add(33 * time.Second))) // Karmada's watches end after 32
	frozen.Must(t, in("label", "configmap", "on-frozen", "while=thawed")...)
	member1.Must(t, in("label", "configmap", "on-member1", "while-", "then=more")...)
	for _, lines := range []<-chan string{beforeFreeze, duringFreeze} {
		expectEvents(t, lines, "MODIFIED on-frozen", "MODIFIED on-member1")
	}
}

// expectEvents reads lines until each of want has come, in any order. Another line fails the test.
func expectEvents(t *testing.T, lines <-chan string, want ...string) {
	t.Helper()
	missing := map[string]bool{}
	for _, w := range want {
		missing[w] = true
	}
	for len(missing) > 0 {
		select {
		case got, ok := <-lines:
			if !ok || !missing[got] {
				t.Fatalf("it brings %q, want %q", got, want)
			}
			delete(missing, got)
		case <-time.After(e2e.Patience):
			t.Fatalf("it does not bring %v", missing)
		}
	}
}

// watchLines sends a watch's warnings, then each event as TYPE NAME. It ends with the context of call.
func watchLines(call fleetCall, path string) <-chan string {
	lines := make(chan string, 100)
	go func() { // ends with ctx
		defer close(lines)
		resp, err := call("GET", path, "", nil)
		if err != nil {
			lines <- err.Error()
			return
		}
		defer resp.Body.Close()
		if w := resp.Header.Get("Warning"); w != "" {
			lines <- w
		}
		for r := bufio.NewReader(resp.Body); ; {
			line, err := r.ReadBytes('\n')
			if err != nil {
				return
			}
			var e struct {
				Type   string
				Object corev1.ConfigMap
			}
			if err := json.Unmarshal(line, &e); err != nil {
				lines <- err.Error()
			}
			lines <- e.Type + " " + e.Object.Name
		}
	}()
	return lines
}

// checkFrozenRequests sends requests in parallel. Wait for requests for their end.
func checkFrozenRequests(t *testing.T, configMaps string, call fleetCall, requests *sync.WaitGroup) {
	t.Helper()
	for _, tt := range []struct {
		method, path, body       string
		header                   http.Header
		code                     int
		warning, contains, lacks string
	}{
		{"GET", configMaps + "?labelSelector=frozen", "", nil, 200, slow, "on-member1", "on-frozen"},
		{"GET", configMaps + "?labelSelector=frozen&strict=true", "", nil, 502, "", slow, "on-member1"},
		{"GET", configMaps + "?labelSelector=frozen", "", http.Header{"X-Clusterpass-Strict": {"true"}}, 502, "", slow,
			"on-member1"},
		{"GET", configMaps + "?labelSelector=frozen&clusters=frozen", "", nil, 502, "", slow, ""},
		{"GET", configMaps + "/fresh", "", nil, 200, slow, "fresh", ""},
		{"GET", configMaps + "/known", "", nil, 200, elsewhere, "known", ""},
		{"GET", configMaps + "/nowhere", "", nil, 502, "", slow, ""}, // frozen may have it
		{"PATCH", configMaps + "/known", `{"data":{"a":"b"}}`, http.Header{"Content-Type": {"application/merge-patch+json"}},
			502, "", "use the name known@member1", ""},
		{"PATCH", configMaps + "/known@member1", `{"data":{"a":"b"}}`,
			http.Header{"Content-Type": {"application/merge-patch+json"}}, 200, "", "known@member1", ""},
	} {
		requests.Go(func() {
			start := time.Now()
			resp, err := call(tt.method, tt.path, tt.body, tt.header)
			if err != nil {
				t.Errorf("%s %s: %v", tt.method, tt.path, err)
				return
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			warning := strings.Join(resp.Header["Warning"], "\n")
			if err != nil || resp.StatusCode != tt.code || !strings.Contains(warning, tt.warning) ||
				!strings.Contains(string(body), tt.contains) || tt.lacks != "" && strings.Contains(string(body), tt.lacks) {
				t.Errorf("%s %s: %s, warnings %q\n%s, %v", tt.method, tt.path, resp.Status, warning, body, err)
			}
			if elapsed := time.Since(start); strings.Contains(warning+string(body), slow) && elapsed < 25*time.Second {
				t.Errorf("%s %s says so after %v", tt.method, tt.path, elapsed)
			}
		})
	}
}
