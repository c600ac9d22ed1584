package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/test/cluster/load"
)

// patience is the timeout of all waits. It is long enough that only a failure reaches it.
const patience = 4 * time.Minute

var clusters *cluster.Set

func TestMain(m *testing.M) {
	if os.Getenv(starterRole) != "" {
		os.Exit(playStarter())
	}
	code := cluster.Main(m, cluster.Options{Clusters: []string{"member1", "member2"}}, func(s *cluster.Set) {
		clusters = s
	})
	if code == 0 {
		if err := leaktest.Find(func() {}); err != nil {
			fmt.Fprintln(os.Stderr, "after the clusters stopped:", err)
			code = 1
		}
	}
	os.Exit(code)
}

func client(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(httpClient.CloseIdleConnections)
	c, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// freshClient is client with connections of its own, which no other test's fault has affected.
func freshClient(t *testing.T, c *cluster.Cluster) *kubernetes.Clientset {
	config := c.RESTConfig()
	config.Dial = new(net.Dialer).DialContext // keeps client-go from sharing a transport
	return client(t, config)
}

func TestKubeconfigs(t *testing.T) {
	merged, err := clientcmd.LoadFromFile(clusters.KubeconfigFile())
	if err != nil {
		t.Fatal(err)
	}
	if len(merged.Contexts) != 2 || merged.CurrentContext != "member1" {
		t.Errorf("the merged kubeconfig has contexts %v, current %q; want member1 (current) and member2",
			merged.Contexts, merged.CurrentContext)
	}
	uids := map[string]string{}
	for _, c := range clusters.Clusters() {
		file, err := os.ReadFile(c.KubeconfigFile())
		if err != nil || !bytes.Equal(file, c.Kubeconfig()) {
			t.Errorf("%s: the kubeconfig's file and bytes differ (%v)", c.Name(), err)
		}
		one, err := clientcmd.Load(c.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		if err := clientcmd.ConfirmUsable(*one, c.Name()); err != nil {
			t.Errorf("%s: %v", c.Name(), err)
		}
		user, server := one.AuthInfos[c.Name()], one.Clusters[c.Name()]
		if user.ClientCertificate+user.ClientKey+server.CertificateAuthority != "" || len(user.ClientKeyData) == 0 {
			t.Errorf("%s: the kubeconfig does not hold inline data only", c.Name())
		}

		out, err := exec.CommandContext(t.Context(), clusters.Kubectl(), "--kubeconfig", clusters.KubeconfigFile(),
			"--context", c.Name(), "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}").Output()
		if err != nil {
			t.Fatalf("kubectl: %v", err)
		}
		uids[string(out)] = c.Name()
	}
	if len(uids) != 2 {
		t.Errorf("the contexts reach clusters %v, want two", uids)
	}
}

func TestWhoMayDoWhat(t *testing.T) {
	c, other := clusters.Cluster("member1"), clusters.Cluster("member2")
	user := func(from *cluster.Cluster, name string, groups ...string) *rest.Config {
		pair, err := from.IssueUser(name, groups...)
		if err != nil {
			t.Fatal(err)
		}
		config := c.RESTConfig()
		config.CertData, config.KeyData = pair.Cert, pair.Key
		return config
	}
	anonymous := rest.AnonymousClientConfig(c.RESTConfig())
	tests := map[string]struct {
		config *rest.Config
		want   func(error) bool
	}{
		"administrator":             {c.RESTConfig(), func(err error) bool { return err == nil }},
		"a user without a role":     {user(c, "ann"), apierrors.IsForbidden},
		"a user in system:masters":  {user(c, "ann", "system:masters"), func(err error) bool { return err == nil }},
		"a user of another cluster": {user(other, "ann", "system:masters"), apierrors.IsUnauthorized},
		"nobody":                    {anonymous, apierrors.IsUnauthorized},
		"a node of another cluster": {user(other, "system:node:"+other.Node(), "system:nodes"), apierrors.IsUnauthorized},
		"a node of this cluster":    {user(c, "system:node:"+c.Node(), "system:nodes"), apierrors.IsForbidden},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := client(t, test.config).CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
			if !test.want(err) {
				t.Errorf("listing secrets: %v", err)
			}
		})
	}
}

