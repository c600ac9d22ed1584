// Package access compares the gateway's RBAC decisions and audit events with those of a real kube-apiserver.
package access

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	rbacv1client "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/cluster"
)

const (
	worlds                       = 6
	roles, bindings, aggregating = 350, 60, 6 // of each world
	requests, grants             = 1000, 150  // in each world
	patience                     = 4 * time.Minute
)

// A fixed default sends the same requests in each run.
var firstSeed = flag.Uint64("seed", 1, "the first seed of the generated worlds; another seed generates other worlds")

var clusters *cluster.Set

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "clusterpass-access-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	args, err := auditArgs(dir)
	if err != nil {
		panic(err)
	}
	return cluster.Main(m, cluster.Options{NoKubelet: true, APIServerArgs: args}, func(s *cluster.Set) { clusters = s })
}

// There are few values, so that many rules match.
var (
	verbs     = []string{"get", "list", "create", "update", "patch", "delete", "escalate", "bind", "*"}
	groups    = []string{"", "cluster.karmada.io", "rbac.authorization.k8s.io", "apps", "*"}
	resources = []string{
		"clusters", "clusters/proxy", "clusters/status", "*/proxy", "clusterroles", "pods", "pods/log", "clusters/*", "*/*",
		"*/", "*",
	}
	names    = []string{"member1", "member2", "member10", "*", ""}
	paths    = []string{"/healthz", "/healthz/etcd", "/healthz/*", "/h*", "/api/v1", "/api**", "/", "*"}
	labels   = []string{"a", "b", "c"}
	subjects = []rbacv1.Subject{
		{Kind: "User", Name: "ann"}, {Kind: "User", Name: "bob"}, {Kind: "User", Name: "dev"}, {Kind: "User", Name: "Ann"},
		{Kind: "User", Name: "system:serviceaccount:ns1:bot"}, {Kind: "Group", Name: "dev"}, {Kind: "Group", Name: "ops"},
		{Kind: "Group", Name: "ann"}, {Kind: "Group", Name: "system:serviceaccounts:ns1"},
		{Kind: "ServiceAccount", Namespace: "ns1", Name: "bot"},
		{Kind: "ServiceAccount", Namespace: "ns2", Name: "bot"},
	}
	users = []identity.User{
		{Name: "ann"}, {Name: "bob", Groups: []string{"dev"}}, {Name: "dev"}, {Name: "carl", Groups: []string{"dev", "ops"}},
		{Name: "dora", Groups: []string{"ann"}},
		{Name: "system:serviceaccount:ns1:bot", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ns1"}},
		{Name: "system:serviceaccount:ns2:bot"}, {Name: "eve"}, {Name: "root", Groups: []string{"system:masters"}},
	}
)

// generator's names begin with mark, so that no world uses the names of another. The aggregation controller may
// recreate a role that was just deleted.
type generator struct {
	*rand.Rand
	mark string
}

func (g generator) name() string {
	if g.IntN(3) == 0 {
		return fmt.Sprintf("%srole-%d", g.mark, g.IntN(3))
	}
	return names[g.IntN(len(names))]
}

func (g generator) names(most int) []string {
	var out []string
	for range g.IntN(most + 1) {
		out = append(out, g.name())
	}
	return out
}

func (g generator) some(from []string, least, most int) []string {
	var out []string
	for range least + g.IntN(most-least+1) {
		out = append(out, from[g.IntN(len(from))])
	}
	return out
}

func (g generator) rules() []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for range g.IntN(3) {
		if g.IntN(4) == 0 {
			out = append(out, rbacv1.PolicyRule{Verbs: g.some(verbs, 1, 2), NonResourceURLs: g.some(paths, 1, 2)})
			continue
		}
		out = append(out, rbacv1.PolicyRule{
			Verbs: g.some(verbs, 1, 3), APIGroups: g.some(groups, 1, 2),
			Resources: g.some(resources, 1, 3), ResourceNames: g.names(2),
		})
	}
	return out
}

func (g generator) role(i int) *rbacv1.ClusterRole {
	r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%srole-%d", g.mark, i)}, Rules: g.rules()}
	if g.IntN(6) == 0 {
		r.Labels = map[string]string{"into": labels[g.IntN(len(labels))]}
	}
	return r
}

