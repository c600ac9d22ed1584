package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// warnings collects what kubectl would print as warnings.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

// discover returns the warnings and the error of client-go's discovery, with which kubectl begins.
func (f *fixture) discover(path string) (printed []string, err error) {
	f.t.Helper()
	var collected warnings
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{
		Host: f.URL + path, Transport: f.HTTPClient.Transport, WarningHandler: &collected, Timeout: waittest.Patience,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	_, err = client.ServerGroups()
	return collected.all, err
}

func otherCA(t *testing.T) []byte {
	t.Helper()
	return clustertest.NewInstallation(t).CA.PEM()
}

const impersonationForbidden = `groups "dev" is forbidden: User "system:serviceaccount:clusterpass-system:m" cannot ` +
	`impersonate resource "groups" in API group "" at the cluster scope`

func forbidImpersonation(w http.ResponseWriter, _ *http.Request) {
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":"Forbidden",`+
		`"details":{"name":"dev","kind":"groups"},"code":403}`, impersonationForbidden)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, body)
}

// client-go's discovery shows no Status. Otherwise kubectl prints "unknown" in place of the reason, six times.
func TestDiscoveryShowsTheReason(t *testing.T) {
	h := newGateway(t, gatewaytest.Options{})
	up := clustertest.NewMember(t, ok)
	h.AddCluster("refusing", clustertest.Kubeconfig(clustertest.RefusingURL(t), otherCA(t), token))
	h.AddCluster("stranger", clustertest.Kubeconfig(up.URL, otherCA(t), token))
	h.AddCluster("broken", []byte("{"))
	h.AddCluster("expired", clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) { unauthorized(w) }).
		Kubeconfig(token))
	h.AddCluster("joined", clustertest.NewMember(t, forbidImpersonation).Kubeconfig(token))
	h.AddCluster("direct", up.Kubeconfig(token), func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Direct })
	for name, want := range map[string]string{
		"refusing": `cluster "refusing" is unreachable at 127.0.0.1:`,
		"stranger": `cluster "stranger" at 127.0.0.1:`,
		"broken":   `cluster "broken" cannot be used: `,
		"expired":  `cluster "expired" refuses the gateway's credential; its administrator must register it again`,
	} {
		printed, err := h.discover("/clusters/" + name)
		want = `an error on the server ("` + quoted(want)
		if err == nil || !strings.Contains(err.Error(), want) || len(printed) > 0 {
			t.Errorf("%s: %v, and warnings %q; want %s and no warning", name, err, printed, want)
		}
	}
	for name, want := range map[string]string{ // client-go quotes nothing in a 403
		"joined": `cluster "joined" does not let the gateway impersonate user "alice" of the groups ["dev"]: ` +
			impersonationForbidden + `; call it as a user of another group (--as, --as-group), or let its administrator ` +
			`run: clusterpass cluster join joined --context CONTEXT --replace --group dev, and`,
		"direct": `cluster "direct" is registered with identity direct for other users`,
	} {
		if printed, err := h.discover("/clusters/" + name); err == nil || !strings.HasPrefix(err.Error(), want) ||
			len(printed) > 0 {
			t.Errorf("%s: %v, and warnings %q; want %s and no warning", name, err, printed, want)
		}
	}
	const unknown = `there is no cluster "absent"` // client-go has a text of its own for a 404
	if printed, err := h.discover("/clusters/absent"); err == nil || len(printed) == 0 ||
		!strings.HasPrefix(printed[0], unknown) {
		t.Errorf("absent: %v, and warnings %q; want a warning %s", err, printed, unknown)
	}
	h.LogIn("eve")
	if _, err := h.discover("/clusters/refusing"); err == nil || !strings.Contains(err.Error(), `User "eve" cannot get`) {
		t.Errorf("without a grant: %v", err)
	}
}

// quoted returns text as client-go prints it within quotation marks.
func quoted(text string) string { return strings.ReplaceAll(text, `"`, `\"`) }

