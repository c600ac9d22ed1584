package e2e

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// frontProxy is the gateway's configuration that lets member1's kube-apiserver say who calls.
func frontProxy() (string, error) {
	ca, err := os.ReadFile(clusters.Cluster("member1").FrontProxyCAFile())
	indented := strings.ReplaceAll(string(ca), "\n", "\n    ")
	return "frontProxy:\n  names: [front-proxy-client]\n  ca: |\n    " + indented, err
}

// gatewayService is the gateway's name inside of member1.
const gatewayService = "clusterpass.kube-system.svc"

// extends has member1's kube-apiserver ask the gateway for versions of groups, each as VERSION.GROUP, and returns the gateway's URL.
func extends(t *testing.T, versions ...string) *url.URL {
	t.Helper()
	pass, err := clientcmd.BuildConfigFromFlags("", gateway(t).pass)
	if err != nil {
		t.Fatal(err)
	}
	root, err := url.Parse(pass.Host)
	if err != nil {
		t.Fatal(err)
	}
	host := direct("member1")
	host.must(t, "apply", "-f", write(t, `
apiVersion: v1
kind: Service
metadata: {name: clusterpass, namespace: kube-system}
spec: {type: ExternalName, externalName: localhost}
`))
	t.Cleanup(func() { host.run(t, "-n", "kube-system", "delete", "service/clusterpass") })
	for _, v := range versions {
		version, group, _ := strings.Cut(v, ".")
		host.must(t, "apply", "-f", write(t, fmt.Sprintf(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: %s}
spec:
  group: %s
  version: %s
  groupPriorityMinimum: 1000
  versionPriority: 10
  service: {name: clusterpass, namespace: kube-system, port: %s}
  caBundle: %s
`, v, group, version, root.Port(), base64.StdEncoding.EncodeToString(pass.CAData))))
		t.Cleanup(func() { host.run(t, "delete", "apiservice/"+v) })
	}
	for _, v := range versions {
		host.must(t, "wait", "--for=condition=Available", "apiservice/"+v, "--timeout=4m")
	}
	return root
}

// TestOwnAPIBehindKubeAPIServer holds: a kube-apiserver that the gateway extends has the gateway's own kinds, for its own users.
func TestOwnAPIBehindKubeAPIServer(t *testing.T) {
	extends(t, "v1alpha1.cluster.karmada.io", "v1alpha1.clusterpass.io")
	host := direct("member1")
	// The kube-apiserver learns what there is a moment after the gateway is available.
	eventually(t, func() bool { return host.run(t, "get", "clusters.cluster.karmada.io").code == 0 })
	says(t, host.finally(t, "get", "clusters"), "VERSION", "MODE", "READY", "member1", "member2", "Push")
	says(t, host.finally(t, "get", "clusters", "-o", "wide"), "API-ENDPOINT")
	eventually(t, func() bool {
		return strings.Contains(host.run(t, "explain", "cluster.spec.region").stdout, "Region of the member")
	})
	w := host.start(t, clusters.BuiltKubectl(), "get", "clusters", "-w", "-o", "jsonpath={.metadata.name} {.metadata.labels.extended}{\"\\n\"}")
	w.wants("member2", func(l string) bool { return strings.HasPrefix(l, "member2") })
	host.finally(t, "label", "cluster", "member2", "extended=yes")
	t.Cleanup(func() { own(t).must(t, "label", "cluster", "member2", "extended-") })
	w.wants("the label", func(l string) bool { return l == "member2 yes" })
	eventually(t, func() bool { return host.run(t, "get", "passes").code == 0 })
	credential := host.with("apiVersion: clusterpass.io/v1alpha1\nkind: Pass\nmetadata: {name: extended}\nspec: {clusters: [member2], verbs: [get], ttl: 1h}\n").
		must(t, "create", "-f", "-", "-o", "jsonpath={.status.kubeconfig}")
	made.Document("the pass extended", []byte(credential))
	t.Cleanup(func() { own(t).must(t, "delete", "pass", "extended") })
	k := kubectl{kubeconfig: write(t, credential), context: "member2"}
	eventually(t, func() bool { return strings.Contains(k.run(t, "get", "nodes").stdout, "member2-node") })

	// The gateway decides for users of that cluster as for its own.
	kc, err := clusters.Cluster("member1").UserKubeconfig("extended-user")
	if err != nil {
		t.Fatal(err)
	}
	made.Document("extended-user", kc)
	user := kubectl{kubeconfig: write(t, string(kc)), context: "member1"}
	host.must(t, "create", "clusterrole", "extended-user", "--verb=get,list", "--resource=clusters.cluster.karmada.io")
	t.Cleanup(func() { host.run(t, "delete", "clusterrole,clusterrolebinding", "extended-user") })
	host.must(t, "create", "clusterrolebinding", "extended-user", "--clusterrole=extended-user", "--user=extended-user")
	var r result
	eventually(t, func() bool {
		r = user.run(t, "get", "clusters")
		return strings.Contains(r.stderr, `User "extended-user" cannot list resource "clusters" in API group "cluster.karmada.io" at the cluster scope`) && r.code != 0
	})
	g := own(t)
	g.must(t, "create", "clusterrole", "extended-user", "--verb=get,list", "--resource=clusters.cluster.karmada.io")
	t.Cleanup(func() { g.run(t, "delete", "clusterrole,clusterrolebinding", "extended-user") })
	g.must(t, "create", "clusterrolebinding", "extended-user", "--clusterrole=extended-user", "--user=extended-user")
	eventually(t, func() bool { r = user.run(t, "get", "clusters"); return r.code == 0 })
	says(t, r.stdout, "member1", "member2")
}

// TestKarporExtension is Karpor's page: a kube-apiserver that the gateway extends, by an APIService, passes calls on for its own users,
// and they reach other clusters with no other credential than that of the first one.
func TestKarporExtension(t *testing.T) {
	withStreamPods(t, "member2")
	root := extends(t, "v1beta1.cluster.karpor.io")
	host := direct("member1")
	const proxy = "/apis/cluster.karpor.io/v1beta1/clusters/member2/proxy"
	// member1's administrator is in system:masters, which its kube-apiserver says to the gateway and that to member2. The kube-apiserver
	// sends calls on a moment after it has said that the gateway is available.
	if got := host.finally(t, "get", "--raw", proxy+"/api/v1/nodes"); !strings.Contains(got, `"member2-node"`) {
		t.Error(got)
	}
	// A user of member1 needs member1's grant, the gateway's, and member2's own.
	kc, err := clusters.Cluster("member1").UserKubeconfig("karpor-user", "karpor-team")
	if err != nil {
		t.Fatal(err)
	}
	made.Document("karpor-user", kc)
	user := kubectl{kubeconfig: write(t, string(kc)), context: "member1"}
	refused := func(want string) {
		t.Helper()
		user.refuses(t, want, "get", "--raw", proxy+"/api/v1/nodes")
	}
	refused(`clusters.cluster.karpor.io "member2" is forbidden: User "karpor-user" cannot get resource "clusters/proxy" in API group "cluster.karpor.io"`)
	karpor := strings.NewReplacer("cluster.karmada.io", "cluster.karpor.io", "member1", "member2").Replace(grantOf("karpor-user"))
	host.must(t, "apply", "-f", write(t, karpor))
	t.Cleanup(func() { host.run(t, "delete", "clusterrole,clusterrolebinding", "karpor-user") })
	eventually(t, func() bool {
		return strings.Contains(user.run(t, "get", "--raw", proxy+"/version").stderr, "cluster.karmada.io")
	})
	refused(`clusters.cluster.karmada.io "member2" is forbidden: User "karpor-user" cannot get resource "clusters/proxy" in API group "cluster.karmada.io"`)
	grant := strings.NewReplacer("member1", "member2", "kind: User, name: karpor-user", "kind: Group, name: karpor-team").Replace(grantOf("karpor-user"))
	if out, err := cli(t, grant, "apply", "-f", "-"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = cli(t, grant, "delete", "-f", "-") })
	eventually(t, func() bool { return user.run(t, "get", "--raw", proxy+"/version").code == 0 })
	refused(`nodes is forbidden: User "karpor-user" cannot list resource "nodes"`)
	d := direct("member2")
	d.must(t, "create", "clusterrolebinding", "karpor-user", "--clusterrole=cluster-admin", "--user=karpor-user")
	t.Cleanup(func() { d.run(t, "delete", "clusterrolebinding", "karpor-user") })
	if got := user.finally(t, "get", "--raw", proxy+"/api/v1/nodes"); !strings.Contains(got, `"member2-node"`) {
		t.Error(got)
	}

	// Every native request, as the page says: here what streams, through two kube-apiservers and the gateway.
	through := []string{"--server", clusters.Cluster("member1").Server() + proxy, "-n", "streams"}
	if got := user.finally(t, append(through, "logs", "finite-a")...); got != "one\ntwo\nthree\n" {
		t.Errorf("logs: %q", got)
	}
	user.finally(t, append(through, "exec", "shell", "--", "true")...) // the grants are in force at the bridge, too
	watch := user.start(t, clusters.BuiltKubectl(), append(through, "get", "pods", "-w")...)
	watch.line("shell")
	for _, dia := range dialects {
		t.Run("exec by "+dia.name, func(t *testing.T) {
			k := user
			k.env, k.stdin = dia.env, strings.NewReader("through all of them\n")
			if got := k.must(t, append(through, "exec", "-i", "shell", "--", "cat")...); got != "through all of them\n" {
				t.Errorf("%q", got)
			}
		})
	}

	// What others write there means nothing.
	cfg, err := clientcmd.BuildConfigFromFlags("", passFor(t, "stranger"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+root.Host+proxy+"/api/v1/nodes", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header["X-Remote-User"], req.Header["X-Remote-Group"] = []string{"karpor-user"}, []string{"system:masters"}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusForbidden || !strings.Contains(string(body), `User \"stranger\" cannot get`) {
		t.Errorf("%s %s (%v)", resp.Status, body, err)
	}
}

// write makes a file that goes with the test.
func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
