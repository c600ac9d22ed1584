package access_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// openStreams opens one stream of each kind, and a watch of the fleet. ended waits until all have ended.
func openStreams(t *testing.T, k e2e.Kubectl) (ended func()) {
	t.Helper()
	ns := e2e.StreamPods(t, []string{"member1"}, "shell", "talker-a")
	e2e.CreateRegistry(t, "streams", "{}", "{apiVersion: v1, kind: Pod}")
	// The bridge caches grants apart from the functions. kubectl tries SPDY if its websocket is refused.
	waittest.Until(t, "user may call member1 at the bridge", func() bool {
		return k.Run(t, "get", "--raw", "/bridge/clusters/member1/version").Code == 0
	})
	waittest.Until(t, "user lists pods of member1", func() bool { return k.Run(t, "-n", ns, "get", "pods").Code == 0 })
	waittest.Until(t, "user lists pods of the fleet", func() bool {
		return e2e.AtFleet(t, k).Run(t, "-n", ns, "get", "pods").Code == 0
	})
	var sessions []*e2e.Session
	open := func(env []string, first string, args ...string) {
		k.Env = env
		s := k.Start(t, e2e.Clusters.BuiltKubectl(), append([]string{"-n", ns}, args...)...)
		s.Line(first)
		sessions = append(sessions, s)
	}
	for _, dialect := range e2e.Dialects {
		open(dialect.Env, "started", "exec", "-i", "shell", "--", "sh", "-c", "echo started; exec sleep 1000")
	}
	open(nil, "shell", "get", "pods", "-w")
	open(nil, "a ", "logs", "-f", "talker-a")
	k = e2e.AtFleet(t, k)
	open(nil, "shell", "get", "pods", "-w")
	return func() {
		t.Helper()
		for _, s := range sessions {
			if code := s.ExitCode(); code == 0 && strings.Contains(fmt.Sprint(s.Cmd.Env), e2e.Dialects[0].Env[0]) {
				t.Errorf("kubectl %v ends as if it had ended by itself\n%s", s.Cmd.Args, s.Stderr)
			}
		}
	}
}

func TestLostGrant(t *testing.T) {
	e2e.Grant(t, "member1", "loses-grant")
	k := e2e.Kubectl{Kubeconfig: e2e.CertificateKubeconfig(t, "loses-grant"), Context: "member1"}
	ended := openStreams(t, k)
	if out, err := e2e.CLI(t, e2e.GrantYAML("member1", "loses-grant"), "delete", "-f", "-"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	ended()
	k.WaitForRefusal(t, `cannot get resource "clusters/proxy"`, "get", "pods")
}

// TestRevocation: streams must end without their credential, and new requests are refused.
func TestRevocation(t *testing.T) {
	e2e.Grant(t, "member1", "loses-pass")
	pass := func(name string, args ...string) string {
		return e2e.WriteFile(t, e2e.CreatePass(t, name, append([]string{"--user", "loses-pass"}, args...)...))
	}
	certificate := e2e.CertificateKubeconfig(t, "loses-pass")
	for name, tt := range map[string]struct {
		kubeconfig string
		revoke     []string
		want       string
	}{
		"a pass that is a token": {pass("revoked-token"), []string{"pass", "revoke", "revoked-token"},
			`the pass "revoked-token" was revoked`},
		"a pass that is a certificate": {pass("revoked-cert", "--form", "certificate"),
			[]string{"pass", "revoke", "revoked-cert"}, `the pass "revoked-cert" was revoked`},
		"a certificate": {certificate, []string{"cert", "revoke", "--file", certificate},
			"the client certificate was revoked"},
	} {
		t.Run(name, func(t *testing.T) {
			k := e2e.Kubectl{Kubeconfig: tt.kubeconfig, Context: "member1"}
			ended := openStreams(t, k)
			if out, err := e2e.CLI(t, "", tt.revoke...); err != nil || !strings.Contains(out, "is revoked") {
				t.Fatalf("%s%v", out, err)
			}
			ended()
			k.WaitForRefusal(t, tt.want, "get", "pods")
		})
	}
}
