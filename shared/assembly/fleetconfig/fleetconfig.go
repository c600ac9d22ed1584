// Package fleetconfig adds the fleet to a gateway: many clusters, served as one.
package fleetconfig

import (
	"time"

	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/fleet"
	"github.com/clusterpass/clusterpass/shared/route"
)

// Settings are the fleet's configuration. Programs embed it beside assembly.Env.
type Settings struct {
	ControlPlane  string           `envconfig:"CLUSTERPASS_CONTROL_PLANE" desc:"Name of the control-plane cluster. It serves resources that the gateway itself lacks, and at /fleet the resources that no ResourceRegistry covers." example:"management"`
	FleetDeadline time.Duration    `envconfig:"CLUSTERPASS_FLEET_DEADLINE" default:"10s" min:"100ms" desc:"Time in which a cluster must start to respond to a fleet request. The bridge also waits that long for the discovery of one cluster. Slower clusters are left out of the result." example:"5s"`
	BareWrites    fleet.BareWrites `envconfig:"CLUSTERPASS_FLEET_BARE_WRITES" default:"whole" desc:"Fleet writes that may name an object without its cluster: whole (writes with the complete object, such as updates and kubectl apply), none, or all (also deletions and patches)." example:"none"`
}

// Validate implements config.Validator.
func (s *Settings) Validate() error {
	if s.ControlPlane == "" {
		return nil
	}
	if err := route.ValidClusterName(s.ControlPlane); err != nil {
		return &config.Error{Variable: "CLUSTERPASS_CONTROL_PLANE", Problem: err.Error(), Example: "management"}
	}
	return nil
}

// NewFleet returns the fleet of a gateway.
func (s *Settings) NewFleet(p *assembly.Parts, members *cluster.Members) *fleet.Fleet {
	return fleet.New(fleet.Config{
		Objects: p.Objects, Members: members, Access: p.Access, Freshness: p.Freshness.Object,
		ControlPlane: s.ControlPlane, Deadline: s.FleetDeadline, BareWrites: s.BareWrites, Log: p.Log,
	})
}
