package api_test

import (
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestControlPlane: kubectl at the gateway's root must find the control-plane cluster's kinds and the gateway's own.
func TestControlPlane(t *testing.T) {
	dir := t.TempDir()
	h := e2e.StartGateway(t, dir, server.Process, func(cfg *server.Config) { cfg.ControlPlane = "member2" })
	t.Cleanup(func() {
		h.Stop()
		if err := <-h.Stopped; err != nil {
			t.Error(err)
		}
	})
	k, d := e2e.Kubectl{Kubeconfig: h.Kubeconfig, Context: "clusterpass"}, e2e.Direct("member2")
	all := k.Must(t, "api-resources", "-o", "name")
	e2e.WantText(t, all, "clusters.cluster.karmada.io", "resourceregistries.search.karmada.io", "deployments.apps",
		"pods\n", "rolebindings.rbac.authorization.k8s.io", "clusterroles.rbac.authorization.k8s.io", "selfsubjectreviews")
	if strings.Count(all, "clusterroles.rbac.authorization.k8s.io") != 1 {
		t.Errorf("a kind stands twice:\n%s", all)
	}
	// Clients without aggregated discovery use these paths.
	e2e.WantText(t, k.Must(t, "get", "--raw", "/api"), `"v1"`)
	e2e.WantText(t, k.Must(t, "get", "--raw", "/apis"), `"apps"`, `"cluster.karmada.io"`)
	e2e.WantText(t, k.Must(t, "get", "--raw", "/apis/rbac.authorization.k8s.io/v1"), `"clusterroles"`, `"rolebindings"`)
	e2e.WantText(t, k.Must(t, "explain", "deployment.spec.replicas"), "desired pods")
	e2e.WantText(t, k.Must(t, "explain", "cluster.spec.region"), "Region of the member")
	e2e.WantText(t, k.Must(t, "explain", "role.rules"), "PolicyRules for this Role")
	v2 := k.Must(t, "get", "--raw", "/openapi/v2")
	e2e.WantText(t, v2, `/apis/apps/v1/deployments`, `/apis/cluster.karmada.io/v1alpha1/clusters`)

	e2e.WantText(t, k.Must(t, "get", "clusters"), "member1", "member2")
	uid := d.Must(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
	if got := k.Must(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"); got != uid {
		t.Errorf("kube-system is %s, want member2's, %s", got, uid)
	}
	// The fleet passes requests to the control-plane cluster only for kinds that are in no registry.
	e2e.WantText(t, k.Must(t, "get", "--raw", e2e.BridgeFleetPrefix+"/api/v1/namespaces/kube-system"), uid)
	checkFleetPath(t, k)
	e2e.WantText(t, k.WithInput(e2e.SeedRegistry).Must(t, "apply", "-f", "-"), "created")
	waittest.Until(t, "fleet lists the nodes of both clusters", func() bool {
		nodes := k.Run(t, "get", "--raw", e2e.BridgeFleetPrefix+"/api/v1/nodes").Stdout
		return strings.Contains(nodes, `"member1-node"`) && strings.Contains(nodes, `"member2-node"`)
	})
	if got := k.Must(t, "get", "--raw", e2e.BridgeFleetPrefix+"/api/v1/namespaces"); strings.Count(got,
		`"name":"kube-system"`) != 1 || !strings.Contains(got, uid) {
		t.Errorf("namespaces at the fleet: %s", got)
	}
	checkCommands(t, k, d, "at-the-root")
	k.Must(t, "create", "role", "at-the-root", "--verb=get", "--resource=pods")
	t.Cleanup(func() { d.Must(t, "delete", "role", "at-the-root") })
	e2e.WantText(t, d.Must(t, "get", "role", "at-the-root", "-o", "name"), "at-the-root")
	k.Must(t, "create", "clusterrole", "at-the-root", "--verb=get", "--resource=pods")
	if r := d.Run(t, "get", "clusterrole", "at-the-root"); r.Code == 0 {
		t.Errorf("the gateway's role is the cluster's:\n%s", r)
	}

	ca, err := pki.LoadCA(filepath.Join(dir, "data", "pki"), "client-ca")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Client("nobody", nil)
	if err != nil {
		t.Fatal(err)
	}
	kc, err := clientcmd.LoadFromFile(h.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for name := range kc.AuthInfos {
		kc.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	}
	stranger := e2e.Kubectl{Kubeconfig: filepath.Join(t.TempDir(), "pass"), Context: "clusterpass"}
	if err := clientcmd.WriteToFile(*kc, stranger.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	if all := stranger.Must(t, "api-resources", "-o", "name"); strings.Contains(all, "deployments") ||
		!strings.Contains(all, "clusters.cluster.karmada.io") {
		t.Errorf("nobody sees:\n%s", all)
	}
	e2e.WantText(t, stranger.Must(t, "explain", "clusterrole.rules"), "PolicyRules for this ClusterRole")
	if r := stranger.Run(t, "get", "--raw", "/api/v1/namespaces"); r.Code == 0 ||
		!strings.Contains(r.Stderr, `cannot get resource "clusters/proxy"`) {
		t.Errorf("nobody lists namespaces:\n%s", r)
	}
}

// checkFleetPath uses kinds in no registry. Requests must reach the control-plane cluster, member2.
func checkFleetPath(t *testing.T, k e2e.Kubectl) {
	t.Helper()
	kc, err := clientcmd.LoadFromFile(k.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	k.Server = kc.Clusters[kc.Contexts[k.Context].Cluster].Server + e2e.FleetPrefix
	d := e2e.Direct("member2")
	ns := checkCommands(t, k, d, "by-the-fleet")
	if r := e2e.Direct("member1").Run(t, "-n", ns, "get", "deployment", "by-the-fleet"); r.Code == 0 {
		t.Errorf("member1 has it, too: %v", r)
	}
	k.Must(t, "-n", ns, "delete", "deployment", "by-the-fleet", "--timeout=4m")
	e2e.WantText(t, d.Run(t, "-n", ns, "get", "deployment", "by-the-fleet").Stderr, "(NotFound)")
}

// checkCommands checks that kubectl at k uses the cluster of d. It returns the namespace of its deployment.
func checkCommands(t *testing.T, k, d e2e.Kubectl, name string) (ns string) {
	t.Helper()
	ns = e2e.StreamPods(t, []string{d.Context}, "shell", "finite-a")
	e2e.WantText(t, k.Must(t, "-n", ns, "create", "deployment", name, "--image=pause", "--replicas=0"), "created")
	e2e.WantText(t, d.Must(t, "-n", ns, "get", "deployments"), name)
	w := k.Start(t, e2e.Clusters.BuiltKubectl(), "-n", ns, "get", "deployments", "-w", "-o",
		"jsonpath={.metadata.name} {.metadata.labels.seen}{\"\\n\"}")
	w.Line(name)
	k.Must(t, "-n", ns, "label", "deployment", name, "seen=yes")
	w.Line(name + " yes")
	for _, logs := range [][]string{{"logs", "finite-a"}, {"logs", "-f", "finite-a"}} {
		if got := k.Must(t, append([]string{"-n", ns}, logs...)...); got != "one\ntwo\nthree\n" {
			t.Errorf("%s: %v: %q", name, logs, got)
		}
	}
	if got := k.Must(t, "-n", ns, "exec", "shell", "--", "echo", "in"); got != "in\n" {
		t.Errorf("%s: exec: %q", name, got)
	}
	return ns
}

// TestNoControlPlane: without a control-plane cluster, a 404 must name the unknown path.
func TestNoControlPlane(t *testing.T) {
	for _, path := range []string{"/api/v1/namespaces", "/apis/apps/v1/deployments", "/apis/apps/v1",
		"/apis/rbac.authorization.k8s.io/v1/roles", "/nonsense"} {
		if r := e2e.OwnAPI(t).Run(t, "get", "--raw", path); r.Code == 0 || !strings.Contains(r.Stderr, "(NotFound)") ||
			!strings.Contains(r.Stderr, "the gateway itself has nothing at "+path) {
			t.Errorf("%s:\n%s", path, r)
		}
	}
}
