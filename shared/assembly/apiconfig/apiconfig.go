// Package apiconfig adds the gateway's own Kubernetes API and the fleet to a gateway.
package apiconfig

import (
	"context"
	"time"

	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/assembly/fleetconfig"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/control"
	"github.com/clusterpass/clusterpass/shared/fleet"
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

// API is the gateway's own API, with the parts that serve it or work beside it.
type API struct {
	Server *control.Server
	Fleet  *fleet.Fleet
	Issuer *passes.Issuer
	Prober *health.Prober
}

// Open returns the API and the fleet. It sends no requests.
//
// probesOnGet means that a GET of a cluster probes it. Functions need that, because the bridge, which probes all
// clusters, may be down.
func (o Options) Open(
	ctx context.Context, p *assembly.Parts, members *cluster.Members, settings fleetconfig.Settings, probesOnGet bool,
) (*API, error) {
	signer, err := kmssigner.Open(ctx, o.PassKMSKey)
	if err != nil {
		return nil, err
	}
	a := &API{
		Fleet:  settings.NewFleet(p, members),
		Issuer: p.NewIssuer(signer),
		Prober: &health.Prober{Objects: p.Stores.Objects, Members: members, Log: p.Log},
	}
	cfg := control.Config{
		Objects: p.Stores.Objects, Secrets: p.Stores.Secrets, Access: p.Access, Members: members,
		ControlPlane: settings.ControlPlane, Issuer: a.Issuer, ServerCA: o.ServerCA.PEM(), MaxPassTTL: o.MaxPassTTL,
		Authentication: p.Env.Authentication.String(), Log: p.Log,
	}
	if probesOnGet {
		cfg.Probe = a.Prober.Probe
	}
	a.Server, err = control.New(cfg)
	return a, err
}
