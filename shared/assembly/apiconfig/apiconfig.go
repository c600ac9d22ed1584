// Package apiconfig adds the gateway's own Kubernetes API to a gateway.
package apiconfig

import (
	"context"
	"time"

	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/control"
	"github.com/clusterpass/clusterpass/shared/health"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/kmssigner"
)

// Options are the API's configuration. Programs embed it beside assembly.Env.
type Options struct {
	ServerCA assembly.Certificates `envconfig:"CLUSTERPASS_SERVER_CA" desc:"CA of the gateway's certificate, for the kubeconfigs of passes: PEM, also in base64, or the path of a PEM file. Not needed if all clients trust that CA." example:"/etc/clusterpass/server-ca.pem"`
	PassLimits
}

// PassLimits limit the passes that callers create. Programs embed it if they do not embed Options.
type PassLimits struct {
	MaxPassTTL time.Duration `envconfig:"CLUSTERPASS_MAX_PASS_TTL" default:"168h" min:"1m" max:"168h" desc:"Maximum lifetime of a pass. At most 168h for tokens and 24h for certificates." example:"12h"`
	PassKMSKey string        `envconfig:"CLUSTERPASS_PASS_KMS_KEY" desc:"Key in AWS KMS that signs passes: an ARN, ID or alias." example:"alias/passes"`
}

// OpenSigner returns the signer of passes, or nil if the keys in the secret store sign them.
func (l PassLimits) OpenSigner(ctx context.Context) (passes.Signer, error) {
	return kmssigner.Open(ctx, l.PassKMSKey)
}

// Dependencies are the parts of the API that differ between programs.
type Dependencies struct {
	Members *cluster.Members
	Signer  passes.Signer
	// ControlPlane is the cluster that serves other paths. "" means none.
	ControlPlane string
	// ProbesOnGet probes a cluster when a caller gets it. Functions need that, because the bridge, which probes all
	// clusters, may be down.
	ProbesOnGet bool
}

// NewAPI returns the API. It sends no requests.
func (o Options) NewAPI(p *assembly.Parts, d Dependencies) (*control.Server, error) {
	cfg := control.Config{
		Objects: p.Stores.Objects, Secrets: p.Stores.Secrets, Access: p.Access, Members: d.Members,
		ControlPlane: d.ControlPlane, URL: string(p.Env.URL), ServerCA: o.ServerCA.PEM(), MaxPassTTL: o.MaxPassTTL,
		PassSigner: d.Signer, Authentication: p.Env.Authentication.String(), Log: p.Log,
	}
	if d.ProbesOnGet {
		cfg.Probe = (&health.Prober{Objects: p.Stores.Objects, Members: d.Members, Log: p.Log}).Probe
	}
	return control.New(cfg)
}
