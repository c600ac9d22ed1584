package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/objects/dir"
	"github.com/clusterpass/clusterpass/shared/status"
)

type spec = v1alpha1.RecordingPolicySpec

// installation is a store with policies, and the Policies that read it.
type installation struct {
	t        *testing.T
	store    objects.Store
	down     error // error of reads
	now      time.Time
	log      bytes.Buffer
	policies *Policies
}

func (i *installation) List(ctx context.Context, prefix string, limit int, cont string) (objects.Page, error) {
	if i.down != nil {
		return objects.Page{}, i.down
	}
	return i.store.List(ctx, prefix, limit, cont)
}

func newInstallation(t *testing.T, specs ...spec) *installation {
	t.Helper()
	store, err := dir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	i := &installation{t: t, store: store, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	for n, s := range specs {
		value, err := json.Marshal(&v1alpha1.RecordingPolicy{Spec: s})
		if err != nil {
			t.Fatal(err)
		}
		i.create(fmt.Sprintf("p%d", n), value)
	}
	log := slog.New(slog.NewTextHandler(&i.log, nil))
	i.policies = New(Config{Objects: i, Fresh: time.Second, Now: func() time.Time { return i.now }, Log: log})
	return i
}

func (i *installation) create(name string, value []byte) {
	i.t.Helper()
	if _, err := i.store.Create(i.t.Context(), v1alpha1.RecordingPolicyPrefix+name, value); err != nil {
		i.t.Fatal(err)
	}
}

func (i *installation) rule(c Call) Rule {
	i.t.Helper()
	rule, err := i.policies.For(i.t.Context(), c)
	if err != nil {
		i.t.Fatal(err)
	}
	return rule
}

// TestPolicySelectsSession: a session that a policy should choose must not be unrecorded, and no other session may be
// recorded.
func TestPolicySelectsSession(t *testing.T) {
	alice := &identity.User{Name: "alice", Groups: []string{"oidc:dev"}}
	call := Call{User: alice, Cluster: "prod-1", Namespace: "shop"}
	asBob := &identity.User{Name: "bob", Impersonator: "alice", ImpersonatorGroups: []string{"oidc:dev"}}
	for name, c := range map[string]struct {
		spec spec
		call Call
		want bool
	}{
		"empty selects all":                 {spec{}, call, true},
		"cluster":                           {spec{Clusters: []string{"test", "prod-1"}}, call, true},
		"other cluster":                     {spec{Clusters: []string{"prod-2", "prod"}}, call, false},
		"glob of clusters":                  {spec{Clusters: []string{"prod-*"}}, call, true},
		"all clusters":                      {spec{Clusters: []string{"*"}}, call, true},
		"namespace":                         {spec{Namespaces: []string{"sh*"}}, call, true},
		"other namespace":                   {spec{Namespaces: []string{"kube-*"}}, call, false},
		"user":                              {spec{Users: []string{"alice"}}, call, true},
		"other user":                        {spec{Users: []string{"bob", "ALICE"}}, call, false},
		"group":                             {spec{Groups: []string{"oidc:*"}}, call, true},
		"other group":                       {spec{Groups: []string{"dev", "oidc:developers"}}, call, false},
		"group of every user":               {spec{Groups: []string{identity.Authenticated}}, call, true},
		"user or group":                     {spec{Users: []string{"bob"}, Groups: []string{"oidc:dev"}}, call, true},
		"group or user":                     {spec{Users: []string{"alice"}, Groups: []string{"sre"}}, call, true},
		"neither user nor group":            {spec{Users: []string{"bob"}, Groups: []string{"sre"}}, call, false},
		"cluster of another user":           {spec{Clusters: []string{"prod-1"}, Users: []string{"bob"}}, call, false},
		"namespace of another cluster":      {spec{Clusters: []string{"test"}, Namespaces: []string{"shop"}}, call, false},
		"impersonator":                      {spec{Users: []string{"alice"}}, Call{User: asBob, Cluster: "prod-1"}, true},
		"group of the impersonator":         {spec{Groups: []string{"oidc:dev"}}, Call{User: asBob, Cluster: "prod-1"}, true},
		"impersonated user":                 {spec{Users: []string{"bob"}}, Call{User: asBob, Cluster: "prod-1"}, true},
		"neither impersonator nor user":     {spec{Users: []string{"carol"}}, Call{User: asBob, Cluster: "prod-1"}, false},
		"unidentified caller":               {spec{Users: []string{"bob"}}, Call{Cluster: "prod-1"}, true},
		"unidentified, other cluster":       {spec{Clusters: []string{"test"}}, Call{Cluster: "prod-1"}, false},
		"request without a namespace":       {spec{Namespaces: []string{"kube-*"}}, Call{Cluster: "prod-1"}, true},
		"request that reaches any cluster":  {spec{Clusters: []string{"test"}}, Call{User: alice, Namespace: "shop"}, true},
		"any cluster, but another user's":   {spec{Users: []string{"bob"}}, Call{User: alice}, false},
		"any namespace of another cluster":  {spec{Clusters: []string{"test"}}, Call{User: alice, Cluster: "prod-1"}, false},
		"service accounts of one namespace": {spec{Users: []string{"system:serviceaccount:ci:*"}}, call, false},
	} {
		t.Run(name, func(t *testing.T) {
			c.spec.Level = BestEffort
			want := Rule{}
			if c.want {
				want = Rule{Level: BestEffort, Policy: "p0"}
			}
			if got := newInstallation(t, c.spec).rule(c.call); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// TestStrictestPolicyDecides: a lax policy must not weaken a strict one.
func TestStrictestPolicyDecides(t *testing.T) {
	for name, c := range map[string]struct {
		specs []spec
		want  Rule
	}{
		"no policy":           {nil, Rule{}},
		"required comes last": {[]spec{{Level: BestEffort}, {Level: Required}}, Rule{Level: Required, Policy: "p1"}},
		"required comes first": {
			[]spec{{Level: Required}, {Level: BestEffort}, {Level: Required}}, Rule{Level: Required, Policy: "p0"},
		},
		"input of a lax policy": {
			[]spec{{Level: Required}, {Level: BestEffort, RecordInput: true}},
			Rule{Level: Required, RecordInput: true, Policy: "p0"},
		},
		"input of a policy for another cluster": {
			[]spec{{Level: Required, RecordInput: true, Clusters: []string{"other"}}, {Level: BestEffort}},
			Rule{Level: BestEffort, Policy: "p1"},
		},
		"level of a later version": {[]spec{{Level: BestEffort}, {Level: "sealed"}}, Rule{Level: Required, Policy: "p1"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := newInstallation(t, c.specs...).rule(Call{User: &identity.User{Name: "alice"}, Cluster: "c1"})
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestUnreadablePolicyRequiresRecording: a damaged policy may have required the recording of any session.
func TestUnreadablePolicyRequiresRecording(t *testing.T) {
	i := newInstallation(t)
	i.create("damaged", []byte(`{"spec":{"clusters":"prod"}}`))
	if got, want := i.rule(Call{Cluster: "c1"}), (Rule{Level: Required, Policy: "damaged"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if !strings.Contains(i.log.String(), "recordingpolicies/damaged") {
		t.Errorf("the log does not name the policy: %s", i.log.String())
	}
}

// TestPolicyOutlivesOutageOfStoreForMaxAge: sessions must work during a short outage, and must not begin unrecorded
// during a long one.
func TestPolicyOutlivesOutageOfStoreForMaxAge(t *testing.T) {
	for name, specs := range map[string][]spec{"with a policy": {{Level: Required}}, "without a policy": nil} {
		t.Run(name, func(t *testing.T) {
			i := newInstallation(t, specs...)
			call := Call{User: &identity.User{Name: "alice"}, Cluster: "c1"}
			want := i.rule(call)
			i.down = objects.Unavailable(errors.New("no route to host"), 7*time.Second)
			i.now = i.now.Add(MaxAge - time.Second)
			if got := i.rule(call); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			i.now = i.now.Add(2 * time.Second)
			i.wantUnavailable(call)
			i.down = nil
			if got := i.rule(call); got != want {
				t.Errorf("after the outage: got %+v, want %+v", got, want)
			}
		})
	}
}

// TestUnknownPoliciesRefuseSessions: a process that started during an outage knows no policy, which is not the same as
// no policy.
func TestUnknownPoliciesRefuseSessions(t *testing.T) {
	i := newInstallation(t)
	i.down = objects.Unavailable(errors.New("no route to host"), 7*time.Second)
	i.wantUnavailable(Call{Cluster: "c1"})
	i.down = objects.ErrForbidden
	i.wantUnavailable(Call{Cluster: "c1"})
}

func (i *installation) wantUnavailable(c Call) {
	i.t.Helper()
	rule, err := i.policies.For(i.t.Context(), c)
	var refused *status.Error
	if !errors.As(err, &refused) || refused.Reason != status.StoreUnavailable || !errors.Is(err, i.down) {
		i.t.Fatalf("got rule %+v and error %v, want %s", rule, err, status.StoreUnavailable)
	}
	if refused.Cluster != c.Cluster || refused.RetryAfter < retry || strings.Contains(refused.Message, "no route") {
		i.t.Errorf("got %+v", refused)
	}
}

// TestPolicyTakesEffectOnceStale: an administrator's new policy must not wait for a restart.
func TestPolicyTakesEffectOnceStale(t *testing.T) {
	i := newInstallation(t)
	call := Call{Cluster: "c1"}
	if got := i.rule(call); got != (Rule{}) {
		t.Fatalf("got %+v without a policy", got)
	}
	i.create("new", []byte(`{"spec":{"level":"required"}}`))
	i.now = i.now.Add(time.Second)
	if got, want := i.rule(call), (Rule{Level: Required, Policy: "new"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestClientThatHasGoneIsNoOutage: an error of the store would be logged and counted.
func TestClientThatHasGoneIsNoOutage(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	i := newInstallation(t)
	i.down = context.Canceled
	if _, err := i.policies.For(ctx, Call{}); !errors.Is(err, context.Canceled) || errors.As(err, new(*status.Error)) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// TestValidateNamesField: an administrator must find the mistake in a policy that would leave sessions unrecorded.
func TestValidateNamesField(t *testing.T) {
	for name, c := range map[string]struct {
		spec spec
		want string // "" if valid
	}{
		"minimal": {spec{Level: Required}, ""},
		"all fields": {spec{
			Level: BestEffort, RecordInput: true, Clusters: []string{"prod-*", "*"}, Namespaces: []string{"kube-*", "a*b"},
			Users: []string{"https://issuer.example.com#alice"}, Groups: []string{"oidc:*", "system:masters"},
		}, ""},
		"no level":             {spec{}, "spec.level: Required"},
		"unknown level":        {spec{Level: "Required"}, "spec.level: Unsupported"},
		"empty entry":          {spec{Level: Required, Users: []string{"alice", ""}}, "spec.users[1]: Required"},
		"repeated entry":       {spec{Level: Required, Groups: []string{"a", "b", "a"}}, "spec.groups[2]: Duplicate"},
		"long entry":           {spec{Level: Required, Users: []string{strings.Repeat("x", 513)}}, "spec.users[0]: Too long"},
		"impossible cluster":   {spec{Level: Required, Clusters: []string{"Prod-*"}}, "spec.clusters[0]: Invalid"},
		"impossible namespace": {spec{Level: Required, Namespaces: []string{"a.b"}}, "spec.namespaces[0]: Invalid"},
		"name of the fleet":    {spec{Level: Required, Clusters: []string{"fleet"}}, "spec.clusters[0]: Invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := Validate(&c.spec).ToAggregate()
			switch {
			case c.want == "" && errs != nil:
				t.Error(errs)
			case c.want != "" && (errs == nil || !strings.HasPrefix(errs.Error(), c.want)):
				t.Errorf("got %v, want %s", errs, c.want)
			}
		})
	}
}

// FuzzGlobMatchesLikeEveryPossibleSplit: a wrong match leaves a session unrecorded.
func FuzzGlobMatchesLikeEveryPossibleSplit(f *testing.F) {
	for _, seed := range [][2]string{
		{"*", ""}, {"", ""}, {"a", "ab"}, {"a*", "a"}, {"*a*b", "aab"}, {"a*a", "a"}, {"*ab*ab*", "ababa"}, {"**", "x/y:z"},
		{"a*b*c", "abcbc"}, {"ab*b", "ab"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, glob, name string) {
		if len(glob) > 64 || len(name) > 64 {
			return
		}
		if got, want := matches(glob, name), matchesSlowly(glob, name); got != want {
			t.Errorf("matches(%q, %q) = %t, want %t", glob, name, got, want)
		}
	})
}

// matchesSlowly computes which prefixes of name each prefix of glob matches.
func matchesSlowly(glob, name string) bool {
	reached := make([]bool, len(name)+1)
	reached[0] = true
	for _, g := range []byte(glob) {
		next := make([]bool, len(name)+1)
		if first := slices.Index(reached, true); g == '*' && first >= 0 {
			for i := first; i <= len(name); i++ {
				next[i] = true
			}
		} else if g != '*' {
			for i := range len(name) {
				next[i+1] = reached[i] && name[i] == g
			}
		}
		reached = next
	}
	return reached[len(name)]
}
