package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// grantOf is a role and a binding that let a user do everything with member1.
func grantOf(user string) string { return grantOn("member1", user) }

func grantOn(cluster, user string) string {
	return strings.NewReplacer("USER", user, "CLUSTER", cluster).Replace(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: USER-CLUSTER}
rules:
- {apiGroups: [cluster.karmada.io], resources: [clusters/proxy], resourceNames: [CLUSTER], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: USER-CLUSTER}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: USER-CLUSTER}
subjects: [{kind: User, name: USER}]
`)
}

// granted makes a user of the gateway and of member1 who may do everything there.
func granted(t *testing.T, user string) {
	t.Helper()
	grantedOn(t, "member1", user)
}

func grantedOn(t *testing.T, cluster, user string) {
	t.Helper()
	if out, err := cli(t, grantOn(cluster, user), "apply", "-f", "-"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = cli(t, grantOn(cluster, user), "delete", "-f", "-") })
	d := direct(cluster)
	d.must(t, "create", "clusterrolebinding", user, "--clusterrole=cluster-admin", "--user="+user)
	t.Cleanup(func() { d.run(t, "delete", "clusterrolebinding", user) })
	isAdmin(t, d, user)
}

// isAdmin waits until a member knows a binding that was made just now.
func isAdmin(t *testing.T, member kubectl, user string) {
	t.Helper()
	eventually(t, func() bool { return member.run(t, "auth", "can-i", "*", "*", "--as", user).code == 0 })
}

// refuses holds: a call is never allowed, and refused in these words once what was written a moment ago is in force, in each process of a
// function for itself.
func (k kubectl) refuses(t *testing.T, want string, args ...string) {
	t.Helper()
	k.refused(t, want, args, func(r result) {
		if r.code == 0 {
			t.Fatalf("kubectl %v is allowed: %v", args, r)
		}
	})
}

// loses is refuses for what was allowed until now.
func (k kubectl) loses(t *testing.T, want string, args ...string) {
	t.Helper()
	k.refused(t, want, args, func(result) {})
}

func (k kubectl) refused(t *testing.T, want string, args []string, look func(result)) {
	t.Helper()
	var r result
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("kubectl %v: want %s: %v", args, want, r)
		}
	})
	eventually(t, func() bool {
		rewind(t, k.stdin)
		r = k.run(t, args...)
		look(r)
		return r.code != 0 && strings.Contains(r.stderr, want)
	})
}

// finally is must for what a grant allows that is in force soon: each process of a function learns of it for itself.
func (k kubectl) finally(t *testing.T, args ...string) string {
	t.Helper()
	var r result
	t.Cleanup(func() {
		if r.code != 0 {
			t.Logf("kubectl %v: %v", args, r)
		}
	})
	eventually(t, func() bool {
		rewind(t, k.stdin)
		r = k.run(t, args...)
		return r.code == 0
	})
	return r.stdout
}

// openStreams opens one of each kind, and a watch of the fleet, and returns what waits until all have ended. The pass reaches member1 and
// the grant must be in force soon.
func openStreams(t *testing.T, k kubectl) (ended func()) {
	t.Helper()
	registry(t, "streams", "{}", "{apiVersion: v1, kind: Pod}")
	// At the bridge, too: a kubectl whose websocket is refused tries SPDY.
	eventually(t, func() bool { return k.run(t, "get", "--raw", "/bridge/clusters/member1/version").code == 0 })
	eventually(t, func() bool { return k.run(t, "-n", "streams", "get", "pods").code == 0 })
	eventually(t, func() bool { return atFleet(t, k).run(t, "-n", "streams", "get", "pods").code == 0 })
	var all []*session
	open := func(env []string, first string, args ...string) {
		k.env = env
		s := k.start(t, clusters.BuiltKubectl(), append([]string{"-n", "streams"}, args...)...)
		s.line(first)
		all = append(all, s)
	}
	for _, dia := range dialects {
		open(dia.env, "started", "exec", "-i", "shell", "--", "sh", "-c", "echo started; exec sleep 1000")
	}
	open(nil, "shell", "get", "pods", "-w")
	open(nil, "a ", "logs", "-f", "talker-a")
	k = atFleet(t, k)
	open(nil, "shell", "get", "pods", "-w")
	return func() {
		t.Helper()
		for _, s := range all {
			if code := s.ends(); code == 0 && strings.Contains(fmt.Sprint(s.cmd.Env), dialects[0].env[0]) {
				t.Errorf("kubectl %v ends as if it had ended by itself\n%s", s.cmd.Args, s.errOut)
			}
		}
	}
}

// TestLostGrant holds: what is open ends when its grant is taken away.
func TestLostGrant(t *testing.T) {
	withStreamPods(t, "member1")
	granted(t, "loses-grant")
	k := kubectl{kubeconfig: passFor(t, "loses-grant"), context: "member1"}
	ended := openStreams(t, k)
	if out, err := cli(t, grantOf("loses-grant"), "delete", "-f", "-"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	ended()
	k.loses(t, `cannot get resource "clusters/proxy"`, "get", "pods")
}

// TestRevocation holds: what is open ends when its credential is revoked, whatever it is, and calls are refused.
func TestRevocation(t *testing.T) {
	withStreamPods(t, "member1")
	granted(t, "loses-pass")
	pass := func(name string, args ...string) string {
		return write(t, passOf(t, name, append([]string{"--user", "loses-pass"}, args...)...))
	}
	certificate := passFor(t, "loses-pass")
	for name, tt := range map[string]struct {
		kubeconfig string
		revoke     []string
		want       string
	}{
		"a pass that is a token":       {pass("revoked-token"), []string{"pass", "revoke", "revoked-token"}, `the pass "revoked-token" was revoked`},
		"a pass that is a certificate": {pass("revoked-cert", "--form", "certificate"), []string{"pass", "revoke", "revoked-cert"}, `the pass "revoked-cert" was revoked`},
		"a certificate":                {certificate, []string{"cert", "revoke", "--file", certificate}, "the client certificate was revoked"},
	} {
		t.Run(name, func(t *testing.T) {
			k := kubectl{kubeconfig: tt.kubeconfig, context: "member1"}
			ended := openStreams(t, k)
			if out, err := cli(t, "", tt.revoke...); err != nil || !strings.Contains(out, "is revoked") {
				t.Fatalf("%s%v", out, err)
			}
			ended()
			k.loses(t, tt.want, "get", "pods")
		})
	}
}
