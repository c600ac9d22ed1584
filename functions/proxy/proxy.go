// Package proxy is the function that serves REST requests to member clusters. The functions fleet and control are this
// function with more parts.
package proxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/audit"
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

var targetGroupRE = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`^arn:aws[a-z-]*:elasticloadbalancing:[a-z0-9-]+:[0-9]{12}:targetgroup/[A-Za-z0-9-]{1,32}/([0-9a-f]+|\*)$`)
})

// Decode implements envconfig.Decoder.
func (g *TargetGroup) Decode(v string) error {
	if v != "" {
		for arn := range strings.SplitSeq(v, ",") {
			if !targetGroupRE().MatchString(arn) {
				return errors.New("want ARNs of target groups, separated by commas without spaces; " +
					"only the part after the name may be *")
			}
		}
	}
	*g = TargetGroup(v)
	return nil
}

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
	if lambdacontext.FunctionVersion != "$LATEST" {
		fn.Name, fn.Version = lambdacontext.FunctionName, lambdacontext.FunctionVersion
	}
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
			gw.ServeHTTP(w, limitDelivery(r))
		})
	}
	options := lambdahttp.Options{Overflow: fn.Overflow}
	if f.cfg.AuditWebhook != "" || f.cfg.AuditLogGroup != "" {
		options.Margin = deliveryTime + responseTime
	}
	return handler, options, nil
}

const (
	// deliveryTime is the minimum time for the delivery of an audit event, after a call that exceeds its time limit.
	deliveryTime = 2 * time.Second
	// responseTime is the time after the delivery, for the response and the line that counts a lost event.
	responseTime = 250 * time.Millisecond
)

// limitDelivery returns r with the time until which its audit event can be delivered.
func limitDelivery(r *http.Request) *http.Request {
	ev, ok := lambdahttp.EventFrom(r.Context())
	if !ok || ev.Deadline.IsZero() {
		return r
	}
	return r.WithContext(audit.WithDeadline(r.Context(), ev.Deadline.Add(-responseTime)))
}

// isFromBalancer reports whether the configured target group sent a request, so that its header is trusted.
func (f *Function) isFromBalancer(r *http.Request) bool {
	ev, ok := lambdahttp.EventFrom(r.Context())
	return ok && ev.Kind == lambdahttp.ALB && f.cfg.MTLSTargetGroup.Is(ev.TargetGroupARN)
}
