package gateway_test

import (
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestServiceProxy: callers must reach only the nodes and services behind a member that its Cluster allows.
func TestServiceProxy(t *testing.T) {
	if out, err := e2e.CLI(t, "", "cluster", "add", "proxied", "--kubeconfig", e2e.Clusters.KubeconfigFile(), "--context",
		"member2"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = e2e.CLI(t, "", "cluster", "remove", "proxied") })
	k := e2e.OwnAPI(t)
	const healthz = "/clusters/proxied/api/v1/nodes/member2-node/proxy/healthz"
	get := func(path string) e2e.Result { return k.Run(t, "get", "--raw", path) }
	refused := func(path string) bool {
		r := get(path)
		return r.Code != 0 && strings.Contains(r.Stderr,
			`cluster "proxied" does not allow its proxy subresources for nodes/member2-node`)
	}
	allow := func(entries string) {
		t.Helper()
		k.Must(t, "patch", "cluster", "proxied", "--type", "merge", "-p", `{"spec":{"serviceProxy":`+entries+`}}`)
	}
	waittest.Until(t, "path is refused by default", func() bool { return refused(healthz) })
	for _, path := range []string{
		"/clusters/proxied/api/v1/nodes/member2-node%2Fproxy/healthz",
		"/clusters/proxied/api/v1/nodes/member2-node/%70roxy/healthz",
		"/clusters/proxied//api/v1/nodes/member2-node/proxy/healthz",
		"/clusters/proxied/api/v1/proxy/nodes/member2-node/healthz",
	} {
		if !refused(path) {
			t.Errorf("%s: %v", path, get(path))
		}
	}
	// The member's kube-apiserver also finds no name or subresource between two slashes.
	for _, path := range []string{"/clusters/proxied/api/v1/nodes//member2-node/proxy/healthz",
		"/clusters/proxied/api/v1/nodes/member2-node//proxy/healthz"} {
		if r := get(path); r.Code == 0 {
			t.Errorf("%s: %v", path, r)
		}
	}
	// The test's kubelet is on loopback, which a kube-apiserver refuses. Its error proves that the request arrived.
	want := e2e.Direct("member2").Run(t, "get", "--raw", "/api/v1/nodes/member2-node/proxy/healthz")
	e2e.WantText(t, want.Stderr, "address not allowed")
	allow(`["nodes/member2-node"]`)
	waittest.Until(t, "allowed path is proxied", func() bool { return get(healthz) == want })
	allow(`null`)
	waittest.Until(t, "path is refused again", func() bool { return refused(healthz) })
}
