package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/shared/pki"
)

// TestControlPlane holds: with a control-plane cluster the gateway's root is an API server with that cluster's kinds and its own.
func TestControlPlane(t *testing.T) {
	withStreamPods(t, "member2")
	dir := t.TempDir()
	h := start(t, dir, server.Process, func(cfg *server.Config) { cfg.ControlPlane = "member2" })
	t.Cleanup(func() {
		h.stop()
		if err := <-h.stopped; err != nil {
			t.Error(err)
		}
	})
	k, d := kubectl{kubeconfig: h.pass, context: "clusterpass"}, direct("member2")
	all := k.must(t, "api-resources", "-o", "name")
	says(t, all, "clusters.cluster.karmada.io", "resourceregistries.search.karmada.io", "deployments.apps", "pods\n", "rolebindings.rbac.authorization.k8s.io", "clusterroles.rbac.authorization.k8s.io", "selfsubjectreviews")
	if strings.Count(all, "clusterroles.rbac.authorization.k8s.io") != 1 {
		t.Errorf("a kind stands twice:\n%s", all)
	}
	// Clients that know no aggregated discovery see the same.
	says(t, k.must(t, "get", "--raw", "/api"), `"v1"`)
	says(t, k.must(t, "get", "--raw", "/apis"), `"apps"`, `"cluster.karmada.io"`)
	says(t, k.must(t, "get", "--raw", "/apis/rbac.authorization.k8s.io/v1"), `"clusterroles"`, `"rolebindings"`)
	says(t, k.must(t, "explain", "deployment.spec.replicas"), "desired pods")
	says(t, k.must(t, "explain", "cluster.spec.region"), "Region of the member")
	says(t, k.must(t, "explain", "role.rules"), "PolicyRules for this Role")
	v2 := k.must(t, "get", "--raw", "/openapi/v2")
	says(t, v2, `/apis/apps/v1/deployments`, `/apis/cluster.karmada.io/v1alpha1/clusters`)

	says(t, k.must(t, "get", "clusters"), "member1", "member2")
	uid := d.must(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
	if got := k.must(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"); got != uid {
		t.Errorf("kube-system is %s, want member2's, %s", got, uid)
	}
	// The fleet answers so for kinds that no registry takes in, and for no others.
	says(t, k.must(t, "get", "--raw", bridgePrefix+"/api/v1/namespaces/kube-system"), uid)
	worksAsTheFleet(t, k)
	says(t, k.with(seedRegistry).must(t, "apply", "-f", "-"), "created")
	eventually(t, func() bool {
		nodes := k.run(t, "get", "--raw", bridgePrefix+"/api/v1/nodes").stdout
		return strings.Contains(nodes, `"member1-node"`) && strings.Contains(nodes, `"member2-node"`)
	})
	if got := k.must(t, "get", "--raw", bridgePrefix+"/api/v1/namespaces"); strings.Count(got, `"name":"kube-system"`) != 1 || !strings.Contains(got, uid) {
		t.Errorf("namespaces at the fleet: %s", got)
	}
	worksAt(t, k, d, "at-the-root")
	k.must(t, "create", "role", "at-the-root", "--verb=get", "--resource=pods")
	t.Cleanup(func() { d.must(t, "delete", "role", "at-the-root") })
	says(t, d.must(t, "get", "role", "at-the-root", "-o", "name"), "at-the-root")
	// Cluster-wide roles are the gateway's own: they say who may call it.
	k.must(t, "create", "clusterrole", "at-the-root", "--verb=get", "--resource=pods")
	if r := d.run(t, "get", "clusterrole", "at-the-root"); r.code == 0 {
		t.Errorf("the gateway's role is the cluster's:\n%s", r)
	}

	// Who may not call the cluster sees the gateway alone.
	ca, err := pki.LoadCA(filepath.Join(dir, "data", "pki"), "client-ca")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Client("nobody", nil)
	if err != nil {
		t.Fatal(err)
	}
	kc, err := clientcmd.LoadFromFile(h.pass)
	if err != nil {
		t.Fatal(err)
	}
	for name := range kc.AuthInfos {
		kc.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	}
	nobody := kubectl{kubeconfig: filepath.Join(t.TempDir(), "pass"), context: "clusterpass"}
	if err := clientcmd.WriteToFile(*kc, nobody.kubeconfig); err != nil {
		t.Fatal(err)
	}
	if all := nobody.must(t, "api-resources", "-o", "name"); strings.Contains(all, "deployments") || !strings.Contains(all, "clusters.cluster.karmada.io") {
		t.Errorf("nobody sees:\n%s", all)
	}
	says(t, nobody.must(t, "explain", "clusterrole.rules"), "PolicyRules for this ClusterRole")
	if r := nobody.run(t, "get", "--raw", "/api/v1/namespaces"); r.code == 0 || !strings.Contains(r.stderr, `cannot get resource "clusters/proxy"`) {
		t.Errorf("nobody lists namespaces:\n%s", r)
	}
}

// worksAsTheFleet holds: by the path of the fleet kubectl does what it does at the control-plane cluster, member2, with kinds that no registry takes in.
func worksAsTheFleet(t *testing.T, k kubectl) {
	t.Helper()
	kc, err := clientcmd.LoadFromFile(k.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	k.server = kc.Clusters[kc.Contexts[k.context].Cluster].Server + fleetPrefix
	d := direct("member2")
	worksAt(t, k, d, "by-the-fleet")
	if r := direct("member1").run(t, "get", "deployment", "by-the-fleet"); r.code == 0 {
		t.Errorf("member1 has it, too: %v", r)
	}
	k.must(t, "delete", "deployment", "by-the-fleet", "--timeout=4m")
	says(t, d.run(t, "get", "deployment", "by-the-fleet").stderr, "(NotFound)")
}

// worksAt holds: at the cluster that d asks directly, kubectl makes a deployment of that name, watches and labels it, reads logs and runs commands.
func worksAt(t *testing.T, k, d kubectl, name string) {
	t.Helper()
	t.Cleanup(func() { d.must(t, "delete", "deployment", name, "--ignore-not-found") })
	says(t, k.must(t, "create", "deployment", name, "--image=pause", "--replicas=0"), "created")
	says(t, d.must(t, "get", "deployments"), name)
	w := k.start(t, clusters.BuiltKubectl(), "get", "deployments", "-w", "-o", "jsonpath={.metadata.name} {.metadata.labels.seen}{\"\\n\"}")
	w.line(name)
	k.must(t, "label", "deployment", name, "seen=yes")
	w.line(name + " yes")
	for _, logs := range [][]string{{"logs", "finite-a"}, {"logs", "-f", "finite-a"}} {
		if got := k.must(t, append([]string{"-n", "streams"}, logs...)...); got != "one\ntwo\nthree\n" {
			t.Errorf("%s: %v: %q", name, logs, got)
		}
	}
	if got := k.must(t, "-n", "streams", "exec", "shell", "--", "echo", "in"); got != "in\n" {
		t.Errorf("%s: exec: %q", name, got)
	}
}

// TestNoControlPlane holds: without one, what the gateway does not have is a clean 404.
func TestNoControlPlane(t *testing.T) {
	for _, path := range []string{"/api/v1/namespaces", "/apis/apps/v1/deployments", "/apis/apps/v1", "/apis/rbac.authorization.k8s.io/v1/roles", "/nonsense"} {
		if r := own(t).run(t, "get", "--raw", path); r.code == 0 || !strings.Contains(r.stderr, "(NotFound)") || !strings.Contains(r.stderr, "the gateway itself has nothing at "+path) {
			t.Errorf("%s:\n%s", path, r)
		}
	}
}