func TestPod(t *testing.T) {
	c := clusters.Cluster("member1")
	pods := client(t, c.RESTConfig()).CoreV1().Pods("default")
	const said = "said by a real process"
	speaker, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "speaker-"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "speaker", Image: "ignored", Command: []string{"sh", "-c", "echo " + said + "; exec sleep 1000"},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	waittest.UntilNoError(t, "the pod runs and its log is there", func(ctx context.Context) error {
		pod, err := pods.Get(ctx, speaker.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning || pod.Spec.NodeName != c.Node() {
			return fmt.Errorf("the pod is %s on %q, want it running on %s", pod.Status.Phase, pod.Spec.NodeName, c.Node())
		}
		log, err := pods.GetLogs(speaker.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err == nil && !strings.Contains(string(log), said) {
			err = fmt.Errorf("the log is %q", log)
		}
		return err
	})
}

func TestLoad(t *testing.T) {
	c := clusters.Cluster("member2")
	api := client(t, c.RESTConfig())
	var said bytes.Buffer
	if err := load.Run(t.Context(), c.RESTConfig(), load.Options{Pods: 600, Nodes: 3, Progress: &said}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said.String(), "600 pods run") {
		t.Errorf("the progress says %q", said.String())
	}
	if err := load.Run(t.Context(), c.RESTConfig(), load.Options{Pods: 601, Nodes: 3}); err != nil {
		t.Fatal(err)
	}
	pods, err := api.CoreV1().Pods("load").List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Running"})
	if err != nil {
		t.Fatal(err)
	}
	addresses, nodes := map[string]bool{}, map[string]int{}
	for _, pod := range pods.Items {
		addresses[pod.Status.PodIP] = true
		nodes[pod.Spec.NodeName]++
	}
	if len(pods.Items) != 601 || len(addresses) != 601 || len(nodes) != 3 {
		t.Errorf("%d pods with %d addresses run on nodes %v; want 601, 601 and three nodes", len(pods.Items), len(addresses),
			nodes)
	}

	err = api.CoreV1().Pods("load").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	waittest.UntilNoError(t, "the pods are gone", func(ctx context.Context) error {
		left, err := api.CoreV1().Pods("load").List(ctx, metav1.ListOptions{})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d pods are left", len(left.Items))
		}
		return err
	})
	waittest.UntilNoError(t, "the nodes are ready", func(ctx context.Context) error {
		list, err := api.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "type=kwok"})
		if err != nil {
			return err
		}
		for _, node := range list.Items {
			for _, condition := range node.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
					return fmt.Errorf("node %s is not ready", node.Name)
				}
			}
		}
		return nil
	})
}

// TestScheduling: only pods that tolerate them may run on fake nodes.
func TestScheduling(t *testing.T) {
	c := clusters.Cluster("member2")
	api := client(t, c.RESTConfig())
	if err := load.Run(t.Context(), c.RESTConfig(), load.Options{Pods: 1, Namespace: "scheduling"}); err != nil {
		t.Fatal(err)
	}
	spec := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "main", Image: "ignored"}},
	}
	ordinary, err := api.CoreV1().Pods("default").Create(t.Context(),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "ordinary-"}, Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spec.NodeSelector = map[string]string{"type": "kwok"}
	spec.Tolerations = []corev1.Toleration{{Key: "kwok.x-k8s.io/node", Operator: corev1.TolerationOpExists}}
	fake, err := api.BatchV1().Jobs("default").Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "fake-"},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	waittest.UntilNoError(t, "the pod runs on the process kubelet's node", func(ctx context.Context) error {
		pod, err := api.CoreV1().Pods("default").Get(ctx, ordinary.Name, metav1.GetOptions{})
		if err == nil && (pod.Spec.NodeName != c.Node() || pod.Status.Phase != corev1.PodRunning) {
			err = fmt.Errorf("it is %s on %q", pod.Status.Phase, pod.Spec.NodeName)
		}
		if err == nil && pod.Status.HostIP != "127.0.0.1" {
			t.Errorf("it runs at %s, so kwok, not the process kubelet, says that it does", pod.Status.HostIP)
		}
		return err
	})
	waittest.UntilNoError(t, "the job on a fake node is complete", func(ctx context.Context) error {
		job, err := api.BatchV1().Jobs("default").Get(ctx, fake.Name, metav1.GetOptions{})
		if err == nil && job.Status.Succeeded != 1 {
			err = fmt.Errorf("its status is %+v", job.Status)
		}
		return err
	})
}

