// Package plugintest has a credential plugin for tests of code that must run none.
package plugintest

import (
	"context"
	"testing"

	"github.com/clusterpass/clusterpass/shared/cluster/kubeconfig"
)

// Latest is a credential plugin that has run. It implements kubeconfig.Plugin. A further run fails the test.
type Latest struct {
	TB    testing.TB
	Token string
	Err   error // that Latest returns
}

// Credential implements kubeconfig.Plugin.
func (p *Latest) Credential(context.Context) (kubeconfig.PluginCredential, error) {
	p.TB.Error("the plugin runs")
	return p.Latest()
}

// Latest implements kubeconfig.Plugin.
func (p *Latest) Latest() (kubeconfig.PluginCredential, error) {
	return kubeconfig.PluginCredential{Token: p.Token}, p.Err
}

// Renew implements kubeconfig.Plugin.
func (p *Latest) Renew(context.Context, string) bool {
	p.TB.Error("the plugin runs again")
	return false
}
