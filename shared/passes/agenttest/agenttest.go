// Package agenttest makes credentials of the agents of private clusters, for tests and benchmarks.
package agenttest

import (
	"context"
	"time"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
)

// Gateway makes and verifies credentials.
type Gateway struct {
	Issuer   *passes.Issuer
	Verifier *passes.Verifier
}

// Enrol returns the first credential for the agents of a stored cluster, bound to a new key.
func (g Gateway) Enrol(ctx context.Context, c *v1alpha1.Cluster, ttl time.Duration) (possession.Credential, error) {
	bootstrap, err := g.Issuer.EnrolAgent(ctx, c, ttl)
	if err != nil {
		return possession.Credential{}, err
	}
	return g.Exchange(ctx, c.Name, possession.Credential{Token: bootstrap})
}

// Exchange returns the next credential, bound to a new key. It applies edits to the authenticated agent before that.
func (g Gateway) Exchange(
	ctx context.Context, cluster string, c possession.Credential, edits ...func(*passes.Agent),
) (possession.Credential, error) {
	now := time.Now
	if g.Issuer.Now != nil {
		now = g.Issuer.Now
	}
	key, err := possession.NewKey()
	if err != nil {
		return possession.Credential{}, err
	}
	request, err := key.Request(cluster)
	if err != nil {
		return possession.Credential{}, err
	}
	p, err := Present(c, possession.Renew, request, now())
	if err != nil {
		return possession.Credential{}, err
	}
	agent, err := g.Verifier.AuthenticateAgent(ctx, cluster, p)
	if err != nil {
		return possession.Credential{}, err
	}
	for _, edit := range edits {
		edit(agent)
	}
	token, err := g.Issuer.RenewAgent(ctx, agent, request)
	return possession.Credential{Token: token, Key: key}, err
}

// Present returns the authentication of a request with a credential at the time now.
func Present(c possession.Credential, use possession.Use, request string, now time.Time) (passes.AgentAuth, error) {
	h, err := c.Header(use, request, now)
	return passes.AgentAuth{
		Token: string(c.Token.Reveal()), Proof: h.Get(possession.ProofHeader), Use: use, CertificateRequest: request,
	}, err
}
