package passes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// agentAudience is whom credentials of agents are for. Nobody takes one as a caller's, nor any other token as an agent's.
const agentAudience = "clusterpass.io/agent"

// enrolment, by v1alpha1.AgentPrefix and the cluster's name, says that agents of a private cluster may connect: those with a credential
// of its uid, whenever that was made.
type enrolment struct {
	UID     string    `json:"uid"`
	Cluster types.UID `json:"cluster"` // the Cluster's uid: another one of its name has other agents
	Created time.Time `json:"created"`
}

// Agent is who connects for a private cluster.
type Agent struct {
	Cluster string
	// TTL is how long the credential was good for from its beginning to its end.
	TTL time.Duration
	// Recheck returns an error once an agent may not connect with this credential any more: it has expired, the key that signed it is gone,
	// or the cluster's agents may not connect at all.
	Recheck func(ctx context.Context) error
	// Ending reports whether the last quarter of the credential's life has begun. Agents have their next one by then.
	Ending func() bool

	uid string
}

// EnrolAgent makes the first credential for the agents of a private cluster, good for ttl, at most MaxTTL. What was made for that cluster
// before ends.
func (i *Issuer) EnrolAgent(ctx context.Context, c *clusterv1alpha1.Cluster, ttl time.Duration) (secrets.Value, error) {
	if ttl < MinTTL || ttl > MaxTTL {
		return secrets.Value{}, fmt.Errorf("credentials of agents are good for %s to %s, not %s", MinTTL, MaxTTL, ttl)
	}
	e := enrolment{uuid.NewString(), c.UID, i.now().UTC().Truncate(time.Second)}
	token, err := i.agentToken(ctx, c.Name, e.UID, ttl)
	if err != nil {
		return secrets.Value{}, err
	}
	value, err := json.Marshal(e)
	if err != nil {
		return secrets.Value{}, err
	}
	key := v1alpha1.AgentPrefix + c.Name
	_, err = i.Objects.Create(ctx, key, value)
	if errors.Is(err, objects.ErrExists) {
		var old objects.Object
		if old, err = i.Objects.Get(ctx, key); err == nil {
			_, err = i.Objects.Update(ctx, key, value, old.Revision)
		}
	}
	return token, err
}

// RenewAgent makes an agent's next credential, good for as long as its present one was.
func (i *Issuer) RenewAgent(ctx context.Context, a *Agent) (secrets.Value, error) {
	return i.agentToken(ctx, a.Cluster, a.uid, min(a.TTL, MaxTTL))
}

// RevokeAgent ends all credentials of a cluster's agents, or returns objects.ErrNotFound. Within MaxAge no bridge takes them any more.
func (i *Issuer) RevokeAgent(ctx context.Context, cluster string) error {
	return i.remove(ctx, v1alpha1.AgentPrefix+cluster)
}

func (i *Issuer) agentToken(ctx context.Context, cluster, uid string, ttl time.Duration) (secrets.Value, error) {
	if _, err := i.renewed(ctx, TunnelKeys); err != nil { // by which the agents will be reached
		return secrets.Value{}, fmt.Errorf("the keys of the tunnel port: %w", err)
	}
	now := i.now().Truncate(time.Second)
	return i.signed(ctx, agentToken, jwt.Claims{
		Audience: jwt.Audience{agentAudience}, Subject: cluster, ID: uid,
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(ttl)),
	}, struct{}{})
}

// Agent returns whose credential a token is, if it is that of an agent of the named cluster. Its errors are *status.Error: Unauthenticated
// or StoreUnavailable.
func (v *Verifier) Agent(ctx context.Context, token, cluster string) (*Agent, error) {
	what := agentToken.what
	if v.cfg.URL == "" {
		return nil, refused(nil, "this gateway takes no agents, since it does not know its own URL")
	}
	c, err := v.signed(ctx, agentToken, token, agentAudience, &struct{}{})
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return nil, refused(err, "the %s has expired; have the cluster join again: clusterpass cluster join --pull --replace %s", what, cluster)
	case err != nil:
		return nil, err
	case c.Subject != cluster || c.IssuedAt == nil:
		return nil, refused(nil, "the %s is not one of cluster %q", what, cluster)
	}
	end, key := c.Expiry.Time(), keyOf(token)
	a := &Agent{Cluster: cluster, TTL: end.Sub(c.IssuedAt.Time()), uid: c.ID}
	a.Ending = func() bool { return !v.cfg.Now().Before(end.Add(-a.TTL / 4)) }
	a.Recheck = func(ctx context.Context) error {
		if !v.cfg.Now().Before(end.Add(skew)) {
			return refused(nil, "the %s has expired", what)
		}
		if _, err := v.key(ctx, agentToken, key); err != nil {
			return err
		}
		var (
			e enrolment
			c clusterv1alpha1.Cluster
		)
		for key, into := range map[string]any{v1alpha1.AgentPrefix + cluster: &e, clusterv1alpha1.Prefix + cluster: &c} {
			value, err := v.records.Get(ctx, key)
			if err != nil {
				return v.unavailable(err)
			}
			if value == nil || json.Unmarshal(value, into) != nil {
				return refused(nil, "the %s was revoked, or its cluster removed", what)
			}
		}
		if e.UID != a.uid || e.Cluster != c.UID || c.Spec.SyncMode != clusterv1alpha1.Pull {
			return refused(nil, "the %s was revoked; have the cluster join again: clusterpass cluster join --pull --replace %s", what, cluster)
		}
		return nil
	}
	return a, a.Recheck(ctx)
}
