// Package proxy is the function that serves REST requests to member clusters. The functions fleet and control are this
// function with more parts.
package proxy

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/lambdahttp"
)

// Config is the function's configuration.
type Config struct {
	assembly.Env
	MTLSTargetGroup TargetGroup         `envconfig:"CLUSTERPASS_MTLS_TARGET_GROUP" desc:"ARN of the ALB target group whose header with client certificates is trusted. Set it only if its listener uses mutual TLS. The last part may be *. A comma separates several." example:"arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/proxy/*"`
	MTLSHeader      identity.PeerHeader `envconfig:"CLUSTERPASS_MTLS_HEADER" default:"X-Amzn-Mtls-Clientcert" desc:"Header in which the ALB sends client certificates." example:"X-Amzn-Mtls-Clientcert-Leaf"`
	BridgeURL       string              `envconfig:"CLUSTERPASS_BRIDGE_URL" desc:"Base URL of the bridge, if it differs from the gateway's URL." example:"https://bridge.example.com"`
}

// TargetGroup is a comma-separated list of ARNs of target groups, or empty. An ARN may end in /*, because names are
// unique in an account and region. The template needs that for a target group that does not exist yet, since the
// function is its target.
type TargetGroup string

// Is reports whether arn is the ARN of one of the groups.
func (g TargetGroup) Is(arn string) bool {
	for group := range strings.SplitSeq(string(g), ",") {
		name, isOpen := strings.CutSuffix(group, "*")
		if isOpen && strings.HasSuffix(name, "/") && strings.HasPrefix(arn, name) || group != "" && arn == group {
			return true
		}
	}
	return false
}

// Process describes the process that a function runs in.
type Process struct {
	// IsFrozen means that the process is stopped between requests and serves one at a time, as in Lambda.
	IsFrozen bool
	LogTo    io.Writer // nil means standard error
}

// New returns the function.
func New(ctx context.Context, cfg *Config, p Process) (http.Handler, lambdahttp.Options, error) {
	f, err := Open(ctx, cfg, p)
	if err != nil {
		return nil, lambdahttp.Options{}, err
	}
	return f.Handler(ctx, nil, nil)
}

// Function contains the parts of a function, from which other functions build theirs.
type Function struct {
	*assembly.Parts
	Members *cluster.Members

	cfg     *Config
	process Process
}

// Open opens the parts of a function.
func Open(ctx context.Context, cfg *Config, p Process) (*Function, error) {
	parts, err := assembly.Open(ctx, cfg.Env, p.LogTo)
	if err != nil {
		return nil, err
	}
	return &Function{Parts: parts, Members: parts.NewMembers(nil), cfg: cfg, process: p}, nil
}

// Handler returns the function's handler, with a fleet and the gateway's own API if they are not nil.
func (f *Function) Handler(
	ctx context.Context, fleet assembly.Fleet, api gateway.API,
) (http.Handler, lambdahttp.Options, error) {
	fn := gateway.NewFunction(f.cfg.BridgeURL)
	gw, err := f.NewGateway(ctx, assembly.Options{
		Peer:    identity.ALBPeer(cmp.Or(f.cfg.MTLSHeader, identity.ALBHeader), f.isFromBalancer),
		Members: f.Members, Fleet: fleet, API: api, Function: fn,
	})
	if err != nil {
		return nil, lambdahttp.Options{}, err
	}
	var handler http.Handler = gw
	if f.process.IsFrozen {
		handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			f.Members.Thaw()
			gw.ServeHTTP(w, r)
		})
	}
	return handler, lambdahttp.Options{Overflow: fn.Overflow}, nil
}

// isFromBalancer reports whether the configured target group sent a request, so that its header is trusted.
func (f *Function) isFromBalancer(r *http.Request) bool {
	ev, ok := lambdahttp.EventFrom(r.Context())
	return ok && ev.Kind == lambdahttp.ALB && f.cfg.MTLSTargetGroup.Is(ev.TargetGroupARN)
}
