package passes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/status"
)

// The audiences of agents' credentials. No caller's token has one of them.
const (
	// bootstrapAudience is that of the credential that clusterpass cluster join --pull makes. It is good for one
	// exchange.
	bootstrapAudience = "clusterpass.io/agent-bootstrap"
	// agentAudience is that of the credentials that agents connect with. Those of earlier versions are bound to no key.
	agentAudience = "clusterpass.io/agent"
)

// agentCredential names the kind of credential in errors.
const agentCredential = "agent's credential"

// enrolment allows the agents of a private cluster to connect. Its key is v1alpha1.AgentPrefix with the cluster's
// name. Credentials of another uid are refused.
type enrolment struct {
	UID     string    `json:"uid"`
	Cluster types.UID `json:"cluster"` // the Cluster's uid; a later Cluster of that name has other agents
	Created time.Time `json:"created"`
	// Generation and Key, a thumbprint, are those of the newest credential, which was issued at Renewed. They are zero
	// before the first exchange.
	Generation uint64    `json:"generation,omitempty"`
	Key        string    `json:"key,omitempty"`
	Renewed    time.Time `json:"renewed,omitzero"`
	// Reuse, if not nil, ended all credentials of the enrolment.
	Reuse *Reuse `json:"reuse,omitempty"`
}

// agentClaims are the claims of an agent's credential beside the registered ones: the subject is the cluster, and jti
// the enrolment's uid.
type agentClaims struct {
	Confirmation *confirmation `json:"cnf,omitempty"` // RFC 7800; nil in a bootstrap credential and an earlier version's
	Generation   uint64        `json:"clusterpass.io/generation,omitempty"`
}

type confirmation struct {
	Key *jose.JSONWebKey `json:"jwk"`
}

// Presented is the authentication of an agent's request.
type Presented struct {
	Token   string
	Proof   string         // proves the possession of the key that Token is bound to
	Use     possession.Use // the purpose of the request
	Request string         // PKCS#10 request for the next credential, only with possession.Renew
}

// Agent is an authenticated agent of a private cluster.
type Agent struct {
	Cluster string
	// TTL is the whole lifetime of the credential.
	TTL time.Duration
	// Recheck returns an error when the credential is no longer valid. It has expired, its key is gone, or the agents of
	// the cluster were revoked.
	Recheck func(ctx context.Context) error
	// Ending reports whether the last quarter of the credential's lifetime has begun. Agents renew it before.
	Ending func() bool

	uid        string
	generation uint64 // 0 for a bootstrap credential and one of an earlier version
	key        string // thumbprint
}

// EnrolAgent returns the bootstrap credential for the agents of a private cluster. It expires after ttl, at most
// MaxTTL, and so do the credentials that agents exchange it for. All earlier credentials of the cluster's agents end,
// and the Cluster loses its condition AgentCredentialReused.
func (i *Issuer) EnrolAgent(ctx context.Context, c *clusterv1alpha1.Cluster, ttl time.Duration) (secrets.Value, error) {
	if ttl < MinTTL || ttl > MaxTTL {
		return secrets.Value{}, fmt.Errorf("credentials of agents are valid for %s to %s, not %s", MinTTL, MaxTTL, ttl)
	}
	e := enrolment{UID: uuid.NewString(), Cluster: c.UID, Created: i.now().UTC().Truncate(time.Second)}
	token, err := i.agentToken(ctx, &Agent{Cluster: c.Name, TTL: ttl, uid: e.UID}, bootstrapAudience, agentClaims{})
	if err != nil {
		return secrets.Value{}, err
	}
	value, err := json.Marshal(e)
	if err != nil {
		return secrets.Value{}, err
	}
	if err = i.replace(ctx, v1alpha1.AgentPrefix+c.Name, value); err == nil {
		err = i.setCondition(ctx, c.Name, nil)
	}
	return token, err
}

// replace stores value under key in place of any other. Agents that renew their credentials write the same object, so
// replace starts again after a conflict.
func (i *Issuer) replace(ctx context.Context, key string, value []byte) error {
	var err error
	for range attempts {
		var old objects.Object
		old, err = i.Objects.Get(ctx, key)
		switch {
		case errors.Is(err, objects.ErrNotFound):
			_, err = i.Objects.Create(ctx, key, value)
		case err == nil:
			_, err = i.Objects.Update(ctx, key, value, old.Revision)
		}
		raced := errors.Is(err, objects.ErrConflict) || errors.Is(err, objects.ErrExists) ||
			errors.Is(err, objects.ErrNotFound)
		if !raced {
			return err
		}
	}
	return err
}

// RevokeAgent ends all credentials of a cluster's agents, or returns objects.ErrNotFound. Within MaxAge every bridge
// refuses them.
func (i *Issuer) RevokeAgent(ctx context.Context, cluster string) error {
	return i.remove(ctx, v1alpha1.AgentPrefix+cluster)
}

