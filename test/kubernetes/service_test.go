package kubernetes

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// service passes TCP to ready pods, as kube-proxy does for a Service. A connection to a pod that is gone fails: service
// tries no other pod.
type service struct {
	ln   net.Listener
	port string // port of the pods

	mu    sync.Mutex
	ready []string // addresses of ready pods
	wg    sync.WaitGroup
	stop  context.CancelFunc
}

// refreshInterval is the delay of endpoints: the time until a Service knows that a pod has become ready or unready.
const refreshInterval = 100 * time.Millisecond

// newService balances the pods of a selector, which listen on port.
func newService(t *testing.T, client kubernetes.Interface, namespace, selector, port string) *service {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &service{ln: ln, port: port, stop: stop}
	s.wg.Go(func() { s.follow(ctx, client, namespace, selector) })
	s.wg.Go(func() { s.accept(ctx) })
	t.Cleanup(func() {
		stop()
		_ = ln.Close()
		s.wg.Wait()
	})
	return s
}

func (s *service) address() string { return s.ln.Addr().String() }

func (s *service) follow(ctx context.Context, client kubernetes.Interface, namespace, selector string) {
	ticks := time.NewTicker(refreshInterval)
	defer ticks.Stop()
	for {
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err == nil {
			s.set(readyPods(pods.Items))
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// readyPods returns the addresses of the pods that an EndpointSlice would report as ready.
func readyPods(pods []corev1.Pod) (ready []string) {
	for _, p := range pods {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil {
				ready = append(ready, p.Status.PodIP)
			}
		}
	}
	return ready
}

func (s *service) set(ready []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = ready
}

// endpoints returns the addresses of the ready pods.
func (s *service) endpoints() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready
}

func (s *service) accept(ctx context.Context) {
	for {
		client, err := s.ln.Accept()
		if err != nil {
			return
		}
		s.wg.Go(func() { s.pass(ctx, client) })
	}
}

func (s *service) pass(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	ready := s.endpoints()
	if len(ready) == 0 {
		return
	}
	address := net.JoinHostPort(ready[rand.IntN(len(ready))], s.port)
	pod, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer func() { _ = pod.Close() }()
	defer context.AfterFunc(ctx, func() { _, _ = client.Close(), pod.Close() })()
	var half sync.WaitGroup
	half.Go(func() {
		_, _ = io.Copy(pod, client)
		_ = pod.(*net.TCPConn).CloseWrite()
	})
	_, _ = io.Copy(client, pod)
	_ = client.Close()
	half.Wait()
}

// join returns addresses with a port, separated by commas.
func join(addresses []string, port string) string {
	out := make([]string, len(addresses))
	for i, a := range addresses {
		out[i] = net.JoinHostPort(a, port)
	}
	return strings.Join(out, ",")
}
