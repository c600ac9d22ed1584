// Package proxy is the function that serves REST requests to member clusters.
package proxy

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/lambdahttp"
)

// Config is the function's configuration.
type Config struct {
	gateway.Env
	MTLSTargetGroup TargetGroup         `envconfig:"CLUSTERPASS_MTLS_TARGET_GROUP" desc:"ARN of the ALB target group whose client certificate header is believed; only with mutual TLS on at its listener. It may end in /* where its last part is not known." example:"arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/proxy/*"`
	MTLSHeader      identity.PeerHeader `envconfig:"CLUSTERPASS_MTLS_HEADER" default:"X-Amzn-Mtls-Clientcert" desc:"The header that the ALB writes client certificates into." example:"X-Amzn-Mtls-Clientcert-Leaf"`
	BridgeURL       string              `envconfig:"CLUSTERPASS_BRIDGE_URL" desc:"Base URL of the bridge where it is not the host that clients call." example:"https://bridge.example.com"`
}

// TargetGroup is the ARN of a target group, or empty. It may end in /*, because names are unique in an account and
// region. The template needs that for a target group that does not exist yet, since the function is its target.
type TargetGroup string

// Is reports whether arn is the ARN of the group.
func (g TargetGroup) Is(arn string) bool {
	if name, open := strings.CutSuffix(string(g), "*"); open {
		return strings.HasSuffix(name, "/") && strings.HasPrefix(arn, name)
	}
	return g != "" && arn == string(g)
}

// New returns the function. frozen means that the process is stopped between requests and serves one at a time, as in
// Lambda.
func New(ctx context.Context, cfg *Config, frozen bool) (http.Handler, lambdahttp.Options, error) {
	trusted := func(r *http.Request) bool {
		ev, ok := lambdahttp.EventFrom(r.Context())
		return ok && ev.Kind == lambdahttp.ALB && cfg.MTLSTargetGroup.Is(ev.TargetGroupARN)
	}
	fn := gateway.NewFunction(cfg.BridgeURL)
	gw, members, err := cfg.Open(ctx, identity.ALBPeer(cmp.Or(cfg.MTLSHeader, identity.ALBHeader), trusted), fn)
	if err != nil {
		return nil, lambdahttp.Options{}, err
	}
	var handler http.Handler = gw
	if frozen {
		handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			members.Thaw()
			gw.ServeHTTP(w, r)
		})
	}
	return handler, lambdahttp.Options{Overflow: fn.Overflow}, nil
}
