package fleet_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

const kindsOfX = "/apis/x.io/v1" // the path of discovery

// hangInDiscovery returns a handler that delays discovery of x.io/v1 until a close. It passes other requests to h.
func hangInDiscovery(until <-chan struct{}, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == kindsOfX {
			select {
			case <-until:
			case <-r.Context().Done():
				return
			}
		}
		h(w, r)
	}
}

// awaitResult fails the test after a minute, which is less than gatewaytest.FleetDeadline.
func awaitResult[T any](t *testing.T, what string, one func() T) (v T) {
	t.Helper()
	got := make(chan T, 1)
	go func() { got <- one() }() // ends with the gateway
	select {
	case v = <-got:
	case <-time.After(time.Minute):
		t.Fatalf("%s: no result within a minute", what)
	}
	return v
}

func discoveryCount(m *clustertest.Member) (n int) {
	for _, r := range m.Requests() {
		if r.URI == kindsOfX {
			n++
		}
	}
	return n
}

// TestFleetWatchHangs fails if events wait for a cluster that hangs in discovery, or if its objects never appear.
func TestFleetWatchHangs(t *testing.T) {
	t.Parallel() // the test waits more than it computes
	const kinds = "gateways=Gateway/Namespaced"
	list := `{"kind":"GatewayList","apiVersion":"x.io/v1","metadata":{"resourceVersion":"5"},"items":[%s]}`
	event := `{"type":"MODIFIED","object":{"kind":"Gateway","apiVersion":"x.io/v1","metadata":{"name":"g",` +
		`"namespace":"ns","resourceVersion":"%d"}}}` + "\n"
	send, released := make(chan struct{}), make(chan struct{})
	a := clustertest.NewMember(t, withKinds(kinds,
		serveWatch(func(flush func(string), _ *http.Request) { flush(fmt.Sprintf(list, "")) },
			func(flush func(string), r *http.Request) {
				flush("")
				for i := 6; ; i++ {
					select {
					case <-send:
						flush(fmt.Sprintf(event, i))
					case <-r.Context().Done():
						return
					}
				}
			})))
	b := clustertest.NewMember(t,
		hangInDiscovery(released, withKinds(kinds, serveWatch(func(flush func(string), _ *http.Request) {
			flush(fmt.Sprintf(list, `{"metadata":{"name":"of-b","namespace":"ns","resourceVersion":"4"}}`))
		}, func(flush func(string), r *http.Request) {
			flush("")
			<-r.Context().Done()
		}))))
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("a", a.Kubeconfig(`{token: t}`))
	h.AddRegistry("gateways", `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"x.io/v1","kind":"Gateway"}]}`)
	resp := h.Do("GET", "/fleet/apis/x.io/v1/gateways?watch=1", nil, "")
	lines := bufio.NewReader(resp.Body)
	next := func(name string) {
		t.Helper()
		line := awaitResult(t, name, func() string { line, _ := lines.ReadString('\n'); return line })
		if !strings.Contains(line, `"name":"`+name+`"`) {
			t.Fatalf("%q, want an event of %s", line, name)
		}
	}
	send <- struct{}{}
	next("g")
	h.AddCluster("b", b.Kubeconfig(`{token: t}`))
	waittest.Until(t, "the new cluster receives a discovery request", func() bool { return discoveryCount(b) > 0 })
	for range 3 {
		send <- struct{}{}
		next("g")
	}
	close(released)
	next("of-b")
}

