package e2e

import (
	"strings"
	"testing"
)

// TestServiceProxy holds: what lies behind a member's API server is reached once its Cluster names it, and no longer than that.
func TestServiceProxy(t *testing.T) {
	if out, err := cli(t, "", "cluster", "add", "proxied", "--kubeconfig", clusters.KubeconfigFile(), "--context", "member2"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = cli(t, "", "cluster", "remove", "proxied") })
	k := own(t)
	const healthz = "/clusters/proxied/api/v1/nodes/member2-node/proxy/healthz"
	ask := func(path string) result { return k.run(t, "get", "--raw", path) }
	refused := func(path string) bool {
		r := ask(path)
		return r.code != 0 && strings.Contains(r.stderr, `cluster "proxied" does not allow its proxy subresources for nodes/member2-node`)
	}
	allow := func(entries string) {
		t.Helper()
		k.must(t, "patch", "cluster", "proxied", "--type", "merge", "-p", `{"spec":{"serviceProxy":`+entries+`}}`)
	}
	eventually(t, func() bool { return refused(healthz) })
	for _, path := range []string{
		"/clusters/proxied/api/v1/nodes/member2-node%2Fproxy/healthz", "/clusters/proxied/api/v1/nodes/member2-node/%70roxy/healthz",
		"/clusters/proxied//api/v1/nodes/member2-node/proxy/healthz", "/clusters/proxied/api/v1/proxy/nodes/member2-node/healthz",
	} {
		if !refused(path) {
			t.Errorf("%s: %v", path, ask(path))
		}
	}
	// The member's kube-apiserver reads no name or subresource between two slashes either.
	for _, path := range []string{"/clusters/proxied/api/v1/nodes//member2-node/proxy/healthz", "/clusters/proxied/api/v1/nodes/member2-node//proxy/healthz"} {
		if r := ask(path); r.code == 0 {
			t.Errorf("%s: %v", path, r)
		}
	}
	// A kube-apiserver connects to nothing on loopback by these, where its kubelet is here: what it says of that itself has come through it.
	want := direct("member2").run(t, "get", "--raw", "/api/v1/nodes/member2-node/proxy/healthz")
	says(t, want.stderr, "address not allowed")
	allow(`["nodes/member2-node"]`)
	eventually(t, func() bool { return ask(healthz) == want })
	allow(`null`)
	eventually(t, func() bool { return refused(healthz) })
}