// TestKwokRestarts: fake nodes must process what happened without kwok.
func TestKwokRestarts(t *testing.T) {
	c := clusters.Cluster("member2")
	api := client(t, c.RESTConfig())
	if err := load.Run(t.Context(), c.RESTConfig(), load.Options{Pods: 2, Namespace: "restarts"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Kill(t.Context(), cluster.Kwok); err != nil {
		t.Fatal(err)
	}
	pods := api.CoreV1().Pods("restarts")
	if err := pods.Delete(t.Context(), "load-000000", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	pod, err := pods.Get(t.Context(), "load-000000", metav1.GetOptions{})
	if err != nil || pod.DeletionTimestamp == nil {
		t.Fatalf("without kwok a deleted pod is %v (%v); want it there and waiting", pod, err)
	}
	if err := c.Restart(t.Context(), cluster.Kwok); err != nil {
		t.Fatal(err)
	}
	waittest.UntilNoError(t, "the deleted pod is gone", func(ctx context.Context) error {
		_, err := pods.Get(ctx, "load-000000", metav1.GetOptions{})
		if err == nil {
			return errors.New("it is there")
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	if err := load.Run(t.Context(), c.RESTConfig(), load.Options{Pods: 2, Namespace: "restarts"}); err != nil {
		t.Fatal(err)
	}
}

func TestFaults(t *testing.T) {
	c := clusters.Cluster("member2")
	namespaces := freshClient(t, c).CoreV1().Namespaces()
	kept, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "kept-"}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	get := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, err := namespaces.Get(ctx, kept.Name, metav1.GetOptions{})
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.Pause(t.Context(), cluster.APIServer))
	if err := get(500 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a paused API server: %v, want no answer", err)
	}
	states, err := c.Components(t.Context())
	must(err)
	for _, s := range states {
		if want := map[bool]string{true: "paused", false: "running"}[s.Name == cluster.APIServer]; s.State != want {
			t.Errorf("%s is %s, want %s", s.Name, s.State, want)
		}
	}
	must(c.Resume(t.Context(), cluster.APIServer))
	waittest.UntilNoError(t, "the API server goes on", func(context.Context) error { return get(patience) })

	must(c.Kill(t.Context(), cluster.APIServer))
	if err := get(patience); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a killed API server: %v, want a refused connection", err)
	}
	server, err := url.Parse(c.Server())
	must(err)
	if listener, err := net.Listen("tcp", server.Host); err == nil {
		listener.Close()
		t.Error("somebody else can have the API server's port")
	}
	must(c.Restart(t.Context(), cluster.APIServer))
	must(get(patience))

	must(c.Kill(t.Context()))
	must(c.Restart(t.Context()))
	must(get(patience)) // at the same address, and nothing was lost

	states, err = c.Components(t.Context())
	must(err)
	for _, s := range states {
		if s.State != "running" {
			t.Errorf("after the restart %s is %s", s.Name, s.State)
		}
	}
	if err := c.Kill(t.Context(), "nonsense"); err == nil || !strings.Contains(err.Error(), cluster.APIServer) {
		t.Errorf("an unknown component: %v, want an error that names those there are", err)
	}
	must(clusters.Cluster("member1").Resume(t.Context())) // was never touched: nothing happens
}

// TestFrontProxy: aggregated API servers receive the CA of the clients that may act for others.
func TestFrontProxy(t *testing.T) {
	c := clusters.Cluster("member1")
	published, err := client(t, c.RESTConfig()).CoreV1().ConfigMaps("kube-system").
		Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(c.FrontProxyCAFile())
	if err != nil {
		t.Fatal(err)
	}
	if got := published.Data["requestheader-client-ca-file"]; got != string(want) {
		t.Errorf("the cluster publishes the authority %q, want %q", got, want)
	}
}
