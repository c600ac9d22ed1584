package passes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// bootstrapAudience is for the credential in the manifest of clusterpass cluster join --pull. That credential opens no
	// tunnel. Agents exchange it once for a credential that opens tunnels.
	bootstrapAudience = "clusterpass.io/agent-bootstrap"
	// agentAudience is for credentials that open tunnels. Credentials that earlier releases issued are not bound to a key.
	agentAudience = "clusterpass.io/agent"
)

const agentCredential = "agent's credential"

// enrolment is an object that allows the agents of a private cluster to connect. An agent's
// credential must contain the uid of the enrolment.
type enrolment struct {
	UID string `json:"uid"`
	// Cluster is the uid of the Cluster. A later Cluster with the same name needs a new enrolment.
	Cluster types.UID `json:"cluster"`
	Created time.Time `json:"created"`
	// Generation is the generation of the newest credential. KeyThumbprint identifies the key of the newest credential
	// (RFC 7638). Renewed is the time at which Generation last increased. A repeated exchange changes none of the three.
	// All are zero before the first exchange.
	Generation    uint64    `json:"generation,omitempty"`
	KeyThumbprint string    `json:"key,omitempty"`
	Renewed       time.Time `json:"renewed,omitzero"`
	// Reuse is set when a replaced credential was used. All credentials of the enrolment have ended then.
	Reuse *Reuse `json:"reuse,omitempty"`
}

// agentClaims are the private claims of an agent's credential. The registered sub is the cluster, and jti the
// enrolment's uid.
type agentClaims struct {
	// Confirmation is the key that the credential is bound to (RFC 7800). Bootstrap credentials and those that earlier
	// releases issued have none.
	Confirmation *confirmation `json:"cnf,omitempty"`
	Generation   uint64        `json:"clusterpass.io/generation,omitempty"`
}

type confirmation struct {
	Key *jose.JSONWebKey `json:"jwk"`
}

// AgentAuth contains the credential and the proof of an agent's request.
type AgentAuth struct {
	Token              string
	Proof              string         // proves the possession of the key that Token is bound to
	Use                possession.Use // the purpose of the request
	CertificateRequest string         // PKCS#10 request for the next credential, only with possession.Renew
}

// Agent is an authenticated agent of a private cluster.
type Agent struct {
	Cluster string
	TTL     time.Duration // lifetime of this credential, and of the credential that replaces it
	// Recheck returns a *status.Error unless the credential is still valid. It checks the credential's expiry, the key
	// that signed it, the enrolment and the Cluster.
	Recheck func(ctx context.Context) error
	// IsEnding reports whether the last quarter of the credential's lifetime has begun.
	IsEnding func() bool

	uid           string // the enrolment's
	generation    uint64 // 0 for a bootstrap credential and one that an earlier release issued
	keyThumbprint string // "" if the credential is not bound to a key
}

// EnrolAgent returns the bootstrap credential for the agents of a private cluster. This credential is valid for ttl,
// and so is each later one that agents get in exchange. EnrolAgent ends all earlier credentials, and removes the
// condition AgentCredentialReused of the Cluster. If EnrolAgent fails, earlier credentials may have ended, so the
// caller must call it again.
func (i *Issuer) EnrolAgent(ctx context.Context, c *clusterv1alpha1.Cluster, ttl time.Duration) (secrets.Value, error) {
	if ttl < MinTTL || ttl > MaxTTL {
		return secrets.Value{}, fmt.Errorf("enrol the agents of cluster %q: the lifetime of their credential is %s; "+
			"want %s to %s", c.Name, ttl, MinTTL, MaxTTL)
	}
	e := enrolment{UID: uuid.NewString(), Cluster: c.UID, Created: i.now().UTC().Truncate(time.Second)}
	token, err := i.signAgentToken(ctx, &Agent{Cluster: c.Name, TTL: ttl, uid: e.UID}, bootstrapAudience, agentClaims{})
	if err != nil {
		return secrets.Value{}, err
	}
	value, err := json.Marshal(e)
	if err != nil {
		return secrets.Value{}, err
	}
	if err = i.replace(ctx, v1alpha1.AgentPrefix+c.Name, value); err == nil {
		err = i.editCondition(ctx, c.Name, func(*metav1.Condition) (*metav1.Condition, error) { return nil, nil })
	}
	return token, err
}

// replace creates the object, or replaces its value. It retries after conflicts, because agents that renew their
// credentials write the same object.
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

// RevokeAgent ends all credentials of a cluster's agents. Every bridge refuses them within MaxAge. Without an enrolment
// it returns objects.ErrNotFound.
func (i *Issuer) RevokeAgent(ctx context.Context, cluster string) error {
	return i.remove(ctx, v1alpha1.AgentPrefix+cluster)
}

// signAgentToken also creates or renews the keys of the tunnel port, which the gateway needs to reach the agents.
func (i *Issuer) signAgentToken(
	ctx context.Context, a *Agent, audience string, privateClaims agentClaims,
) (secrets.Value, error) {
	if _, err := i.renewKeys(ctx, TunnelKeys); err != nil {
		return secrets.Value{}, fmt.Errorf("renew the keys of the tunnel port: %w", err)
	}
	now := i.now().Truncate(time.Second)
	return i.signToken(ctx, agentToken, jwt.Claims{
		Audience: jwt.Audience{audience}, Subject: a.Cluster, ID: a.uid,
		IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(min(a.TTL, MaxTTL))),
	}, privateClaims)
}

