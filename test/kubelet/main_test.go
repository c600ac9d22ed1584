package kubelet_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/test/kubelet"
	"github.com/clusterpass/clusterpass/test/kubelet/shim"
)

const (
	// serveEnv makes the test binary a container's program: a server that returns what it receives.
	serveEnv = "KUBELET_TEST_SERVE"
	// probedEnv makes it a server of probes at that address.
	probedEnv = "KUBELET_TEST_PROBED"
	patience  = 4 * time.Minute
)

// world is a cluster whose kubelet is replaced by one within this process, so that the race detector covers it.
var world struct {
	set     *cluster.Set
	cluster *cluster.Cluster
	client  *kubernetes.Clientset // an administrator's
	node    *node
}

func TestMain(m *testing.M) {
	if shim.Invoked() {
		syscall.Exit(shim.Main()) // os.Exit would make the race detector sleep for a second
	}
	if os.Getenv(serveEnv) != "" {
		serve()
	}
	if address := os.Getenv(probedEnv); address != "" {
		serveProbes(address)
	}
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour) // the first run builds Kubernetes
	defer cancel()
	world.set, err = cluster.New(ctx, cluster.Options{})
	if err != nil {
		return 1, fmt.Errorf("start a cluster: %w", err)
	}
	defer func() { err = errors.Join(err, world.set.Stop()) }()
	world.cluster = world.set.Clusters()[0]
	if err := world.cluster.Kill(ctx, cluster.Kubelet); err != nil {
		return 1, err
	}
	config := world.cluster.RESTConfig()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return 1, err
	}
	if world.client, err = kubernetes.NewForConfigAndClient(config, httpClient); err != nil {
		return 1, err
	}
	others := goleak.IgnoreCurrent()
	world.node = &node{name: world.cluster.Node(), root: filepath.Join(world.set.Dir(), "root")}
	if err := world.node.start(); err != nil {
		return 1, err
	}
	code = m.Run()
	err = world.node.stop()
	return code, errors.Join(err, leaktest.Find(func() {
		utilnet.CloseIdleConnectionsFor(httpClient.Transport)
		utilnet.CloseIdleConnectionsFor(world.node.http.Transport)
	}, others))
}

type node struct {
	name, root string
	cancel     context.CancelFunc
	ended      chan error
	http       *http.Client
}

// file returns the path of a file that the cluster created for its own kubelet.
func (n *node) file(name string) string {
	return filepath.Join(world.set.Dir(), world.cluster.Name(), name)
}

func (n *node) start() error {
	config, err := clientcmd.BuildConfigFromFlags("", n.file("kubelet.kubeconfig"))
	if err != nil {
		return err
	}
	config.QPS = -1
	if n.http, err = rest.HTTPClientFor(config); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfigAndClient(config, n.http)
	if err != nil {
		return err
	}
	k, err := kubelet.New(kubelet.Config{
		Client:            client,
		NodeName:          n.name,
		RootDir:           n.root,
		Address:           "127.0.0.1",
		TLSCertFile:       n.file("pki/kubelet.crt"),
		TLSPrivateKeyFile: n.file("pki/kubelet.key"),
		ClientCAFile:      n.file("pki/ca.crt"),
		Backoff:           100 * time.Millisecond,
		Log:               slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	old := n.port()
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel, n.ended = cancel, make(chan error, 1)
	go func() { n.ended <- k.Run(ctx) }()
	registered, cancelWait := context.WithTimeout(context.Background(), patience)
	defer cancelWait()
	return waittest.Poll(registered, func(context.Context) error {
		if !n.moved(old) {
			return errors.New("the node was not registered")
		}
		return nil
	})
}

func (n *node) stop() error {
	n.cancel()
	err := <-n.ended
	utilnet.CloseIdleConnectionsFor(n.http.Transport)
	return err
}

// moved reports whether another kubelet has registered the node, with another port than old.
func (n *node) moved(old int32) bool {
	now := n.port()
	return now != 0 && now != old
}

func (n *node) port() int32 {
	api, err := world.client.CoreV1().Nodes().Get(context.Background(), n.name, metav1.GetOptions{})
	if err != nil {
		return 0
	}
	return api.Status.DaemonEndpoints.KubeletEndpoint.Port
}

type result struct {
	stdout, stderr string
	code           int
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, world.set.BuiltKubectl(), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+world.cluster.KubeconfigFile())
	return cmd
}

func kubectl(t *testing.T, stdin io.Reader, args ...string) result {
	t.Helper()
	cmd := command(t, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	r := kubectl(t, nil, args...)
	if r.code != 0 {
		t.Fatalf("kubectl %s: exit code %d\n%s", strings.Join(args, " "), r.code, r.stderr)
	}
	return r.stdout
}

type podOption func(*corev1.Pod)

// script makes a shell script the container's program. Kubernetes does not expand variables in it.
func script(s string) podOption {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Command = []string{"sh", "-c", strings.ReplaceAll(s, "$", "$$")}
	}
}

func restart(policy corev1.RestartPolicy) podOption {
	return func(p *corev1.Pod) { p.Spec.RestartPolicy = policy }
}

// made counts pods, so that each has a name of its own. Those of a test's last run may not be gone.
var made atomic.Int32

func makePod(t *testing.T, options ...podOption) string {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
	for _, o := range options {
		o(p)
	}
	p.Name = fmt.Sprintf("%s-%d", p.Name, made.Add(1))
	pods := world.client.CoreV1().Pods(metav1.NamespaceDefault)
	if _, err := pods.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // a test may have deleted it
		_ = pods.Delete(context.Background(), p.Name, *metav1.NewDeleteOptions(1))
	})
	return p.Name
}

func getPod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	p, err := world.client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func waitPod(t *testing.T, name, what string, so func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var p *corev1.Pod
	defer func() {
		if t.Failed() && p != nil {
			t.Logf("pod %s: %+v", name, p.Status)
		}
	}()
	waittest.Until(t, "pod "+name+" "+what, func() bool { p = getPod(t, name); return so(p) })
	return p
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func over(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func runPod(t *testing.T, options ...podOption) string {
	t.Helper()
	name := makePod(t, options...)
	waitPod(t, name, "is ready", ready)
	return name
}

func readFile(path string) string {
	content, _ := os.ReadFile(path)
	return string(content)
}

// serveProbes answers 200 for the names of files in its working directory, and 404 for others.
func serveProbes(address string) {
	fmt.Println(http.ListenAndServe(address, http.FileServer(http.Dir("."))))
	os.Exit(1)
}

// serve prints its port, and responds with the checksum of received data after a client has closed its half.
func serve() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	for {
		conn, err := listener.Accept()
		if err != nil {
			os.Exit(1)
		}
		go func() {
			defer conn.Close()
			sum := sha256.New()
			n, _ := io.Copy(sum, conn)
			fmt.Fprintf(conn, "%d %x", n, sum.Sum(nil))
		}()
	}
}
