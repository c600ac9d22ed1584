// Package policy decides which sessions are recorded, by the RecordingPolicies in the object store.
//
// [Policies.For] returns the [Rule] of a [Call]. [Validate] checks a policy before it is stored.
//
// Invariants:
//   - The strictest of all matching policies decides.
//   - An unknown part of a Call matches every selector.
//   - A policy that cannot be read covers every call, and its level is Required.
//   - No decision is based on policies older than MaxAge. If the store is down for longer, decisions fail.
package policy

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/json"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Level is the level of a policy, or None.
type Level = v1alpha1.RecordingLevel

// Levels of a Rule.
const (
	None       Level = "" // the session is not recorded
	BestEffort       = v1alpha1.BestEffort
	Required         = v1alpha1.Required
)

// Rule is how a session is recorded.
type Rule struct {
	Level       Level
	RecordInput bool   // false if Level is None
	Policy      string // name of a policy that has this level; "" if Level is None
}

// Call is a request that may be recorded.
type Call struct {
	// User is nil if only the cluster identifies the caller.
	User *identity.User
	// Cluster and Namespace are "" if the request may reach any.
	Cluster, Namespace string
}

// MaxAge is the maximum age of the policies that decide.
const MaxAge = 30 * time.Second

const (
	retry   = 2 * time.Second
	timeout = 5 * time.Second
)

// Config configures Policies.
type Config struct {
	Objects objects.Lister
	// Fresh is the maximum age of the policies while the store is up. 0 reads the store for each decision.
	Fresh time.Duration
	// Patience limits how long a decision waits for a slow store while the policies are younger than MaxAge. 0 means no
	// limit.
	Patience time.Duration
	Log      *slog.Logger     // nil means slog.Default()
	Now      func() time.Time // nil means time.Now
}

// Policies decides by the policies in a store. It is safe for concurrent use. It reads the store at the first decision,
// and again once the policies are not fresh. It has no goroutine of its own.
type Policies struct {
	known *cache.Cache[[]policy] // under key
}

const key = "all"

// policy is a stored policy.
type policy struct {
	name string
	spec v1alpha1.RecordingPolicySpec
}

// New returns Policies. It sends no requests.
func New(cfg Config) *Policies {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Policies{cache.New(cache.Config{
		Name: "recording policies", Max: 1, TTL: cfg.Fresh, Stale: MaxAge, Patience: cfg.Patience, Retry: retry,
		Timeout: timeout, Missing: func(error) bool { return false },
		Down: func(err error) bool {
			return errors.Is(err, objects.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
		},
		Source: cache.SourceOf(cfg.Objects), Now: cfg.Now, Log: cfg.Log,
	}, func(ctx context.Context, _ string) ([]policy, error) { return read(ctx, cfg.Objects, cfg.Log) })}
}

// Stats returns the statistics of the cache by its name.
func (p *Policies) Stats() map[string]cache.Stats {
	return map[string]cache.Stats{"recording_policies": p.known.Stats()}
}

func read(ctx context.Context, store objects.Lister, log *slog.Logger) ([]policy, error) {
	page, err := store.List(ctx, v1alpha1.RecordingPolicyPrefix, 0, "")
	if err != nil {
		return nil, err
	}
	known := make([]policy, len(page.Objects))
	for i, o := range page.Objects {
		name := strings.TrimPrefix(o.Key, v1alpha1.RecordingPolicyPrefix)
		var r v1alpha1.RecordingPolicy
		if err := json.UnmarshalCaseSensitivePreserveInts(o.Value, &r); err != nil {
			log.Error("a RecordingPolicy cannot be read, so all sessions must be recorded", "key", o.Key, "error", err.Error())
			r.Spec = v1alpha1.RecordingPolicySpec{Level: Required}
		}
		known[i] = policy{name, r.Spec}
	}
	return known, nil
}

// For returns the Rule of a call. Its error is a *status.Error with reason StoreUnavailable or, if the client has gone,
// the context's error. Then the session must not begin.
func (p *Policies) For(ctx context.Context, c Call) (Rule, error) {
	known, err := p.known.Get(ctx, key)
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, context.Canceled) {
			return Rule{}, cause
		}
		return Rule{}, &status.Error{
			Reason: status.StoreUnavailable, Cluster: c.Cluster, Err: err,
			RetryAfter: max(retry, objects.RetryAfter(err)),
			Message: "the gateway cannot determine whether this session must be recorded: it cannot read its " +
				"RecordingPolicies now; try again",
		}
	}
	var rule Rule
	for i := range known {
		if k := &known[i]; covers(&k.spec, c) {
			rule.add(k)
		}
	}
	return rule, nil
}

// add makes the rule as strict as a policy. An unknown level is of a later version, and counts as Required.
func (r *Rule) add(p *policy) {
	r.RecordInput = r.RecordInput || p.spec.RecordInput
	if p.spec.Level != BestEffort && r.Level != Required {
		r.Level, r.Policy = Required, p.name
	} else if r.Level == None {
		r.Level, r.Policy = BestEffort, p.name
	}
}

func covers(s *v1alpha1.RecordingPolicySpec, c Call) bool {
	return coversName(s.Clusters, c.Cluster) && coversName(s.Namespaces, c.Namespace) && coversUser(s, c.User)
}

func coversName(globs []string, name string) bool {
	return len(globs) == 0 || name == "" || matchesAny(globs, name)
}

// coversUser also compares the impersonator. Otherwise a caller could impersonate another user to escape a policy.
func coversUser(s *v1alpha1.RecordingPolicySpec, u *identity.User) bool {
	if u == nil || len(s.Users) == 0 && len(s.Groups) == 0 {
		return true
	}
	hasGroup := func(group string) bool { return matchesAny(s.Groups, group) }
	return matchesAny(s.Users, u.Name) || u.Impersonator != "" && matchesAny(s.Users, u.Impersonator) ||
		slices.ContainsFunc(u.Groups, hasGroup) || hasGroup(u.ImpliedGroup()) ||
		slices.ContainsFunc(u.ImpersonatorGroups, hasGroup)
}
