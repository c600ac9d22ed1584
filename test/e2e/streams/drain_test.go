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

// TestDrainLeavesNoGap holds: while one gateway drains and another takes over, an informer misses no object and sees none twice,
// no watch error is reported to it, and no event is torn.
func TestDrainLeavesNoGap(t *testing.T) {
	dir := t.TempDir()
	// ends before, once nothing is open
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
	withoutGap(t, cfg, func() {
		b.set(secondAddr)
		first.Stop()
		if err := <-first.Stopped; err != nil {
			t.Errorf("the first gateway ended: %v", err)
		}
	})
}

// withoutGap runs an informer on member1, through a gateway, and fails where it misses an object, sees one twice, or is told of an error
// while something happens to the gateway, which ends watches. Objects are made before, all the while, and after. An informer says nothing
// of an event that is torn: it asks again. So there is a watch beside it that is read as it comes.
func withoutGap(t *testing.T, cfg *rest.Config, happens func()) {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	directly, err := kubernetes.NewForConfig(e2e.Clusters.Cluster("member1").RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	namespace := e2e.NewNamespace(t, "member1")
	var (
		mu     sync.Mutex
		seen   = map[string]int{}
		faults []string
	)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	maps := factory.Core().V1().ConfigMaps().Informer()
	_ = maps.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		mu.Lock()
		defer mu.Unlock()
		faults = append(faults, err.Error())
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
	made := 0
	create := func() error {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", made)}}
		made++
		_, err := directly.CoreV1().ConfigMaps(namespace).Create(t.Context(), cm, metav1.CreateOptions{})
		return err
	}
	some := func() {
		for range 50 {
			if err := create(); err != nil {
				t.Fatal(err)
			}
		}
	}
	some()
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := create(); err != nil {
					stopped <- err
					return
				}
			case <-stop:
				stopped <- nil
				return
			}
		}
	}()
	raw, err := client.CoreV1().RESTClient().Get().Namespace(namespace).Resource("configmaps").Param("watch",
		"1").SetHeader("Accept", "application/json").Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	events := bufio.NewReader(raw)
	if _, err := events.ReadBytes('\n'); err != nil {
		t.Fatal(err)
	}
	whole := make(chan error, 1)
	go func() {
		all, err := io.ReadAll(events)
		if err == nil && len(all) > 0 && !bytes.HasSuffix(all, []byte("}\n")) {
			err = fmt.Errorf("it ends with %q", all[max(0, len(all)-100):])
		}
		whole <- err
	}()
	happens()
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-whole:
		if err != nil {
			t.Errorf("a watch of the gateway that drained is torn: %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("a watch of the gateway that drained does not end")
	}
	some()
	e2e.Within(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) > made // and the cluster's CA
	})
	mu.Lock()
	defer mu.Unlock()
	for i := range made {
		if got := seen[fmt.Sprintf("c%d", i)]; got != 1 {
			t.Errorf("c%d was added %d times", i, got)
		}
	}
	if len(faults) > 0 {
		t.Errorf("the informer was told of %q", faults)
	}
}
