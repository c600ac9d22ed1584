package gateway_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// requestLine is a line of the log. One with Requests represents that many requests.
type requestLine struct {
	Msg, User, Namespace, Name, Error string
	Code, Requests                    int
	Sources                           []string
}

// requestsIn returns the lines of requests in a log, and the number of requests that they represent.
func requestsIn(t *testing.T, log string) (lines []requestLine, requests int) {
	t.Helper()
	for line := range strings.Lines(log) {
		var l requestLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l.Msg == "request" {
			lines = append(lines, l)
			requests += max(1, l.Requests)
		}
	}
	return lines, requests
}

// On AWS, lines of the log and audit events share a buffer. Refused requests that filled it would remove the audit
// events of users. The log must still count all requests.
func TestUnidentifiedCallersCannotFillTheLog(t *testing.T) {
	const requests = 300
	long := strings.Repeat("%01", 3<<10)
	passthrough := func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Passthrough }
	madeUp := http.Header{"Authorization": {"Bearer made-up"}}
	for _, tt := range []struct {
		name, method, uri string
		header            http.Header
		fn                *gateway.Function
		code              int
	}{
		{"no credential", "GET", "/clusters/m/api/v1/namespaces/" + long + "/pods/" + long, nil, nil, 401},
		{"an API group", "GET", "/fleet/apis/" + long + "/v1/" + long, nil, nil, 401},
		{"a URL that cannot be parsed", "GET", "/clusters/" + long, nil, nil, 400},
		{"a method", strings.Repeat("A", 8<<10), "/clusters/m/", nil, nil, 400},
		{"a public document", "GET", "/healthz", nil, nil, 200},
		{"a made-up token for a passthrough cluster", "GET", "/clusters/p/api/v1/namespaces/" + long, madeUp, nil, 401},
		{
			"a function", "GET", "/clusters/m/api/v1/namespaces/" + long + "/pods/" + long, nil, gateway.NewFunction(""), 401,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log waittest.Buffer
			var g *gateway.Gateway
			h := newGateway(t, gatewaytest.Options{
				Function: tt.fn,
				Configure: func(c *gateway.Config) {
					c.Log, c.API = slog.New(slog.NewJSONHandler(&log, nil)), publicAPI{}
				},
				Wrap: func(next http.Handler) http.Handler { g = next.(*gateway.Gateway); return next },
			})
			m := clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) })
			h.AddCluster("p", m.Kubeconfig(token), passthrough)
			h.LogOut()
			for range requests {
				if text, resp := h.DoText(tt.method, tt.uri, tt.header, ""); resp.StatusCode != tt.code {
					t.Fatalf("%s %s", resp.Status, text)
				}
			}
			h.Close() // all requests are logged
			if err := g.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			lines, counted := requestsIn(t, log.String())
			if len(lines) >= requests || counted != requests {
				t.Errorf("%d lines count %d requests", len(lines), counted)
			}
			last := lines[len(lines)-1]
			if last.Requests == 0 || last.Code != tt.code || len(last.Sources) != 1 {
				t.Errorf("the last line is %+v", last)
			}
			for line := range strings.Lines(log.String()) {
				if len(line) > 8<<10 {
					t.Fatalf("a line has %d bytes: %.300s", len(line), line)
				}
			}
		})
	}
}

// publicAPI serves the paths of health checks without a credential.
type publicAPI struct{ pathAPI }

func (publicAPI) ServePublic(w http.ResponseWriter, _ *http.Request, path string) bool {
	if path == "/healthz" {
		w.WriteHeader(http.StatusOK)
	}
	return path == "/healthz"
}

// Every request of an identified caller must be in the log by itself, also during an attack.
func TestIdentifiedRequestsAreLoggedSeparately(t *testing.T) {
	const requests = 100
	var log waittest.Buffer
	h := newGateway(t, gatewaytest.Options{
		Configure: func(c *gateway.Config) { c.Log = slog.New(slog.NewJSONHandler(&log, nil)) },
	})
	m := clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) })
	h.AddCluster("m", m.Kubeconfig(token))
	h.AddCluster("p", m.Kubeconfig(token), func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Passthrough })
	for range requests {
		h.Do("GET", "/clusters/m/api/v1/namespaces/ours", nil, "")
		h.Do("GET", "/clusters/unknown/api/v1/namespaces/ours", nil, "")
	}
	h.LogOut()
	for range requests {
		h.Do("GET", "/clusters/m/api/v1/namespaces/theirs", nil, "")
		h.Do("GET", "/clusters/p/api/v1/namespaces/ours", http.Header{"Authorization": {"Bearer accepted"}}, "")
	}
	h.Close()
	lines, _ := requestsIn(t, log.String())
	ours := 0
	for _, l := range lines {
		if l.Name == "ours" {
			ours++
		}
	}
	if want := 3 * requests; ours != want {
		t.Errorf("%d lines of identified callers, want %d", ours, want)
	}
}
