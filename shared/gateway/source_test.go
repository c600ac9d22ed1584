package gateway_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/limits"
	"github.com/clusterpass/clusterpass/shared/status"
)

type sourceRecorder struct{ sources chan string }

func (sourceRecorder) Method() string { return "test token" }

func (a sourceRecorder) AuthenticateToken(ctx context.Context, _ string) (*identity.User, error) {
	a.sources <- limits.SourceFrom(ctx).String()
	return nil, status.New(status.Unauthenticated, "", "the token was refused: this is a test; send none")
}

// Without the source, one address with made-up tokens could use up the checks of all callers.
func TestAuthenticatorsGetTheSource(t *testing.T) {
	for mode, want := range map[limits.SourceMode]string{
		limits.PeerSource: "127.0.0.1/32", limits.ForwardedSource: "192.0.2.1/32", limits.NoSource: "",
	} {
		t.Run(string(mode), func(t *testing.T) {
			recorder := sourceRecorder{make(chan string, 1)}
			h := newGateway(t, gatewaytest.Options{Configure: func(c *gateway.Config) {
				c.Identity, c.Source = identity.Chain{identity.Bearer{recorder}}, mode
			}})
			resp := h.Do("GET", "/clusters/m/api/v1/pods", http.Header{
				"Authorization": {"Bearer " + gatewaytest.OwnToken}, "X-Forwarded-For": {"198.51.100.1, 192.0.2.1"},
			}, "")
			if got := <-recorder.sources; got != want || resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("source %q, want %q; answer %s", got, want, resp.Status)
			}
		})
	}
}
