package review

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/selection"
)

func grantOf(cluster string) selection.Grant {
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	return selection.Grant{Entry: members.Entry{Cluster: c}, Verbs: allProxyVerbs}
}

// TestUnionIsBounded fails if members with many different rules exhaust the memory, or if the client does not learn
// that rules are missing.
func TestUnionIsBounded(t *testing.T) {
	u := union{rules: map[members.Digest]*unionRule{}}
	for member := range 32 {
		var status authorizationv1.SubjectRulesReviewStatus
		for i := range 100 {
			status.ResourceRules = append(status.ResourceRules, authorizationv1.ResourceRule{
				Verbs: []string{"get"}, Resources: []string{fmt.Sprint(member, i, strings.Repeat("x", 1000))},
			})
		}
		u.add(member, grantOf(fmt.Sprintf("c%02d", member)), "x", &status)
	}
	size := 0
	for _, r := range u.rules {
		size += r.size()
	}
	out := u.status(nil)
	if size > maxUnion || len(out.ResourceRules) == 0 || !out.Incomplete ||
		!strings.Contains(out.EvaluationError, "some rules are left out") ||
		!strings.HasSuffix(out.EvaluationError, " more") {
		t.Errorf("%d bytes, %d rules, incomplete %t, %s", size, len(out.ResourceRules), out.Incomplete, out.EvaluationError)
	}
}

// TestUnionIgnoresOrder fails if the union of the same answers differs by chance, or if equal rules are listed twice.
func TestUnionIgnoresOrder(t *testing.T) {
	a := authorizationv1.SubjectRulesReviewStatus{ResourceRules: []authorizationv1.ResourceRule{
		{Verbs: []string{"list", "get"}, Resources: []string{"pods"}}, {Verbs: []string{"get"}, Resources: []string{"nodes"}},
		{Verbs: []string{"get", "list", "get"}, Resources: []string{"pods"}},
	}}
	b := authorizationv1.SubjectRulesReviewStatus{ResourceRules: []authorizationv1.ResourceRule{
		{Verbs: []string{"get"}, Resources: []string{"nodes"}}, {Verbs: []string{"get", "list"}, Resources: []string{"pods"}},
	}, EvaluationError: "no webhook"}
	want := "[{[get list] [] [pods] []} {[get] [] [nodes] []}] false cluster \"b\": no webhook"
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		u := union{rules: map[members.Digest]*unionRule{}}
		for _, i := range order {
			u.add(i, grantOf([]string{"a", "b"}[i]), "x", []*authorizationv1.SubjectRulesReviewStatus{&a, &b}[i])
		}
		out := u.status(nil)
		if got := fmt.Sprint(out.ResourceRules, out.Incomplete, " ", out.EvaluationError); got != want {
			t.Errorf("in the order %v: %s\nwant %s", order, got, want)
		}
	}
}

// TestPermittedVerbs fails if a user with a limited grant is promised other verbs than the gateway permits.
func TestPermittedVerbs(t *testing.T) {
	for _, tt := range []struct {
		verbs, granted []string
		subresource    string
		want           []string
	}{
		{[]string{"*"}, allProxyVerbs, "", []string{"*"}},
		{[]string{"*"}, []string{"get"}, "", []string{"get", "list", "watch"}},
		{[]string{"delete", "list", "use", "post"}, []string{"get"}, "", []string{"list", "use"}},
		{[]string{"create"}, []string{"get"}, "", []string{}},
		{[]string{"deletecollection", "patch"}, []string{"delete"}, "", []string{"deletecollection"}},
		{[]string{"get", "create"}, []string{"get"}, "exec", []string{}},
		{[]string{"get", "create"}, []string{"create"}, "exec", []string{"get", "create"}},
		{[]string{"get", "create"}, []string{"get"}, "log", []string{"get"}},
	} {
		if got := permitted(tt.verbs, tt.granted, tt.subresource); !slices.Equal(got, tt.want) {
			t.Errorf("%v of %q with %v: %v, want %v", tt.verbs, tt.subresource, tt.granted, got, tt.want)
		}
	}
}

// TestCacheIsBounded fails if a caller who asks about many namespaces exhausts the memory.
func TestCacheIsBounded(t *testing.T) {
	c := NewCache(time.Now)
	status := []byte(strings.Repeat("x", 100<<10))
	for i := range 2 * cacheMax {
		_, _ = c.getOrAsk(members.DigestOf(i), func() (*answer, error) { return &answer{status: status}, nil })
	}
	if n := c.answers.Len(); n == 0 || n*len(status) > cacheSize {
		t.Errorf("the cache has %d answers of %d bytes", n, len(status))
	}
	for i := range 2 * cacheMax {
		_, _ = c.getOrAsk(members.DigestOf("small", i), func() (*answer, error) { return &answer{}, nil })
	}
	if n := c.answers.Len(); n > cacheMax {
		t.Errorf("the cache has %d answers", n)
	}
}