// aggregate generates a role that selects others by label. Only an aggregating role with a greater number may select
// it, since Kubernetes keeps the rules of a cycle for ever.
func (g generator) aggregate(i int) *rbacv1.ClusterRole {
	r := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%saggregate-%d", g.mark, i)}, Rules: g.rules(),
		AggregationRule: &rbacv1.AggregationRule{},
	}
	for range 1 + g.IntN(2) {
		s := metav1.LabelSelector{MatchLabels: map[string]string{"into": labels[g.IntN(len(labels))]}}
		if i > 0 && g.IntN(2) == 0 {
			s = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "level", Operator: metav1.LabelSelectorOpIn, Values: []string{fmt.Sprint(g.IntN(i))}}}}
		}
		r.AggregationRule.ClusterRoleSelectors = append(r.AggregationRule.ClusterRoleSelectors, s)
	}
	r.Labels = map[string]string{"level": fmt.Sprint(i)}
	return r
}

func (g generator) roleName() string {
	switch g.IntN(10) {
	case 0:
		return "missing"
	case 1, 2:
		return fmt.Sprintf("%saggregate-%d", g.mark, g.IntN(aggregating))
	}
	return fmt.Sprintf("%srole-%d", g.mark, g.IntN(roles))
}

func (g generator) binding(i int) *rbacv1.ClusterRoleBinding {
	b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%sbinding-%d", g.mark, i)},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: g.roleName()}}
	for range g.IntN(3) {
		b.Subjects = append(b.Subjects, subjects[g.IntN(len(subjects))])
	}
	return b
}

func (g generator) request() access.Attributes {
	a := access.Attributes{Verb: append(verbs, "")[g.IntN(len(verbs)+1)]}
	if g.IntN(4) == 0 {
		a.Path = []string{"/healthz", "/healthz/etcd", "/healthz/", "/h", "/api/v1", "/apis", "/", "/x"}[g.IntN(8)]
		return a
	}
	if g.IntN(3) == 0 {
		return access.Cluster(names[g.IntN(3)], []string{"GET", "POST", "PUT", "PATCH", "DELETE"}[g.IntN(5)], nil)
	}
	a.APIGroup = groups[g.IntN(len(groups))]
	a.Resource = []string{"clusters", "pods", "clusterroles", "*"}[g.IntN(4)]
	a.Subresource = []string{"", "proxy", "status", "log", "*"}[g.IntN(5)]
	a.Name = g.name()
	return a
}

// world is a cluster with generated roles and bindings, and the Policy that is compiled from them.
type world struct {
	generator
	client *kubernetes.Clientset
	config *rest.Config
	policy *access.Policy
	// These are counts of the API server's responses.
	reviews, allowed, writes, refused atomic.Int64
}

// created is the number of worlds of this process. A world with the same seed, as by -count=2, has other names.
var created atomic.Int64

func newWorld(t *testing.T, seed uint64) *world {
	t.Logf("seed %d", seed)
	w := &world{
		generator: generator{rand.New(rand.NewPCG(seed, 0)), fmt.Sprintf("w%x-%d-", seed, created.Add(1))},
		config:    clusters.Clusters()[0].RESTConfig(),
	}
	var err error
	if w.client, err = kubernetes.NewForConfig(w.config); err != nil {
		t.Fatal(err)
	}
	var rs []*rbacv1.ClusterRole
	for i := range roles {
		rs = append(rs, w.role(i))
	}
	for i := range aggregating {
		r := w.aggregate(i)
		r.Rules = nil // if a role selects none, the controller keeps the written rules
		rs = append(rs, r)
	}
	rs = append(rs, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: w.mark + "writers"},
		Rules: []rbacv1.PolicyRule{{
			Verbs: []string{"create", "update"}, APIGroups: []string{rbacv1.GroupName},
			Resources: []string{"clusterroles", "clusterrolebindings"},
		}},
	})
	var bs []*rbacv1.ClusterRoleBinding
	for i := range bindings {
		bs = append(bs, w.binding(i))
	}
	bs = append(bs, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.mark + "writers"},
		Subjects:   []rbacv1.Subject{{Kind: "Group", Name: identity.Authenticated}},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: w.mark + "writers"},
	})
	parallel(t, len(rs), func(ctx context.Context, i int) error {
		_, err := w.client.RbacV1().ClusterRoles().Create(ctx, rs[i], metav1.CreateOptions{})
		return err
	})
	parallel(t, len(bs), func(ctx context.Context, i int) error {
		_, err := w.client.RbacV1().ClusterRoleBindings().Create(ctx, bs[i], metav1.CreateOptions{})
		return err
	})
	t.Cleanup(func() { w.revoke(t, bs) })
	w.settle(t)
	return w
}

