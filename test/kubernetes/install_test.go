package kubernetes

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
	"github.com/clusterpass/clusterpass/test/kubelet"
)

const (
	namespace = "clusterpass"
	release   = "clusterpass"
	selector  = "app.kubernetes.io/instance=" + release
	replicas  = 3
	store     = "kubernetes:" + namespace
)

// The networks of the gateway's pods, and of the agents' pods.
var (
	network      = kubelet.NewNetwork()
	agentNetwork = strings.TrimSuffix(network, "0/24") + "128/25"
)

// installation is the gateway that the chart installed.
type installation struct {
	client      kubernetes.Interface
	service     *service
	bridge, cli string // programs
	pass        string // kubeconfig
	url         string
}

// values returns the values file of the test: what differs on the process kubelet from a node with a network.
func (i *installation) values(t *testing.T, clientCA string) string {
	t.Helper()
	var peers []string
	for n := range replicas + 1 {
		peers = append(peers, fmt.Sprintf("%s%d", strings.TrimSuffix(network, "0/24"), n+1))
	}
	values := map[string]any{
		"url": i.url, "clientCA": strings.TrimSpace(clientCA), "command": []string{i.bridge},
		"podAnnotations": map[string]string{kubelet.AddressAnnotation: network},
		"extraEnv": []any{
			map[string]any{"name": "POD_IP", "valueFrom": map[string]any{
				"fieldRef": map[string]any{"fieldPath": "status.podIP"},
			}},
		},
		"extraVolumes":      []any{map[string]any{"name": "hub", "secret": map[string]any{"secretName": "hub"}}},
		"extraVolumeMounts": []any{map[string]any{"name": "hub", "mountPath": "/etc/hub"}},
		"config": map[string]string{
			// Relative to the directory of the container, where the volume is.
			"CLUSTERPASS_STORE":  store + ",kubeconfig=etc/hub/kubeconfig",
			"CLUSTERPASS_LISTEN": "$(POD_IP):8443", "CLUSTERPASS_ADMIN_LISTEN": "$(POD_IP):8081",
			"CLUSTERPASS_TUNNEL_LISTEN": "$(POD_IP):8444", "CLUSTERPASS_PEERS": join(peers, "8444"),
			"CLUSTERPASS_ALLOW_LOOPBACK": "true",
		},
		"drain": map[string]int{"delaySeconds": 2, "timeoutSeconds": 30},
	}
	text, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, "values.yaml", string(text))
}

// command runs the command line as an administrator of the hub.
func (i *installation) command(t *testing.T, input string, args ...string) string {
	t.Helper()
	return command{env: []string{
		"KUBECONFIG=" + hub().KubeconfigFile(), "CLUSTERPASS_STORE=" + store,
		"CLUSTERPASS_ALLOW_LOOPBACK=true",
	}, stdin: strings.NewReader(input)}.must(t, i.cli, args...)
}

// hubKubeconfig is the credential of the gateway's pods for their store. On other nodes, the pod has it as a file.
func (i *installation) hubKubeconfig(t *testing.T) {
	t.Helper()
	token, err := i.client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), release,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: "hub",
		Contexts:       map[string]*clientcmdapi.Context{"hub": {Cluster: "hub", AuthInfo: "gateway", Namespace: namespace}},
		Clusters: map[string]*clientcmdapi.Cluster{
			"hub": {Server: hub().Server(), CertificateAuthorityData: hub().CA()},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"gateway": {Token: token.Status.Token}},
	})
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "hub"}, Data: map[string][]byte{"kubeconfig": text},
	}
	if _, err := i.client.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

