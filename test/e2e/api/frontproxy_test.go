package api_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// createAPIServices registers API versions, each as VERSION.GROUP, at member1's kube-apiserver. It returns the
// gateway's URL.
func createAPIServices(t *testing.T, versions ...string) *url.URL {
	t.Helper()
	pass, err := clientcmd.BuildConfigFromFlags("", e2e.Shared(t).Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	root, err := url.Parse(pass.Host)
	if err != nil {
		t.Fatal(err)
	}
	host := e2e.Direct("member1")
	host.Must(t, "apply", "-f", e2e.WriteFile(t, `
apiVersion: v1
kind: Service
metadata: {name: clusterpass, namespace: kube-system}
spec: {type: ExternalName, externalName: localhost}
`))
	t.Cleanup(func() { host.Run(t, "-n", "kube-system", "delete", "service/clusterpass") })
	for _, v := range versions {
		version, group, _ := strings.Cut(v, ".")
		host.Must(t, "apply", "-f", e2e.WriteFile(t, fmt.Sprintf(`
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
		t.Cleanup(func() { host.Run(t, "delete", "apiservice/"+v) })
	}
	for _, v := range versions {
		host.Must(t, "wait", "--for=condition=Available", "apiservice/"+v, "--timeout=4m")
	}
	return root
}

// TestOwnAPIBehindKubeAPIServer: users of a cluster with APIServices must reach the gateway's kinds, authorized by the
// gateway.
func TestOwnAPIBehindKubeAPIServer(t *testing.T) {
	createAPIServices(t, "v1alpha1.cluster.karmada.io", "v1alpha1.clusterpass.io")
	host := e2e.Direct("member1")
	// The kube-apiserver reads the gateway's discovery some time after the APIService is available.
	waittest.Until(t, "extended API server lists clusters", func() bool {
		return host.Run(t, "get", "clusters.cluster.karmada.io").Code == 0
	})
	e2e.WantText(t, host.MustEventually(t, "get", "clusters"), "VERSION", "MODE", "READY", "member1", "member2", "Push")
	e2e.WantText(t, host.MustEventually(t, "get", "clusters", "-o", "wide"), "API-ENDPOINT")
	waittest.Until(t, "explain has the field's description", func() bool {
		return strings.Contains(host.Run(t, "explain", "cluster.spec.region").Stdout, "Region of the member")
	})
	w := host.Start(t, e2e.Clusters.BuiltKubectl(), "get", "clusters", "-w", "-o",
		"jsonpath={.metadata.name} {.metadata.labels.extended}{\"\\n\"}")
	w.WaitForLine("member2", func(l string) bool { return strings.HasPrefix(l, "member2") })
	host.MustEventually(t, "label", "cluster", "member2", "extended=yes")
	t.Cleanup(func() { e2e.OwnAPI(t).Must(t, "label", "cluster", "member2", "extended-") })
	w.WaitForLine("the label", func(l string) bool { return l == "member2 yes" })
	waittest.Until(t, "extended API server lists passes", func() bool { return host.Run(t, "get", "passes").Code == 0 })
	credential := host.WithInput("apiVersion: clusterpass.io/v1alpha1\nkind: Pass\nmetadata: {name: extended}\nspec: "+
		"{clusters: [member2], verbs: [get], ttl: 1h}\n").
		Must(t, "create", "-f", "-", "-o", "jsonpath={.status.kubeconfig}")
	e2e.Secrets.Document("the pass extended", []byte(credential))
	t.Cleanup(func() { e2e.OwnAPI(t).Must(t, "delete", "pass", "extended") })
	k := e2e.Kubectl{Kubeconfig: e2e.WriteFile(t, credential), Context: "member2"}
	waittest.Until(t, "pass lists the nodes of member2", func() bool {
		return strings.Contains(k.Run(t, "get", "nodes").Stdout, "member2-node")
	})

	kc, err := e2e.Clusters.Cluster("member1").UserKubeconfig("extended-user")
	if err != nil {
		t.Fatal(err)
	}
	e2e.Secrets.Document("extended-user", kc)
	user := e2e.Kubectl{Kubeconfig: e2e.WriteFile(t, string(kc)), Context: "member1"}
	host.Must(t, "create", "clusterrole", "extended-user", "--verb=get,list", "--resource=clusters.cluster.karmada.io")
	t.Cleanup(func() { host.Run(t, "delete", "clusterrole,clusterrolebinding", "extended-user") })
	host.Must(t, "create", "clusterrolebinding", "extended-user", "--clusterrole=extended-user", "--user=extended-user")
	var r e2e.Result
	waittest.Until(t, "user without a grant is refused", func() bool {
		r = user.Run(t, "get", "clusters")
		return strings.Contains(r.Stderr,
			`User "extended-user" cannot list resource "clusters" in API group "cluster.karmada.io" at the cluster scope`) &&
			r.Code != 0
	})
	g := e2e.OwnAPI(t)
	g.Must(t, "create", "clusterrole", "extended-user", "--verb=get,list", "--resource=clusters.cluster.karmada.io")
	t.Cleanup(func() { g.Run(t, "delete", "clusterrole,clusterrolebinding", "extended-user") })
	g.Must(t, "create", "clusterrolebinding", "extended-user", "--clusterrole=extended-user", "--user=extended-user")
	waittest.Until(t, "user with a grant lists clusters", func() bool {
		r = user.Run(t, "get", "clusters")
		return r.Code == 0
	})
	e2e.WantText(t, r.Stdout, "member1", "member2")
}

// TestKarporExtension: users of a cluster with Karpor's APIService must reach other clusters with their own credential.
func TestKarporExtension(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member2"}, "shell", "finite-a")
	root := createAPIServices(t, "v1beta1.cluster.karpor.io")
	host := e2e.Direct("member1")
	const proxy = "/apis/cluster.karpor.io/v1beta1/clusters/member2/proxy"
	// The kube-apiserver may refuse requests for a moment after the APIService is available.
	if got := host.MustEventually(t, "get", "--raw", proxy+"/api/v1/nodes"); !strings.Contains(got, `"member2-node"`) {
		t.Error(got)
	}
	// A user of member1 needs member1's grant, the gateway's, and member2's own.
	kc, err := e2e.Clusters.Cluster("member1").UserKubeconfig("karpor-user", "karpor-team")
	if err != nil {
		t.Fatal(err)
	}
	e2e.Secrets.Document("karpor-user", kc)
	user := e2e.Kubectl{Kubeconfig: e2e.WriteFile(t, string(kc)), Context: "member1"}
	expectRefusal := func(want string) {
		t.Helper()
		user.NeverAllowed(t, want, "get", "--raw", proxy+"/api/v1/nodes")
	}
	expectRefusal(`clusters.cluster.karpor.io "member2" is forbidden: User "karpor-user" cannot get resource ` +
		`"clusters/proxy" ` +
		`in API group "cluster.karpor.io"`)
	karpor := strings.NewReplacer("cluster.karmada.io", "cluster.karpor.io", "member1",
		"member2").Replace(e2e.GrantYAML("member1", "karpor-user"))
	host.Must(t, "apply", "-f", e2e.WriteFile(t, karpor))
	t.Cleanup(func() { host.Must(t, "delete", "clusterrole,clusterrolebinding", "karpor-user-member2") })
	waittest.Until(t, "call without a grant reaches the gateway", func() bool {
		return strings.Contains(user.Run(t, "get", "--raw", proxy+"/version").Stderr, "cluster.karmada.io")
	})
	expectRefusal(`clusters.cluster.karmada.io "member2" is forbidden: User "karpor-user" cannot get resource ` +
		`"clusters/proxy" in API group "cluster.karmada.io"`)
	grant := strings.NewReplacer("member1", "member2", "kind: User, name: karpor-user",
		"kind: Group, name: karpor-team").Replace(e2e.GrantYAML("member1", "karpor-user"))
	if out, err := e2e.CLI(t, grant, "apply", "-f", "-"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = e2e.CLI(t, grant, "delete", "-f", "-") })
	waittest.Until(t, "call with a grant reaches member2", func() bool {
		return user.Run(t, "get", "--raw", proxy+"/version").Code == 0
	})
	expectRefusal(`nodes is forbidden: User "karpor-user" cannot list resource "nodes"`)
	d := e2e.Direct("member2")
	d.Must(t, "create", "clusterrolebinding", "karpor-user", "--clusterrole=cluster-admin", "--user=karpor-user")
	t.Cleanup(func() { d.Run(t, "delete", "clusterrolebinding", "karpor-user") })
	if got := user.MustEventually(t, "get", "--raw", proxy+"/api/v1/nodes"); !strings.Contains(got, `"member2-node"`) {
		t.Error(got)
	}

	through := []string{"--server", e2e.Clusters.Cluster("member1").Server() + proxy, "-n", ns}
	if got := user.MustEventually(t, append(through, "logs", "finite-a")...); got != "one\ntwo\nthree\n" {
		t.Errorf("logs: %q", got)
	}
	user.MustEventually(t, append(through, "exec", "shell", "--", "true")...) // waits until the bridge has the grants
	watch := user.Start(t, e2e.Clusters.BuiltKubectl(), append(through, "get", "pods", "-w")...)
	watch.Line("shell")
	for _, dialect := range e2e.Dialects {
		t.Run("exec by "+dialect.Name, func(t *testing.T) {
			k := user
			k.Env, k.Stdin = dialect.Env, strings.NewReader("through all of them\n")
			if got := k.Must(t, append(through, "exec", "-i", "shell", "--", "cat")...); got != "through all of them\n" {
				t.Errorf("%q", got)
			}
		})
	}
	checkForgedHeaders(t, root.Host, proxy)
}

// checkForgedHeaders sends the headers of a front proxy as another user. The gateway must ignore them.
func checkForgedHeaders(t *testing.T, host, proxy string) {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", e2e.CertificateKubeconfig(t, "stranger"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+proxy+"/api/v1/nodes", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header["X-Remote-User"], req.Header["X-Remote-Group"] = []string{"karpor-user"}, []string{"system:masters"}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusForbidden ||
		!strings.Contains(string(body), `User \"stranger\" cannot get`) {
		t.Errorf("%s %s (%v)", resp.Status, body, err)
	}
}