// revoke deletes the bindings, and the aggregating roles: the controller would aggregate them again after each role of
// later worlds.
func (w *world) revoke(t *testing.T, bs []*rbacv1.ClusterRoleBinding) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i := range aggregating {
		name := fmt.Sprintf("%saggregate-%d", w.mark, i)
		if err := w.client.RbacV1().ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	for _, b := range bs {
		if err := w.client.RbacV1().ClusterRoleBindings().Delete(ctx, b.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// settle waits until the controller has aggregated the roles as Compile does, and the API server uses them.
func (w *world) settle(t *testing.T) {
	mark := w.mark + "last"
	waittest.UntilNoError(t, "the controller aggregates the roles", func(context.Context) error {
		if difference := w.compile(t); difference != "" {
			return errors.New(difference)
		}
		return nil
	})
	// The API server reads roles and bindings in the order of their writes, so the last one proves that it has all.
	last := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: mark},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{mark}, NonResourceURLs: []string{"/last"}}},
	}
	if _, err := w.client.RbacV1().ClusterRoles().Create(t.Context(), last, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: mark}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: mark},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: mark}},
	}
	if _, err := w.client.RbacV1().ClusterRoleBindings().Create(t.Context(), b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the API server uses the last binding", func() bool {
		ok, err := w.review(t.Context(), &identity.User{Name: mark}, access.Attributes{Verb: mark, Path: "/last"})
		if err != nil {
			t.Fatal(err)
		}
		return ok
	})
	if difference := w.compile(t); difference != "" {
		t.Fatal(difference)
	}
}

// compile ignores the rules that the controller aggregated. It returns a role whose aggregated rules differ from the
// Policy, or "".
func (w *world) compile(t *testing.T) string {
	t.Helper()
	rl, err := w.client.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bl, err := w.client.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var rs []*rbacv1.ClusterRole
	for _, r := range rl.Items {
		if r.AggregationRule != nil {
			r.Rules = nil
		}
		rs = append(rs, &r)
	}
	var bs []*rbacv1.ClusterRoleBinding
	for i := range bl.Items {
		bs = append(bs, &bl.Items[i])
	}
	w.policy = access.Compile(rs, bs)
	for _, r := range rl.Items {
		got, _ := w.policy.RoleRules(r.Name)
		if want := set(r.Rules); !maps.Equal(set(got), want) {
			return fmt.Sprintf("role %s has rules\n%v, the gateway computes\n%v", r.Name, want, set(got))
		}
	}
	return ""
}

func set(rules []rbacv1.PolicyRule) map[string]bool {
	out := map[string]bool{}
	for _, r := range rules {
		data, err := json.Marshal(r)
		if err != nil {
			panic(err)
		}
		out[string(data)] = true
	}
	return out
}

func (w *world) review(ctx context.Context, u *identity.User, a access.Attributes) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: u.Name, Groups: append(slices.Clone(u.Groups), identity.Authenticated),
	}}
	if a.Path != "" {
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: a.Verb, Path: a.Path}
	} else {
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb: a.Verb, Group: a.APIGroup, Resource: a.Resource, Subresource: a.Subresource, Name: a.Name,
		}
	}
	review, err := w.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

func parallel(t *testing.T, n int, each func(ctx context.Context, i int) error) {
	t.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || t.Failed() {
					return
				}
				if err := each(t.Context(), i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// TestAgainstKubernetes: the gateway must decide each request, and each write of a role or binding, as kube-apiserver.
func TestAgainstKubernetes(t *testing.T) {
	var reviews, allowed, writes, refused int64
	for i := range worlds {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			w := newWorld(t, *firstSeed+uint64(i))
			w.decisions(t)
			w.escalation(t)
			reviews, allowed = reviews+w.reviews.Load(), allowed+w.allowed.Load()
			writes, refused = writes+w.writes.Load(), refused+w.refused.Load()
		})
	}
	t.Logf("%d of %d requests are allowed, %d of %d writes refused", allowed, reviews, refused, writes)
	if few := reviews / 50; allowed < few || reviews-allowed < few || reviews == 0 {
		t.Error("too few requests are allowed, or too few are refused")
	}
	if few := writes / 50; refused < few || writes-refused < few || writes == 0 {
		t.Error("too few writes are allowed, or too few are refused")
	}
}

