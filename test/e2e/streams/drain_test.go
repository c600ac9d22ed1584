package streams_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// balancer sends each new connection to the gateway that is set.
type balancer struct {
	net.Listener
	mu sync.Mutex
	to string
}

func newBalancer(t *testing.T) *balancer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{Listener: ln}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { b.carry(c) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); wg.Wait() })
	return b
}

func (b *balancer) set(addr string) {
	b.mu.Lock()
	b.to = addr
	b.mu.Unlock()
}

func (b *balancer) carry(c net.Conn) {
	defer func() { _ = c.Close() }()
	b.mu.Lock()
	to := b.to
	b.mu.Unlock()
	g, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = g.Close() }()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(g, c)
		_ = g.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(c, g)
	_ = c.(*net.TCPConn).CloseWrite()
	<-done
}

// TestDrainLeavesNoGap: during an upgrade, an informer must not miss or repeat objects, or read a truncated event.
func TestDrainLeavesNoGap(t *testing.T) {
	dir := t.TempDir()
	// The timeout is a limit. The gateway ends as soon as no stream is open.
	first := e2e.StartGateway(t, dir, server.Inline, func(cfg *server.Config) { cfg.DrainTimeout = time.Minute })
	firstAddr := e2e.HostOf(t, first.Kubeconfig)
	second := e2e.StartGateway(t, dir, server.Inline)
	t.Cleanup(func() { second.Stop(); <-second.Stopped })
	secondAddr := e2e.HostOf(t, second.Kubeconfig)
	b := newBalancer(t)
	b.set(firstAddr)
	pass, err := os.ReadFile(second.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig([]byte(strings.ReplaceAll(string(pass), secondAddr, b.Addr().String())))
	if err != nil {
		t.Fatal(err)
	}
	checkNoGap(t, cfg, func() {
		b.set(secondAddr)
		first.Stop()
		if err := <-first.Stopped; err != nil {
			t.Errorf("the first gateway ended: %v", err)
		}
	})
}

// checkNoGap runs an informer on member1 while disrupt ends the gateway's watches. It also reads a watch itself, since
// informers do not report a truncated event.
func checkNoGap(t *testing.T, cfg *rest.Config, disrupt func()) {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	direct, err := kubernetes.NewForConfig(e2e.Clusters.Cluster("member1").RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	namespace := e2e.NewNamespace(t, "member1")
	var (
		mu          sync.Mutex
		seen        = map[string]int{}
		watchErrors []string
	)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	maps := factory.Core().V1().ConfigMaps().Informer()
	_ = maps.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		mu.Lock()
		defer mu.Unlock()
		watchErrors = append(watchErrors, err.Error())
	})
	_, err = maps.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		mu.Lock()
		defer mu.Unlock()
		seen[obj.(*corev1.ConfigMap).Name]++
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer func() { cancel(); factory.Shutdown() }()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), maps.HasSynced) {
		t.Fatal("the informer does not synchronise")
	}
	created := 0
	create := func() error {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", created)}}
		created++
		_, err := direct.CoreV1().ConfigMaps(namespace).Create(t.Context(), cm, metav1.CreateOptions{})
		return err
	}
	createSome := func() {
		for range 50 {
			if err := create(); err != nil {
				t.Fatal(err)
			}
		}
	}
	createSome()
	stop, stopped := createRepeatedly(create)
	rawWatch := readRawWatch(t, client, namespace)
	disrupt()
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	expectWholeWatch(t, rawWatch)
	createSome()
	e2e.Within(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) > created // seen also has the ConfigMap of the cluster's CA
	})
	mu.Lock()
	defer mu.Unlock()
	for i := range created {
		if got := seen[fmt.Sprintf("c%d", i)]; got != 1 {
			t.Errorf("c%d was added %d times", i, got)
		}
	}
	if len(watchErrors) > 0 {
		t.Errorf("the informer was told of %q", watchErrors)
	}
}

func expectWholeWatch(t *testing.T, rawWatch <-chan error) {
	t.Helper()
	select {
	case err := <-rawWatch:
		if err != nil {
			t.Errorf("a watch of the gateway that drained is torn: %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("a watch of the gateway that drained does not end")
	}
}

// createRepeatedly calls create 100 times a second until stop is closed. stopped receives its error or nil.
func createRepeatedly(create func() error) (stop chan<- struct{}, stopped <-chan error) {
	stopping, result := make(chan struct{}), make(chan error, 1)
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := create(); err != nil {
					result <- err
					return
				}
			case <-stopping:
				result <- nil
				return
			}
		}
	}()
	return stopping, result
}

// readRawWatch opens a watch of ConfigMaps. The channel receives an error if the watch ends within an event, else nil.
func readRawWatch(t *testing.T, client kubernetes.Interface, namespace string) <-chan error {
	t.Helper()
	raw, err := client.CoreV1().RESTClient().Get().Namespace(namespace).Resource("configmaps").Param("watch",
		"1").SetHeader("Accept", "application/json").Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	events := bufio.NewReader(raw)
	if _, err := events.ReadBytes('\n'); err != nil {
		t.Fatal(err)
	}
	rawWatch := make(chan error, 1)
	go func() {
		all, err := io.ReadAll(events)
		if err == nil && len(all) > 0 && !bytes.HasSuffix(all, []byte("}\n")) {
			err = fmt.Errorf("it ends with %q", all[max(0, len(all)-100):])
		}
		rawWatch <- err
	}()
	return rawWatch
}
