package gateway_test

import (
	"io"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestKarmadaAggregatedAPI: users of Karmada could not move to the gateway. Karmada's page has lost the indentation of
// its YAML.
func TestKarmadaAggregatedAPI(t *testing.T) {
	const rbac = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: cluster-proxy-clusterrole
rules:
- apiGroups:
  - 'cluster.karmada.io'
  resources:
  - clusters/proxy
  resourceNames:
  - member1
  - member2
  - member3
  verbs:
  - '*'
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: cluster-proxy-clusterrolebinding
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: cluster-proxy-clusterrole
subjects:
- kind: User
  name: "system:admin"
`
	admin := e2e.Kubectl{Kubeconfig: e2e.CertificateKubeconfig(t, "system:admin"), Context: "member1"}
	raw := []string{"get", "--raw", "/apis/cluster.karmada.io/v1alpha1/clusters/member1/proxy/api/v1/nodes"}
	if r := admin.Run(t, raw...); r.Code == 0 ||
		!strings.Contains(r.Stderr,
			`User "system:admin" cannot get resource "clusters/proxy" in API group "cluster.karmada.io" at the cluster scope`) {
		t.Fatalf("before the grant: %v", r)
	}
	e2e.WantText(t, e2e.OwnAPI(t).WithInput(rbac).Must(t, "apply", "-f", "-"),
		"clusterrole.rbac.authorization.k8s.io/cluster-proxy-clusterrole created",
		"clusterrolebinding.rbac.authorization.k8s.io/cluster-proxy-clusterrolebinding created")
	t.Cleanup(func() { e2e.OwnAPI(t).WithInput(rbac).Must(t, "delete", "-f", "-") })
	// The member's own RBAC decides what the impersonated user may do there.
	admin.NeverAllowed(t, `nodes is forbidden: User "system:admin" cannot list resource "nodes"`, raw...)
	d := e2e.Direct("member1")
	d.Must(t, "create", "clusterrolebinding", "karmada-page", "--clusterrole=cluster-admin", "--user=system:admin")
	t.Cleanup(func() { d.Run(t, "delete", "clusterrolebinding", "karmada-page") })
	if got := admin.MustEventually(t, raw...); !strings.Contains(got, `"member1-node"`) {
		t.Error(got)
	}
	if got := admin.MustEventually(t, "get", "node"); !strings.Contains(got, "member1-node") {
		t.Error(got)
	}
	admin.NeverAllowed(t, `clusters.cluster.karmada.io "member4" is forbidden: User "system:admin" cannot get resource `+
		`"clusters/proxy"`,
		"get", "--raw", "/apis/cluster.karmada.io/v1alpha1/clusters/member4/proxy/api/v1/nodes")
}

// TestClusterProxyAddon: clients of stolostron's cluster-proxy-addon must read logs with a service account token of the
// member.
func TestClusterProxyAddon(t *testing.T) {
	ns := seed(t)
	d := e2e.Direct("member1")
	d.Must(t, "create", "serviceaccount", "log-reader", "-n", ns)
	d.Must(t, "create", "role", "log-reader", "-n", ns, "--verb=get", "--resource=pods,pods/log")
	d.Must(t, "create", "rolebinding", "log-reader", "-n", ns, "--role=log-reader", "--serviceaccount="+ns+":log-reader")
	waittest.Until(t, "member knows the binding", func() bool {
		return d.Run(t, "auth", "can-i", "get", "pods/log", "-n", ns, "--as", "system:serviceaccount:"+ns+
			":log-reader").Code == 0
	})
	token := strings.TrimSpace(d.Must(t, "create", "token", "log-reader", "-n", ns))
	e2e.Secrets.Secret("the log reader", token)
	if out, err := e2e.CLI(t, "", "cluster", "add", "passing", "--kubeconfig", e2e.Clusters.KubeconfigFile(), "--context",
		"member1", "--identity", "passthrough"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = e2e.CLI(t, "", "cluster", "remove", "passing") })

	pass, err := clientcmd.BuildConfigFromFlags("", e2e.Shared(t).Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	host := pass.Host[:strings.Index(pass.Host, "/clusters/")]
	cfg := &rest.Config{Host: host + "/passing", TLSClientConfig: rest.TLSClientConfig{CAData: pass.CAData},
		BearerToken: token}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	logs, err := client.CoreV1().Pods(ns).GetLogs("web", &corev1.PodLogOptions{}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(logs)
	_ = logs.Close()
	if err != nil || string(got) != "line one\nline two\n" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := client.CoreV1().Secrets(ns).Get(t.Context(), "x", metav1.GetOptions{}); err == nil ||
		!strings.Contains(err.Error(), "system:serviceaccount:"+ns+":log-reader") {
		t.Errorf("the member's own refusal: %v", err)
	}
	// The gateway must not forward a pass, because the member could use it here.
	if cfg.BearerToken = strings.TrimSpace(e2e.CreatePass(t, "not-passed-on", "--user", "ann", "--group", "system:masters",
		"--output", "token")); cfg.BearerToken == "" {
		t.Fatal("no pass")
	}
	if client, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods(ns).Get(t.Context(), "web", metav1.GetOptions{}); err == nil ||
		!strings.Contains(err.Error(), "your credential for the gateway (pass) is not forwarded") {
		t.Errorf("a pass: %v", err)
	}
	for name, tt := range map[string]struct {
		token *string
		want  string
	}{
		"a client certificate": {nil, `403 cluster "passing" needs one of its own bearer tokens; your credential ` +
			`for the gateway (x509) is not forwarded`},
		"nothing":                      {new(string), "401 the call has no credential; the gateway accepts: "},
		"a token of aws eks get-token": {aws.String("k8s-aws-v1.aHR0cHM6Ly9zdHM"), "401 "},
	} {
		if got := e2e.StatusOf(t, e2e.Shared(t).Kubeconfig, "/passing/version", tt.token); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	cfg.BearerToken = "not-a-token-of-it"
	if client, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods(ns).Get(t.Context(), "web", metav1.GetOptions{}); err == nil ||
		!strings.Contains(err.Error(), "Unauthorized") {
		t.Errorf("the member's own 401: %v", err)
	}
}
