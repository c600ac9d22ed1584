// Package proxy is the function that answers one REST call to one member cluster.
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

// TargetGroup is the ARN of a target group, or empty. An account has one of a name in a region, so that an ARN that ends in /* names
// one, too: the template can say it of a group that has the function as its target and so does not exist yet.
type TargetGroup string

// Is reports whether arn is the group's.
func (g TargetGroup) Is(arn string) bool {
	if name, open := strings.CutSuffix(string(g), "*"); open {
		return strings.HasSuffix(name, "/") && strings.HasPrefix(arn, name)
	}
	return g != "" && arn == string(g)
}

// New returns the function. frozen says that the process is stopped between calls, as Lambda does, and has one call at
// a time.
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
