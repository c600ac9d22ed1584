package passes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/passes/possession"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/status"
)

const (
	// overlap is how long the previous credential still connects after a renewal. Older credentials do not. An agent may
	// have read the shared credential just before another agent of the cluster renewed it.
	overlap = time.Minute
	// renewalPause is the minimum interval between two renewals of one cluster. It limits writes to the object store.
	renewalPause = 10 * time.Second
)

// Reuse records a use of an agent's credential that was refused because the credential was replaced.
type Reuse struct {
	Time time.Time `json:"time"`
	From string    `json:"from"` // source addresses, separated by commas
}

// ReusedError is the error for an agent's credential that was replaced. Another party probably has a copy of this
// credential or of an earlier one. A Secret that was restored from a backup, and a second exchange of a bootstrap
// credential, cause the same error.
type ReusedError struct{ Agent *Agent }

func (e *ReusedError) Error() string {
	return fmt.Sprintf("generation %d of the %s was replaced", e.Agent.generation, agentCredential)
}

func refuseReused(a *Agent) *status.Error {
	return refusal(&ReusedError{a}, "the %s was replaced by one that is bound to another key; %s", agentCredential,
		rejoinHint(a.Cluster))
}

func (e *enrolment) checkNotEnded(cluster string) error {
	if e.Reuse == nil {
		return nil
	}
	return refusal(nil, "the credentials of the agents were ended at %s, because a replaced credential was used; %s",
		e.Reuse.Time.UTC().Format(time.RFC3339), rejoinHint(cluster))
}

// checkNewest returns an error that wraps a *ReusedError if the credential was replaced. During the overlap after a
// renewal, it also accepts the previous credential. It accepts generations newer than the cached enrolment. It also
// accepts credentials that earlier releases issued, which have no generation.
func (v *Verifier) checkNewest(ctx context.Context, a *Agent) error {
	value, err := v.records.Get(ctx, v1alpha1.AgentPrefix+a.Cluster)
	if err != nil {
		return unavailable(credentialUnchecked, err)
	}
	var e enrolment
	if json.Unmarshal(value, &e) != nil {
		return refusal(nil, "the %s was revoked; %s", agentCredential, rejoinHint(a.Cluster))
	}
	switch {
	case a.generation == 0: // issued by an earlier release; it connects until it expires
	case a.generation > e.Generation:
	case a.generation == e.Generation && a.keyThumbprint == e.KeyThumbprint:
	case a.generation+1 == e.Generation && v.cfg.Now().Before(e.Renewed.Add(overlap)):
	default:
		return refuseReused(a)
	}
	return nil
}

// RenewAgent exchanges an agent's credential for the next one, which is bound to the key of a PKCS#10 request. Until
// the next renewal, an agent may repeat its exchange if the request has the same key as before. Errors are
// *status.Error. If an error wraps a *ReusedError, the caller must call EndAgents.
func (i *Issuer) RenewAgent(ctx context.Context, a *Agent, request string) (secrets.Value, error) {
	public, err := possession.ParseRequest(request, a.Cluster)
	if err != nil {
		return secrets.Value{}, invalidRequest(a.Cluster, err)
	}
	thumbprint, err := possession.Thumbprint(public)
	if err != nil {
		return secrets.Value{}, status.From(err)
	}
	var generation uint64
	err = i.editEnrolment(ctx, a, func(e *enrolment) (changed bool, err error) {
		generation, changed, err = e.renew(a, thumbprint, i.now())
		return changed, err
	})
	if err != nil {
		return secrets.Value{}, err
	}
	own := agentClaims{&confirmation{&jose.JSONWebKey{Key: public.Key}}, generation}
	token, err := i.signAgentToken(ctx, a, agentAudience, own)
	if err != nil {
		return secrets.Value{}, status.From(err)
	}
	return token, nil
}

func invalidRequest(cluster string, err error) *status.Error {
	return status.New(status.BadRequest, cluster, "the request for a credential cannot be used: %w", err)
}

// renew records the next credential of a, and returns its generation. A repeated exchange changes nothing.
func (e *enrolment) renew(a *Agent, thumbprint string, now time.Time) (generation uint64, changed bool, err error) {
	isNewest := a.generation == e.Generation && a.keyThumbprint == e.KeyThumbprint
	isAhead := a.generation > e.Generation // the store was restored from a backup
	switch {
	case a.generation+1 == e.Generation && thumbprint == e.KeyThumbprint:
		return e.Generation, false, nil
	case !isNewest && !isAhead:
		return 0, false, refuseReused(a)
	case thumbprint == a.keyThumbprint:
		return 0, false, invalidRequest(a.Cluster, errors.New("it has the key of the present credential; send a new key"))
	case now.Sub(e.Renewed) < renewalPause:
		return 0, false, &status.Error{Reason: status.TooManyRequests, Cluster: a.Cluster, RetryAfter: renewalPause,
			Message: fmt.Sprintf("the %s was renewed within the last %s; try again later", agentCredential, renewalPause)}
	}
	e.Generation, e.KeyThumbprint, e.Renewed = a.generation+1, thumbprint, now.UTC()
	return e.Generation, true, nil
}

var errEnrolmentGone = errors.New("the enrolment is gone")