func (w *world) decisions(t *testing.T) {
	type request struct {
		user identity.User
		access.Attributes
	}
	all := make([]request, requests)
	for i := range all {
		all[i] = request{users[w.IntN(len(users))], w.request()}
	}
	parallel(t, len(all), func(ctx context.Context, i int) error {
		q := all[i]
		want, err := w.review(ctx, &q.user, q.Attributes)
		if err != nil {
			return fmt.Errorf("%+v: %w", q, err)
		}
		if got, reason := w.policy.Allowed(&q.user, q.Attributes); got != want {
			t.Errorf("%+v: %v (%s), kube-apiserver decides %v", q, got, reason, want)
		}
		w.reviews.Add(1)
		if want {
			w.allowed.Add(1)
		}
		return nil
	})
}

type grantWrite struct {
	user      identity.User
	role, old *rbacv1.ClusterRole // old is nil for a new role
	binding   *rbacv1.ClusterRoleBinding
}

func (w *world) get(t *testing.T, name string) *rbacv1.ClusterRole {
	t.Helper()
	r, err := w.client.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// escalation compares the decisions on writes of roles and bindings, with dry runs as their users.
func (w *world) escalation(t *testing.T) {
	all := make([]grantWrite, grants)
	clients := map[string]*kubernetes.Clientset{}
	for i := range all {
		all[i].user = users[w.IntN(len(users))]
		switch w.IntN(6) {
		case 0:
			all[i].role = w.role(roles + 1)
		case 1:
			all[i].role = w.aggregate(aggregating + 1)
		case 2:
			all[i].role = w.role(w.IntN(4))
			all[i].old = w.get(t, all[i].role.Name)
		case 3:
			all[i].role = w.aggregate(w.IntN(aggregating))
			all[i].old = w.get(t, all[i].role.Name)
		default:
			all[i].binding = w.binding(bindings + 1)
		}
		u := &all[i].user
		if clients[u.Name] != nil {
			continue
		}
		config := rest.CopyConfig(w.config)
		config.Impersonate = rest.ImpersonationConfig{
			UserName: u.Name, Groups: append(slices.Clone(u.Groups), identity.Authenticated),
		}
		var err error
		if clients[u.Name], err = kubernetes.NewForConfig(config); err != nil {
			t.Fatal(err)
		}
	}
	parallel(t, len(all), func(ctx context.Context, i int) error {
		q := all[i]
		got, want, err := w.tryWrite(ctx, clients[q.user.Name].RbacV1(), q)
		if err != nil {
			return err
		}
		if want != nil {
			if !apierrors.IsForbidden(want) && !apierrors.IsNotFound(want) {
				return want
			}
			w.refused.Add(1)
		}
		w.writes.Add(1)
		if (got == nil) != (want == nil) {
			t.Errorf("%s writes %+v %+v: %v\nkube-apiserver decides: %v", q.user.Name, q.role, q.binding, got, want)
		}
		return nil
	})
}

func (w *world) tryWrite(
	ctx context.Context, client rbacv1client.RbacV1Interface, q grantWrite,
) (got, want, err error) {
	dryRun := []string{metav1.DryRunAll}
	switch {
	case q.old != nil:
		for old := q.old; ; { // the controller may write aggregated rules meanwhile
			q.role.UID, q.role.ResourceVersion = old.UID, old.ResourceVersion
			got = w.policy.MayWriteRole(&q.user, q.role, old)
			_, want = client.ClusterRoles().Update(ctx, q.role, metav1.UpdateOptions{DryRun: dryRun})
			if !apierrors.IsConflict(want) {
				return got, want, nil
			}
			if old, err = w.client.RbacV1().ClusterRoles().Get(ctx, q.role.Name, metav1.GetOptions{}); err != nil {
				return nil, nil, err
			}
		}
	case q.role != nil:
		got = w.policy.MayWriteRole(&q.user, q.role, nil)
		_, want = client.ClusterRoles().Create(ctx, q.role, metav1.CreateOptions{DryRun: dryRun})
	default:
		got = w.policy.MayWriteBinding(&q.user, q.binding)
		_, want = client.ClusterRoleBindings().Create(ctx, q.binding, metav1.CreateOptions{DryRun: dryRun})
	}
	return got, want, nil
}
