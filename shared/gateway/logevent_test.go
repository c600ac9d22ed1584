package gateway_test

import (
	"net/http"
	"strings"
	"testing"

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
