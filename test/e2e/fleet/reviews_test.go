package fleet_test

import (
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestFleetReviews: users and dashboards must find out on the fleet what they may do, and who they are.
func TestFleetReviews(t *testing.T) {
	k := fleet(t, `{apiVersion: v1, kind: Pod}`)
	const dora = "dora"
	if out, err := e2e.CLI(t, e2e.GrantYAML("member1", dora), "apply", "-f", "-"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = e2e.CLI(t, e2e.GrantYAML("member1", dora), "delete", "-f", "-") })
	for _, m := range e2e.Members {
		d := e2e.Direct(m)
		d.Must(t, "create", "clusterrolebinding", dora, "--clusterrole=view", "--user="+dora)
		t.Cleanup(func() { d.Run(t, "delete", "clusterrolebinding", dora) })
		waittest.Until(t, dora+" may list pods in "+m, func() bool {
			return d.Run(t, "auth", "can-i", "list", "pods", "--as", dora).Code == 0
		})
	}
	for path, k := range map[string]e2e.Kubectl{"/fleet": k, "/fleet/@": qualified(t, k)} {
		waittest.Until(t, dora+" may list pods at "+path, func() bool {
			return k.Run(t, "auth", "can-i", "list", "pods", "--as", dora).Code == 0
		})
		for _, tt := range []struct {
			args string
			code int
			want string
		}{
			{"can-i get pods -n default", 0, "yes"},
			{"can-i get pods -n default@member2", 0, "yes"},
			{"can-i get pods/web -n default@member2", 0, "yes"},
			{"can-i get pods/web@member2 -n default", 0, "yes"},
			{"can-i get /version", 0, "yes"},
			{"can-i --list -n default@member1", 0, "selfsubjectaccessreviews.authorization.k8s.io"},
			{"can-i --list -n default", 0, "selfsubjectaccessreviews.authorization.k8s.io"},
			{"whoami", 0, "system:masters"},
			{"can-i list pods --as dora", 0, "yes"},
			{"can-i delete pods --as dora", 1, "no - clusters that do not: member1"},
			{"can-i list secrets -n default@member1 --as dora", 1, "no"},
			{"can-i --list -n default --as dora", 0, "pods"},
			{"whoami --as dora", 0, "dora"},
			{"can-i get pods -n default@member2 --as dora", 1, `"member2" is forbidden`},
			{"can-i get pods -n default@nowhere", 1, `no cluster "nowhere"`},
		} {
			r := k.Run(t, append([]string{"auth"}, strings.Fields(tt.args)...)...)
			if r.Code != tt.code || !strings.Contains(r.Stdout+r.Stderr, tt.want) ||
				strings.Contains(tt.args, "dora") && !strings.Contains(tt.args, "member2") &&
					strings.Contains(r.Stdout+r.Stderr, "member2") {
				t.Errorf("%s: auth %s: %v", path, tt.args, r)
			}
		}
		e2e.WantText(t, k.Must(t, "api-resources"), "selfsubjectaccessreviews", "selfsubjectrulesreviews",
			"selfsubjectreviews")
	}
	e2e.Direct("member1").Must(t, "delete", "clusterrolebinding", dora)
	waittest.Until(t, "the fleet knows that the role is gone", func() bool {
		return k.Run(t, "auth", "can-i", "list", "pods", "--as", dora).Code == 1
	})
}