// EndAgents ends all credentials of the agent's cluster after a reuse, and sets the condition AgentCredentialReused.
// Every bridge refuses these credentials within MaxAge. EndAgents does nothing if they have ended already, or if the
// enrolment was deleted or replaced.
func (i *Issuer) EndAgents(ctx context.Context, a *Agent, r Reuse) error {
	reused := &metav1.Condition{
		Type: clusterv1alpha1.AgentCredentialReused, Status: metav1.ConditionTrue, Reason: "CopyUsed",
		LastTransitionTime: metav1.NewTime(r.Time).Rfc3339Copy(),
		Message: fmt.Sprintf("a replaced credential of the agents was used at %s from %s: another party probably "+
			"has a copy; %s", r.Time.UTC().Format(time.RFC3339), r.From, rejoinHint(a.Cluster)),
	}
	// Set the condition before the credentials end. If the condition cannot be set, the next use of a replaced credential
	// causes another call of EndAgents. After the credentials have ended, no use does, because the error of a use then
	// wraps no *ReusedError.
	err := i.editCondition(ctx, a.Cluster, func(*metav1.Condition) (*metav1.Condition, error) {
		// The condition that another bridge has set for a later enrolment must not be overwritten. editCondition has already
		// read the Cluster. If that condition is set from now on, the update of the Cluster conflicts. If it was set before
		// that read, the agent's enrolment was already replaced, so editEnrolment returns errEnrolmentGone.
		return reused, i.editEnrolment(ctx, a, func(*enrolment) (bool, error) { return false, nil })
	})
	if err == nil {
		err = i.editEnrolment(ctx, a, func(e *enrolment) (bool, error) {
			e.Reuse = &r
			return true, nil
		})
	}
	switch {
	case errors.Is(err, errEnrolmentGone): // meanwhile the cluster has joined again, or its agents were revoked
		return i.editCondition(ctx, a.Cluster, func(c *metav1.Condition) (*metav1.Condition, error) {
			if c != nil && c.Message == reused.Message {
				return nil, nil
			}
			return c, nil
		})
	case isRefusal(err):
		return nil
	}
	return err
}

func isRefusal(err error) bool {
	var e *status.Error
	return errors.As(err, &e) && e.Reason == status.Unauthenticated
}

// editEnrolment calls edit for the enrolment of an agent's credential, and stores the enrolment if changed is true.
// After a conflict it calls edit again. If the enrolment was deleted or replaced, the error wraps errEnrolmentGone. If
// the credentials have ended, it does not call edit, and returns an Unauthenticated error. Errors of editEnrolment
// itself are *status.Error.
func (i *Issuer) editEnrolment(ctx context.Context, a *Agent, edit func(*enrolment) (changed bool, err error)) error {
	for range attempts {
		o, err := i.Objects.Get(ctx, v1alpha1.AgentPrefix+a.Cluster)
		var e enrolment
		switch {
		case errors.Is(err, objects.ErrNotFound), err == nil && (json.Unmarshal(o.Value, &e) != nil || e.UID != a.uid):
			return refusal(errEnrolmentGone, "the %s was revoked; %s", agentCredential, rejoinHint(a.Cluster))
		case err != nil:
			return storeFailed(err)
		}
		if err := e.checkNotEnded(a.Cluster); err != nil {
			return err
		}
		changed, err := edit(&e)
		if err != nil || !changed {
			return err
		}
		value, err := json.Marshal(&e)
		if err != nil {
			return status.From(err)
		}
		if _, err = i.Objects.Update(ctx, o.Key, value, o.Revision); err == nil {
			return nil
		}
		if !errors.Is(err, objects.ErrConflict) && !errors.Is(err, objects.ErrNotFound) {
			return storeFailed(err)
		}
	}
	e := storeFailed(objects.ErrConflict)
	e.Message = "the " + agentCredential + " cannot be renewed or ended: other writers changed its enrolment; try again"
	return e
}

func storeFailed(err error) *status.Error {
	return &status.Error{Reason: status.StoreUnavailable, Err: err, RetryAfter: max(retry, objects.RetryAfter(err)),
		Message: "the " + agentCredential + " cannot be renewed or ended: the gateway's store fails now; try again"}
}

// editCondition calls edit with the Cluster's condition AgentCredentialReused, or with nil if there is none. It stores
// the result as the condition, and removes the condition if the result is nil. After a conflict, it calls edit again
// with the new condition. If the Cluster is missing, it does nothing.
func (i *Issuer) editCondition(
	ctx context.Context, cluster string, edit func(*metav1.Condition) (*metav1.Condition, error),
) error {
	for range attempts {
		o, err := i.Objects.Get(ctx, clusterv1alpha1.Prefix+cluster)
		if errors.Is(err, objects.ErrNotFound) {
			return nil
		} else if err != nil {
			return err
		}
		obj, err := clusterv1alpha1.Decode(o.Key, o.Value)
		if err != nil {
			return err
		}
		var old *metav1.Condition
		var others []metav1.Condition
		for n, c := range obj.Status.Conditions {
			if c.Type == clusterv1alpha1.AgentCredentialReused {
				old = &obj.Status.Conditions[n]
			} else {
				others = append(others, c)
			}
		}
		c, err := edit(old)
		if err != nil || c == old {
			return err
		}
		if obj.Status.Conditions = others; c != nil {
			c.ObservedGeneration = obj.Generation
			obj.Status.Conditions = append(others, *c)
		}
		value, err := json.Marshal(obj)
		if err != nil {
			return err
		}
		if _, err = i.Objects.Update(ctx, o.Key, value, o.Revision); !errors.Is(err, objects.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("write the status of cluster %q: %w", cluster, objects.ErrConflict)
}
