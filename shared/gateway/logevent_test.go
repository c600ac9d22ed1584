package gateway_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// panickingAPI panics, for the path begun after the response has begun.
type panickingAPI struct{ pathAPI }

func (panickingAPI) Serve(w http.ResponseWriter, r *http.Request, _ *gateway.APICall) (string, error) {
	if strings.HasSuffix(r.URL.Path, "/begun") {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
	}
	panic("out of order")
}

// Programs that read the log keep one value of each key, so a second reason would hide that the gateway failed.
func TestPanicHasOneReasonInTheLog(t *testing.T) {
	for _, path := range []string{"/api/early", "/api/begun"} {
		t.Run(path, func(t *testing.T) {
			var log waittest.Buffer
			h := newGateway(t, gatewaytest.Options{Configure: func(c *gateway.Config) {
				c.Log, c.API = jsonLog(&log), panickingAPI{}
			}})
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := h.HTTPClient.Do(req); err == nil {
				_ = resp.Body.Close()
			}
			h.Close() // the request is logged
			_, event, found := strings.Cut(log.String(), `"msg":"request"`)
			if n := strings.Count(event, `"reason":`); !found || n != 1 || !strings.Contains(event, `"reason":"internal"`) {
				t.Errorf("%d reasons, want internal alone: %s", n, &log)
			}
		})
	}
}

// The dashboard on AWS queries these fields, and reads the duration as nanoseconds. With another name, its widgets
// would be empty.
func TestRequestEventHasFieldsOfDashboard(t *testing.T) {
	var log waittest.Buffer
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{Configure: func(c *gateway.Config) { c.Log = jsonLog(&log) }})
	h.AddCluster("m", m.Kubeconfig(token))
	h.Do("GET", "/clusters/m/api/v1/namespaces/a/pods/p/log", nil, "")
	h.Do("GET", "/clusters/none/api/v1/pods", nil, "")
	h.Close() // the requests are logged
	want := []map[string]any{
		{"cluster": "m", "verb": "get", "resource": "pods/log", "code": 200.0, "reason": nil},
		{"cluster": "none", "verb": "list", "resource": "pods", "code": 404.0, "reason": "unknown_cluster"},
	}
	for line := range strings.Lines(log.String()) {
		var event map[string]any
		if err := json.Unmarshal([]byte(line), &event); err != nil || event["msg"] != "request" || len(want) == 0 {
			t.Fatalf("%v: %s", err, line)
		}
		for field, value := range want[0] {
			if event[field] != value {
				t.Errorf("%s is %v, want %v", field, event[field], value)
			}
		}
		if ns, _ := event["duration"].(float64); ns < 1000 || ns > float64(time.Hour) {
			t.Errorf("the duration is %v", event["duration"])
		}
		want = want[1:]
	}
	if len(want) > 0 {
		t.Errorf("%d requests are not logged:\n%s", len(want), log.String())
	}
}