// Scripts and clients that read a Status must get one.
func TestOtherRequestsGetAStatus(t *testing.T) {
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", clustertest.Kubeconfig(clustertest.RefusingURL(t), otherCA(t), token))
	json := http.Header{"Accept": {"application/json, */*"}}
	for _, tt := range []struct {
		method, path string
		header       http.Header
		isText       bool
	}{
		{"GET", "/api", json, true},
		{"GET", "/apis", http.Header{"Accept": {discovery.AcceptV2}}, true},
		{"GET", "/version", json, true},
		{"GET", "/openapi/v2", http.Header{"Accept": {"application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}}, true},
		{"GET", "/openapi/v3", json, true},
		{"GET", "/openapi/v3/apis/apps/v1", json, true},
		{"GET", "/version", http.Header{"Accept": {"*/*"}}, false},
		{"GET", "/version", nil, false},
		{"GET", "/api/v1", json, false}, // client-go reads a Status there
		{"GET", "/apis/apps/v1", json, false},
		{"GET", "/api/v1/pods", json, false},
		{"GET", "/versions", json, false},
		{"POST", "/api", json, false},
	} {
		resp := h.Do(tt.method, "/clusters/m"+tt.path, tt.header, "")
		isText := resp.Header.Get("Content-Type") == "text/plain; charset=utf-8"
		switch {
		case isText != tt.isText, isText && (resp.StatusCode != http.StatusBadGateway || resp.Header.Get("Warning") != ""):
			t.Errorf("%s %s %v: %s %v", tt.method, tt.path, tt.header, resp.Status, resp.Header)
		case !isText: // the circuit breaker opens after five failed connections
			reason := map[int]string{502: "unreachable", 503: "circuit_open"}[resp.StatusCode]
			gatewaytest.WantStatus(t, resp, resp.StatusCode, reason, `cluster "m" is unreachable at 127.0.0.1:`)
			if warning := resp.Header.Get("Warning"); warning != "" {
				t.Errorf("%s %s: kubectl would print the message and the warning %s", tt.method, tt.path, warning)
			}
		}
	}
}

// kubectl would wait for minutes: client-go repeats each request up to ten times after the seconds in Retry-After.
func TestDiscoveryOfLostClusterEndsAtOnce(t *testing.T) {
	h := newGateway(t, gatewaytest.Options{Freshness: cluster.Freshness{Secret: time.Hour, Object: time.Hour}})
	h.AddCluster("m", clustertest.Kubeconfig(clustertest.RefusingURL(t), otherCA(t), token))
	for range 20 {
		_, err := h.discover("/clusters/m")
		if err == nil || !strings.Contains(err.Error(), quoted(`cluster "m" is unreachable at 127.0.0.1:`)) {
			t.Fatal(err)
		}
	}
	var resp *http.Response
	waittest.Until(t, "the circuit is open", func() bool { // between two trials
		resp = h.Do("GET", "/clusters/m/api/v1/pods", nil, "")
		return resp.StatusCode == http.StatusServiceUnavailable
	})
	gatewaytest.WantStatus(t, resp, http.StatusServiceUnavailable, "circuit_open", "the gateway calls it again in ")
	if after := resp.Header.Get("Retry-After"); after != "" && after != "1" {
		t.Errorf("Retry-After %s", after)
	}
}

// A cluster that accepts connections and does not answer must cost kubectl one deadline. kubectl begins with six
// requests, which would need one each. Other callers must not notice.
func TestDiscoveryOfSilentClusterFailsOnce(t *testing.T) {
	hanging, release := hangingMember(t)
	h := newGateway(t, gatewaytest.Options{
		Freshness: cluster.Freshness{Secret: time.Hour, Object: time.Hour},
		Configure: func(c *gateway.Config) { c.DiscoveryTimeout = firstByte },
	})
	h.AddCluster("m", hanging.Kubeconfig(token))
	began := time.Now()
	for range 6 {
		_, err := h.discover("/clusters/m")
		want := quoted(`cluster "m" did not begin to answer within 100ms`)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("%v, want %s", err, want)
		}
	}
	// A machine that stands still for longer than the timeout is remembered may ask again.
	if n := len(hanging.Requests()); n > 1 && time.Since(began) < 10*time.Second {
		t.Errorf("the member received %d requests, want 1 at most", n)
	}
	release()
	if body, resp := h.DoText("GET", "/clusters/m/api/v1/pods", nil, ""); resp.StatusCode != 200 || body != "ok" {
		t.Errorf("another path: %s %q", resp.Status, body)
	}
	h.LogIn("bob", "dev")
	waittest.Until(t, "another caller gets discovery", func() bool { // a busy machine may need more than the deadline
		return h.Do("GET", "/clusters/m/api", nil, "").StatusCode == 200
	})
}
