package e2e

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/shared/pki"
)

// cli runs the clusterpass command on the gateway's store. What it prints is looked through for secrets.
func cli(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	out, err := secretCLI(t, stdin, args...)
	_, _ = printed.Write([]byte(out))
	return out, err
}

// secretCLI is cli for commands whose output is a credential.
func secretCLI(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	bin := filepath.Join(gateway(t).dir, "clusterpass")
	if _, err := os.Stat(bin); err != nil {
		program(t, bin, "scripts/clusterpass")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, append([]string{"--store", "dir:" + filepath.Join(gateway(t).dir, "data")}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	gateway(t).note()
	return string(out), err
}

// passFor writes a kubeconfig for another user of the gateway.
func passFor(t *testing.T, user string, groups ...string) string {
	t.Helper()
	ca, err := pki.LoadCA(filepath.Join(gateway(t).dir, "data", "pki"), "client-ca")
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Client(user, groups)
	if err != nil {
		t.Fatal(err)
	}
	made.Document("the pass of "+user, key)
	return passWith(t, gateway(t).pass, &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
}

// passWith writes a kubeconfig that is another one with somebody's credential.
func passWith(t *testing.T, pass string, credential *clientcmdapi.AuthInfo) string {
	t.Helper()
	kc, err := clientcmd.LoadFromFile(pass)
	if err != nil {
		t.Fatal(err)
	}
	for name := range kc.AuthInfos {
		kc.AuthInfos[name] = credential
	}
	path := filepath.Join(t.TempDir(), "pass")
	if err := clientcmd.WriteToFile(*kc, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestKarmadaAggregatedAPI is Karmada's page on the aggregated API endpoint: its role and its binding, with the indentation that the
// page has lost, and its commands.
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
	admin := kubectl{kubeconfig: passFor(t, "system:admin"), context: "member1"}
	raw := []string{"get", "--raw", "/apis/cluster.karmada.io/v1alpha1/clusters/member1/proxy/api/v1/nodes"}
	if r := admin.run(t, raw...); r.code == 0 || !strings.Contains(r.stderr, `User "system:admin" cannot get resource "clusters/proxy" in API group "cluster.karmada.io" at the cluster scope`) {
		t.Fatalf("before the grant: %v", r)
	}
	says(t, own(t).with(rbac).must(t, "apply", "-f", "-"), "clusterrole.rbac.authorization.k8s.io/cluster-proxy-clusterrole created", "clusterrolebinding.rbac.authorization.k8s.io/cluster-proxy-clusterrolebinding created")
	t.Cleanup(func() { own(t).with(rbac).must(t, "delete", "-f", "-") })
	// The member's own RBAC decides what the impersonated user may do there.
	admin.refuses(t, `nodes is forbidden: User "system:admin" cannot list resource "nodes"`, raw...)
	d := direct("member1")
	d.must(t, "create", "clusterrolebinding", "karmada-page", "--clusterrole=cluster-admin", "--user=system:admin")
	t.Cleanup(func() { d.run(t, "delete", "clusterrolebinding", "karmada-page") })
	if got := admin.finally(t, raw...); !strings.Contains(got, `"member1-node"`) {
		t.Error(got)
	}
	if got := admin.finally(t, "get", "node"); !strings.Contains(got, "member1-node") {
		t.Error(got)
	}
	admin.refuses(t, `clusters.cluster.karmada.io "member4" is forbidden: User "system:admin" cannot get resource "clusters/proxy"`,
		"get", "--raw", "/apis/cluster.karmada.io/v1alpha1/clusters/member4/proxy/api/v1/nodes")
}

// TestClusterProxyAddon is the snippet of stolostron's cluster-proxy-addon: a client whose host is the gateway and the cluster's name,
// with a service account's token of the member, reads a pod's logs.
func TestClusterProxyAddon(t *testing.T) {
	seed(t)
	d := direct("member1")
	d.must(t, "create", "serviceaccount", "log-reader", "-n", "seed")
	d.must(t, "create", "role", "log-reader", "-n", "seed", "--verb=get", "--resource=pods,pods/log")
	d.must(t, "create", "rolebinding", "log-reader", "-n", "seed", "--role=log-reader", "--serviceaccount=seed:log-reader")
	t.Cleanup(func() { d.run(t, "delete", "serviceaccount,role,rolebinding", "log-reader", "-n", "seed") })
	eventually(t, func() bool { // the member knows the binding
		return d.run(t, "auth", "can-i", "get", "pods/log", "-n", "seed", "--as", "system:serviceaccount:seed:log-reader").code == 0
	})
	token := strings.TrimSpace(d.must(t, "create", "token", "log-reader", "-n", "seed"))
	made.Secret("the log reader", token)
	if out, err := cli(t, "", "cluster", "add", "passing", "--kubeconfig", clusters.KubeconfigFile(), "--context", "member1", "--identity", "passthrough"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = cli(t, "", "cluster", "remove", "passing") })

	pass, err := clientcmd.BuildConfigFromFlags("", gateway(t).pass)
	if err != nil {
		t.Fatal(err)
	}
	host := pass.Host[:strings.Index(pass.Host, "/clusters/")]
	cfg := &rest.Config{Host: host + "/passing", TLSClientConfig: rest.TLSClientConfig{CAData: pass.CAData}, BearerToken: token}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	logs, err := client.CoreV1().Pods("seed").GetLogs("web", &corev1.PodLogOptions{}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(logs)
	_ = logs.Close()
	if err != nil || string(got) != "line one\nline two\n" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := client.CoreV1().Secrets("seed").Get(t.Context(), "x", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), "system:serviceaccount:seed:log-reader") {
		t.Errorf("the member's own refusal: %v", err)
	}
	// A pass is the gateway's own: the member could use it here.
	if cfg.BearerToken = strings.TrimSpace(passOf(t, "not-passed-on", "--user", "ann", "--group", "system:masters", "--output", "token")); cfg.BearerToken == "" {
		t.Fatal("no pass")
	}
	if client, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods("seed").Get(t.Context(), "web", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), "what identifies you to the gateway (pass) is not passed on") {
		t.Errorf("a pass: %v", err)
	}
	for name, tt := range map[string]struct {
		token *string
		want  string
	}{
		"a client certificate":         {nil, `403 cluster "passing" takes a bearer token of its own; what identifies you to the gateway (x509) is not passed on`},
		"nothing":                      {new(string), "401 the call has no credential; the gateway accepts: "},
		"a token of aws eks get-token": {aws.String("k8s-aws-v1.aHR0cHM6Ly9zdHM"), "401 "},
	} {
		if got := asked(t, gateway(t).pass, "/passing/version", tt.token); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	cfg.BearerToken = "not-a-token-of-it"
	if client, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods("seed").Get(t.Context(), "web", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), "Unauthorized") {
		t.Errorf("the member's own 401: %v", err)
	}
}

// patience bounds every wait: it ends what would never end.
const patience = 3 * time.Minute

// eventually waits for what is to be in force within seconds.
func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(250 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("it is not in force after %s", patience)
}