// TestFleetHangs fails if reads of an object wait for another cluster that hangs, or if every list waits for it anew.
func TestFleetHangs(t *testing.T) {
	t.Parallel() // the test waits more than it computes
	h := newGateway(t, gatewaytest.Options{GracePeriod: time.Millisecond})
	never := make(chan struct{})
	a, b := clustertest.NewMember(t, withKinds("gateways=Gateway/Namespaced", withGateway("of-a"))),
		clustertest.NewMember(t, hangInDiscovery(never, respond(200, "ok")))
	t.Cleanup(func() { close(never) })
	h.AddCluster("a", a.Kubeconfig(`{token: t}`))
	h.AddCluster("b", b.Kubeconfig(`{token: t}`))
	const all = `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"x.io/v1","kind":"Gateway"}]}`
	h.AddRegistry("gateways", all)
	const one = "/fleet/apis/x.io/v1/namespaces/ns/gateways/of-a"
	if resp := h.Do("GET", one+"?clusters=a", nil, ""); resp.StatusCode != 200 {
		t.Fatalf("the cluster that has it: %s", resp.Status)
	}
	resp := awaitResult(t, "a get", func() *http.Response { return h.Do("GET", one, nil, "") })
	if got := strings.Join(resp.Header["Warning"], "\n"); resp.StatusCode != 200 ||
		!strings.Contains(got, `cluster \"b\" cannot describe its`) {
		t.Errorf("%s, warnings %s", resp.Status, got)
	}

	h = newGateway(t, gatewaytest.Options{FleetDeadline: hangDeadline})
	b.TakeRequests()
	h.AddCluster("a", a.Kubeconfig(`{token: t}`))
	h.AddCluster("b", b.Kubeconfig(`{token: t}`))
	h.AddRegistry("gateways", all)
	const lists = 5
	for range lists {
		l, resp := h.list("/fleet/apis/x.io/v1/gateways", nil)
		if got := strings.Join(resp.Header["Warning"], "\n"); l.names() != "of-a@a" ||
			!strings.Contains(got, `cluster \"b\" cannot describe its`) {
			t.Errorf("%q, warnings %s", l.names(), got)
		}
	}
	if n := discoveryCount(b); n == 0 || n >= lists {
		t.Errorf("%d lists wait for a cluster that hangs %d times", lists, n)
	}
}

// TestFleetWatchUnknownGrant fails if a watch survives the loss of a grant while discovery of another cluster fails.
func TestFleetWatchUnknownGrant(t *testing.T) {
	t.Parallel() // the test waits more than it computes
	a := clustertest.NewMember(t,
		withKinds("gateways=Gateway/Namespaced", serveWatch(func(flush func(string), _ *http.Request) {
			flush(`{"kind":"GatewayList","apiVersion":"x.io/v1","metadata":{"resourceVersion":"5"},` +
				`"items":[{"metadata":{"name":"g","namespace":"ns","resourceVersion":"4"}}]}`)
		}, func(flush func(string), r *http.Request) {
			flush("")
			<-r.Context().Done()
		})))
	b := clustertest.NewMember(t, refuse(503, "ServiceUnavailable", "it starts"))
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("a", a.Kubeconfig(`{token: t}`))
	h.AddCluster("b", b.Kubeconfig(`{token: t}`))
	for _, c := range []string{"a", "b"} {
		h.Grant("of-"+c,
			`{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"resourceNames":["`+c+`"],"verbs":["*"]}`)
	}
	h.AddRegistry("gateways", `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"x.io/v1","kind":"Gateway"}]}`)
	h.LogIn("bob", "of-a", "of-b")
	resp := h.Do("GET", "/fleet/apis/x.io/v1/gateways?watch=1", nil, "")
	lines := bufio.NewReader(resp.Body)
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, `"name":"g"`) {
		t.Fatalf("%s: %q, %v", resp.Status, line, err)
	}
	h.Delete("clusterrolebindings/of-a")
	if rest := awaitResult(t, "the end",
		func() string { text, _ := io.ReadAll(lines); return string(text) }); !strings.Contains(rest, `"code":410`) {
		t.Errorf("the watch ends with %q", rest)
	}
}

// TestFleetReregisteredClusterIsDiscovered fails if a new cluster gets the discovery of a removed one of its name.
func TestFleetReregisteredClusterIsDiscovered(t *testing.T) {
	h := newGateway(t, gatewaytest.Options{})
	old, other := clustertest.NewMember(t, withKinds("gateways=Gateway/Namespaced", withGateway("old"))),
		clustertest.NewMember(t, withKinds("gateways=Other/Namespaced", withGateway("new")))
	h.AddCluster("a", old.Kubeconfig(`{token: t}`))
	h.AddRegistry("gateways", `{"targetCluster":{},"resourceSelectors":[{"apiVersion":"x.io/v1","kind":"Gateway"}]}`)
	if l, _ := h.list("/fleet/apis/x.io/v1/gateways", nil); l.names() != "old@a" {
		t.Fatalf("%q", l.names())
	}
	h.Delete("clusters/a")
	h.RotateSecret("a", other.Kubeconfig(`{token: t}`))
	h.AddCluster("a", nil)
	gatewaytest.WantStatus(t, h.Do("GET", "/fleet/apis/x.io/v1/gateways", nil, ""), 404, "not_global", "not global")
	if got := requestsExceptDiscovery(other); got != "" {
		t.Errorf("the new cluster receives %s", got)
	}
}