// AuthenticateAgent authenticates an agent of the named cluster. Its errors are *status.Error: Unauthenticated or
// StoreUnavailable. If the error wraps a *ReusedError, the caller must call Issuer.EndAgents.
//
// For possession.Connect, it refuses a replaced credential with a *ReusedError. Exceptions are the previous credential
// for a minute after a renewal, and credentials of earlier releases until they expire. A bootstrap credential is
// refused with an error that wraps no *ReusedError.
//
// For possession.Renew, it accepts bootstrap credentials. Issuer.RenewAgent checks whether a credential was replaced.
func (v *Verifier) AuthenticateAgent(ctx context.Context, cluster string, p AgentAuth) (*Agent, error) {
	if v.cfg.URL == "" {
		return nil, refusal(nil,
			"this gateway accepts no agents: its own URL is not configured; have its administrator set CLUSTERPASS_URL")
	}
	audience := agentAudience
	if hasAudience(p.Token, bootstrapAudience) {
		// This is no ReusedError: agents of earlier versions connect with the bootstrap credential of a new manifest.
		if p.Use != possession.Renew {
			return nil, refusal(nil, "the bootstrap credential of cluster %q opens no tunnel: agents must exchange it first; "+
				"upgrade its agents", cluster)
		}
		audience = bootstrapAudience
	}
	var own agentClaims
	c, err := v.verifySigned(ctx, agentToken, p.Token, audience, &own)
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return nil, refusal(err, "the %s has expired; %s", agentCredential, rejoinHint(cluster))
	case err != nil:
		return nil, err
	case c.Subject != cluster || c.IssuedAt == nil:
		return nil, refusal(nil, "the %s does not belong to cluster %q", agentCredential, cluster)
	}
	a := &Agent{Cluster: cluster, TTL: c.Expiry.Time().Sub(c.IssuedAt.Time()), uid: c.ID, generation: own.Generation}
	proof := ""
	if own.Confirmation != nil {
		proof, err = possession.Verify(own.Confirmation.Key, p.Proof, p.Token, p.Use, p.CertificateRequest, v.cfg.Now())
		if err == nil {
			a.keyThumbprint, err = possession.Thumbprint(own.Confirmation.Key)
		}
		if err != nil {
			return nil, invalidProof(err)
		}
	}
	v.setChecks(a, c.Expiry.Time(), c.keyID)
	if err := a.Recheck(ctx); err != nil {
		return nil, err
	}
	if proof != "" { // after Recheck, so that proofs of revoked agents do not count towards the cluster's limit
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
	return refusal(err, "the proof that the agent has the key of its credential is refused: %v", err)
}

func rejoinHint(cluster string) string {
	return "have the cluster join again, with --group for the groups of its callers: " +
		"clusterpass cluster join --pull --replace " + cluster + " --group GROUP"
}

// hasAudience reports whether a token claims an audience. It verifies nothing.
func hasAudience(token, audience string) bool {
	var c jwt.Claims
	t, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.ES256})
	return err == nil && t.UnsafeClaimsWithoutVerification(&c) == nil && c.Audience.Contains(audience)
}

func (v *Verifier) setChecks(a *Agent, end time.Time, keyID string) {
	a.IsEnding = func() bool { return !v.cfg.Now().Before(end.Add(-a.TTL / 4)) }
	var checked atomic.Pointer[[2][]byte]
	a.Recheck = func(ctx context.Context) error {
		if !v.cfg.Now().Before(end.Add(clockSkew)) {
			return refusal(nil, "the %s has expired; %s", agentCredential, rejoinHint(a.Cluster))
		}
		if _, err := v.key(ctx, agentToken, keyID); err != nil {
			return err
		}
		var values [2][]byte
		for i, key := range []string{v1alpha1.AgentPrefix + a.Cluster, clusterv1alpha1.Prefix + a.Cluster} {
			var err error
			if values[i], err = v.records.Get(ctx, key); err != nil {
				return unavailable(credentialUnchecked, err)
			}
		}
		// Objects that did not change since the last success need not be decoded again.
		if last := checked.Load(); last != nil && bytes.Equal(last[0], values[0]) && bytes.Equal(last[1], values[1]) {
			return nil
		}
		if err := a.checkObjects(values[0], values[1]); err != nil {
			return err
		}
		checked.Store(&values)
		return nil
	}
}

// checkObjects checks the values of the enrolment and of the Cluster.
func (a *Agent) checkObjects(enrolmentValue, clusterValue []byte) error {
	var (
		e enrolment
		c clusterv1alpha1.Cluster
	)
	if enrolmentValue == nil || clusterValue == nil || json.Unmarshal(enrolmentValue, &e) != nil ||
		json.Unmarshal(clusterValue, &c) != nil {
		return refusal(nil, "the %s was revoked, or its cluster was removed; %s", agentCredential, rejoinHint(a.Cluster))
	}
	if e.UID != a.uid || e.Cluster != c.UID || c.Spec.SyncMode != clusterv1alpha1.Pull {
		return refusal(nil, "the %s was revoked; %s", agentCredential, rejoinHint(a.Cluster))
	}
	return e.checkNotEnded(a.Cluster)
}