const grants = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: dev}
rules:
- {apiGroups: [cluster.karmada.io], resources: [clusters/proxy], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: dev}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: dev}
subjects:
- {kind: Group, name: dev}
`

// install follows docs/guide/kubernetes.md. The hub is its own member, hub.
func install(t *testing.T) *installation {
	t.Helper()
	client, err := kubernetes.NewForConfig(hub().RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	i := &installation{
		client: client, bridge: e2e.Program(t, "websocket-bridge", "websocket-bridge"),
		cli: e2e.Program(t, "scripts/clusterpass", "clusterpass"),
	}
	i.service = newService(t, client, namespace, selector+",app.kubernetes.io/name=clusterpass", "8443")
	i.url = "https://" + i.service.address()
	mustKubectl(t, "", "create", "namespace", namespace)
	mustKubectl(t, "", "create", "namespace", workNamespace)
	clientCA := command{}.must(t, i.cli, "cert", "ca", filepath.Join(t.TempDir(), "client-ca.pem"))
	notes := mustHelm(t, "install", release, charts+"clusterpass", "--namespace", namespace, "--values",
		i.values(t, clientCA))
	for _, want := range []string{"clusterpass init", "--gateway " + i.url + " --gateway-ca store"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := kubectl(t, "", "-n", namespace, "get", "pods", "-o", "wide")
			logs, _ := kubectl(t, "", "-n", namespace, "logs", "--prefix", "--tail", "40", "-l",
				"app.kubernetes.io/name=clusterpass")
			t.Logf("%s\n%s", out, logs)
		}
	})
	i.hubKubeconfig(t)
	i.rolledOut(t)

	i.command(t, "", "init")
	i.command(t, "", "cluster", "join", "hub", "--kubeconfig", hub().KubeconfigFile(), "--group", "dev")
	i.command(t, grants, "apply", "-f", "-")
	mustKubectl(t, "", "-n", workNamespace, "create", "rolebinding", "dev", "--clusterrole", "edit", "--group", "dev")
	i.pass = write(t, "pass.kubeconfig", i.makePass(t, "me"))
	return i
}

func (i *installation) makePass(t *testing.T, name string) string {
	t.Helper()
	return i.command(t, "", "pass", "create", name, "--user", name, "--group", "dev", "--gateway", i.url,
		"--gateway-ca", "store")
}

func (i *installation) rolledOut(t *testing.T) {
	t.Helper()
	mustKubectl(t, "", "-n", namespace, "rollout", "status", "deployment/"+release, "--timeout", "4m")
	waittest.Until(t, "earlier replicas have drained, and the Service has the new ones", func() bool {
		pods, err := i.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
		return err == nil && len(pods.Items) == replicas && len(i.service.endpoints()) == replicas
	})
}

// config is that of a context of the pass. A server replaces that of the Service.
func (i *installation) config(t *testing.T, kubeconfig, context, server string) *rest.Config {
	t.Helper()
	loaded, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*loaded, context, nil, nil).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	if server != "" {
		config.ServerName = "127.0.0.1" // that of the certificate
		config.Host = strings.Replace(config.Host, i.service.address(), server, 1)
	}
	config.QPS = -1
	return config
}

// status returns the status code of a request to a replica, or 0.
func (i *installation) status(t *testing.T, kubeconfig, context, replica, path string) int {
	t.Helper()
	config := i.config(t, kubeconfig, context, net.JoinHostPort(replica, "8443"))
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	client.Timeout = 10 * time.Second
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func (i *installation) existing(t *testing.T) func() map[string]bool {
	return func() map[string]bool {
		t.Helper()
		list, err := i.client.CoreV1().ConfigMaps(workNamespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, o := range list.Items {
			names[o.Name] = true
		}
		return names
	}
}

// pods returns the names of the replicas, which must all be ready.
func (i *installation) pods(t *testing.T) []string {
	t.Helper()
	pods, err := i.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil || len(pods.Items) != replicas || len(readyPods(pods.Items)) != replicas {
		t.Fatalf("%d pods, %v", len(pods.Items), err)
	}
	var names []string
	for _, pod := range pods.Items {
		names = append(names, pod.Name)
	}
	return names
}

// killReplica kills the process of a pod, and waits until its next one is ready.
func (i *installation) killReplica(t *testing.T, name string) {
	t.Helper()
	pod, err := i.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := pod.Status.ContainerStatuses[0].RestartCount
	if err := syscall.Kill(i.process(t, name), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the replica was restarted", func() bool {
		p, err := i.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && p.Status.ContainerStatuses[0].RestartCount > before && len(readyPods([]corev1.Pod{*p})) == 1
	})
	i.rolledOut(t)
}

// process returns the process of a pod. The process kubelet sets HOSTNAME.
func (i *installation) process(t *testing.T, pod string) int {
	t.Helper()
	directories, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range directories {
		program, err := os.Readlink(filepath.Join(dir, "exe"))
		if err != nil || program != i.bridge {
			continue
		}
		environment, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err == nil && slices.Contains(strings.Split(string(environment), "\x00"), "HOSTNAME="+pod) {
			id, err := strconv.Atoi(filepath.Base(dir))
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
	}
	t.Fatalf("pod %s has no process", pod)
	return 0
}

// TestInstallation runs the commands of the guide. It fails if a restart or the end of a replica fails a read, or loses
// an acknowledged write or an event.
func TestInstallation(t *testing.T) {
	i := install(t)
	t.Run("kubectl", func(t *testing.T) {
		out := command{env: []string{"KUBECONFIG=" + i.pass, "KUBECACHEDIR=" + t.TempDir()}}.must(t, clusters.BuiltKubectl(),
			"--context", "hub", "-n", workNamespace, "get", "configmaps")
		if !strings.Contains(out, "kube-root-ca.crt") {
			t.Error(out)
		}
	})
	t.Run("rights", i.testRights)
	for name, disturb := range map[string]func(t *testing.T){
		"rolling restart": func(t *testing.T) {
			mustKubectl(t, "", "-n", namespace, "rollout", "restart", "deployment/"+release)
			i.rolledOut(t)
		},
		"kill": func(t *testing.T) {
			for _, pod := range i.pods(t) {
				i.killReplica(t, pod)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := startLoad(t, i.config(t, i.pass, "hub", ""))
			disturb(t)
			l.stop(t, i.existing(t))
			if err := i.client.CoreV1().ConfigMaps(workNamespace).DeleteCollection(t.Context(), metav1.DeleteOptions{},
				metav1.ListOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("revocation", i.testRevocation)
	t.Run("agents", i.testAgents)
	t.Run("upgrade and removal", i.testRemoval)
}

// testRights fails if the ServiceAccount may do more than the store needs.
func (i *installation) testRights(t *testing.T) {
	as := "--as=system:serviceaccount:" + namespace + ":" + release
	for request, want := range map[string]string{
		"create secrets -n " + namespace: "yes", "watch records.store.clusterpass.io -n " + namespace: "yes",
		"get secrets -n kube-system": "no", "list secrets -A": "no", "create pods -n " + namespace: "no",
		"escalate roles -n " + namespace: "no", "create serviceaccounts/token -n " + namespace: "no",
		"impersonate users": "no", "get records.store.clusterpass.io -A": "no",
	} {
		out, _ := kubectl(t, "", append([]string{"auth", "can-i", as}, strings.Fields(request)...)...)
		if strings.TrimSpace(out) != want {
			t.Errorf("%s: %s, want %s", request, strings.TrimSpace(out), want)
		}
	}
}

// testRevocation measures when every replica refuses a revoked pass.
func (i *installation) testRevocation(t *testing.T) {
	kubeconfig := write(t, "revoked.kubeconfig", i.makePass(t, "revoked"))
	const path = "/api/v1/namespaces/" + workNamespace + "/configmaps"
	replicas := i.service.endpoints()
	for _, replica := range replicas {
		waittest.Until(t, "the pass is valid at "+replica, func() bool {
			return i.status(t, kubeconfig, "hub", replica, path) == http.StatusOK
		})
	}
	i.command(t, "", "pass", "revoke", "revoked")
	start := time.Now()
	for _, replica := range replicas {
		waittest.Until(t, "the pass is refused at "+replica, func() bool {
			return i.status(t, kubeconfig, "hub", replica, path) == http.StatusUnauthorized
		})
		t.Logf("%s refuses a revoked pass after %v", replica, time.Since(start).Round(10*time.Millisecond))
	}
}

// testRemoval fails if an upgrade restarts nothing, or if helm uninstall deletes the gateway's objects.
func (i *installation) testRemoval(t *testing.T) {
	mustHelm(t, "upgrade", release, charts+"clusterpass", "--namespace", namespace, "--reuse-values",
		"--set", "replicas=2",
		"--wait", "--timeout", "4m")
	waittest.Until(t, "the Service has two replicas", func() bool { return len(i.service.endpoints()) == 2 })
	mustHelm(t, "uninstall", release, "--namespace", namespace, "--wait", "--timeout", "4m")
	if out := mustKubectl(t, "", "-n", namespace, "get", "records.store.clusterpass.io", "-o", "name"); out == "" {
		t.Error("the gateway's objects are deleted")
	}
}

func (i *installation) testAgents(t *testing.T) {
	agent := e2e.Program(t, "websocket-bridge/agent", "clusterpass-agent")
	text := i.command(t, "", "cluster", "join", "--pull", "private", "--kubeconfig", hub().KubeconfigFile(),
		"--group", "dev",
		"--gateway", i.pass, "--tunnel", "https://clusterpass-peers."+namespace+".svc:8444", "--agent-format", "values")
	var joined struct{ Token string }
	if err := yaml.Unmarshal([]byte(text), &joined); err != nil {
		t.Fatal(err)
	}
	// Without the credential of its ServiceAccount, an agent cannot write a Secret. Both share a file.
	credential := write(t, "token", joined.Token)
	test, err := yaml.Marshal(map[string]any{
		"command":        []string{agent},
		"podAnnotations": map[string]string{kubelet.AddressAnnotation: agentNetwork},
		"extraEnv": []any{
			map[string]any{"name": "POD_IP", "valueFrom": map[string]any{
				"fieldRef": map[string]any{"fieldPath": "status.podIP"},
			}},
		},
		"config": map[string]string{
			"CLUSTERPASS_CREDENTIAL": "file:" + credential, "CLUSTERPASS_ADMIN_LISTEN": "$(POD_IP):8081",
			"CLUSTERPASS_API_SERVER": strings.TrimPrefix(hub().Server(), "https://"),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	mustHelm(t, "install", "clusterpass-agent", charts+"clusterpass-agent", "--namespace", namespace,
		"--values", write(t, "joined.yaml", text), "--values", write(t, "test.yaml", string(test)), "--wait",
		"--timeout", "4m")
	const path = "/api/v1/namespaces/" + workNamespace + "/configmaps"
	pass := write(t, "private.kubeconfig", i.makePass(t, "private")) // has a context of the private cluster
	for _, replica := range i.service.endpoints() {
		waittest.Until(t, "the private cluster answers through "+replica, func() bool {
			return i.status(t, pass, "private", replica, path) == http.StatusOK
		})
	}
	killed := time.Now()
	i.killReplica(t, i.pods(t)[0])
	restarted := time.Now()
	for _, replica := range i.service.endpoints() {
		waittest.Until(t, "the private cluster answers again through "+replica, func() bool {
			return i.status(t, pass, "private", replica, path) == http.StatusOK
		})
	}
	t.Logf("a killed replica was ready after %v; %v later, every replica reached the private cluster",
		restarted.Sub(killed).Round(10*time.Millisecond), time.Since(restarted).Round(10*time.Millisecond))
	mustHelm(t, "uninstall", "clusterpass-agent", "--namespace", namespace, "--wait", "--timeout", "4m")
}