func (i *Issuer) agentToken(ctx context.Context, a *Agent, audience string, own agentClaims) (secrets.Value, error) {
	if _, err := i.renewed(ctx, TunnelKeys); err != nil { // the gateway reaches the agents by them
		return secrets.Value{}, fmt.Errorf("the keys of the tunnel port: %w", err)
	}
	now := i.now().Truncate(time.Second)
	return i.signed(ctx, agentToken, jwt.Claims{
		Audience: jwt.Audience{audience}, Subject: a.Cluster, ID: a.uid,
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(min(a.TTL, MaxTTL))),
	}, own)
}

// Agent authenticates an agent of the named cluster. Its errors are *status.Error: Unauthenticated or StoreUnavailable.
// A wrapped *ReusedError means that two programs used the credential's key. The caller then calls Issuer.EndAgents.
func (v *Verifier) Agent(ctx context.Context, cluster string, p Presented) (*Agent, error) {
	if v.cfg.URL == "" {
		return nil, refused(nil, "this gateway accepts no agents, since its own URL is not configured")
	}
	audience := agentAudience
	if hasAudience(p.Token, bootstrapAudience) {
		if p.Use != possession.Renew {
			return nil, refused(nil, "the bootstrap credential of cluster %q can only be exchanged; upgrade its agents",
				cluster)
		}
		audience = bootstrapAudience
	}
	var own agentClaims
	c, err := v.signed(ctx, agentToken, p.Token, audience, &own)
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return nil, refused(err, "the %s has expired; %s", agentCredential, rejoinHint(cluster))
	case err != nil:
		return nil, err
	case c.Subject != cluster || c.IssuedAt == nil:
		return nil, refused(nil, "the %s does not belong to cluster %q", agentCredential, cluster)
	}
	a := &Agent{Cluster: cluster, TTL: c.Expiry.Time().Sub(c.IssuedAt.Time()), uid: c.ID, generation: own.Generation}
	proof := ""
	if own.Confirmation != nil {
		proof, err = possession.Verify(own.Confirmation.Key, p.Proof, p.Token, p.Use, p.Request, v.cfg.Now())
		if err == nil {
			a.key, err = possession.Thumbprint(own.Confirmation.Key)
		}
		if err != nil {
			return nil, invalidProof(err)
		}
	}
	v.setChecks(a, c.Expiry.Time(), keyOf(p.Token))
	if err := a.Recheck(ctx); err != nil {
		return nil, err
	}
	if proof != "" { // after Recheck: agents with a revoked credential must not use up the proofs of others
		if err := v.proofs.Use(cluster, proof, v.cfg.Now()); err != nil {
			return nil, invalidProof(err)
		}
	}
	if p.Use == possession.Connect {
		err = v.checkNewest(ctx, a)
	}
	return a, err
}

func invalidProof(err error) *status.Error {
	return refused(err, "the agent does not prove that it has the key of its credential: %v", err)
}

func rejoinHint(cluster string) string {
	return "have the cluster join again: clusterpass cluster join --pull --replace " + cluster
}

// hasAudience reports whether a token names an audience. It verifies nothing.
func hasAudience(token, audience string) bool {
	var c jwt.Claims
	t, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	return err == nil && t.UnsafeClaimsWithoutVerification(&c) == nil && c.Audience.Contains(audience)
}

// setChecks sets Recheck and Ending of an agent, for a credential that ends at end and was signed with the key signer.
func (v *Verifier) setChecks(a *Agent, end time.Time, signer string) {
	a.Ending = func() bool { return !v.cfg.Now().Before(end.Add(-a.TTL / 4)) }
	a.Recheck = func(ctx context.Context) error {
		if !v.cfg.Now().Before(end.Add(clockSkew)) {
			return refused(nil, "the %s has expired", agentCredential)
		}
		if _, err := v.key(ctx, agentToken, signer); err != nil {
			return err
		}
		var (
			e enrolment
			c clusterv1alpha1.Cluster
		)
		for key, into := range map[string]any{v1alpha1.AgentPrefix + a.Cluster: &e, clusterv1alpha1.Prefix + a.Cluster: &c} {
			value, err := v.records.Get(ctx, key)
			if err != nil {
				return v.unavailable(err)
			}
			if value == nil || json.Unmarshal(value, into) != nil {
				return refused(nil, "the %s was revoked, or its cluster removed", agentCredential)
			}
		}
		if e.UID != a.uid || e.Cluster != c.UID || c.Spec.SyncMode != clusterv1alpha1.Pull {
			return refused(nil, "the %s was revoked; %s", agentCredential, rejoinHint(a.Cluster))
		}
		return e.ended(a.Cluster)
	}
}
