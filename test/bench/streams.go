package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/test/cluster"
)

// How much is measured.
const (
	watchEvents   = 300
	execRounds    = 1000
	forwardedSize = 64 << 20
	forwardRounds = 5
	podName       = "stream"
)

// streamEndpoint is an endpoint with its measurements.
type streamEndpoint struct {
	name string
	// namespace is that of the pod.
	namespace string
	cfg       *rest.Config
	client    *kubernetes.Clientset
	link      int // bytes that its connections transfer a second; 0 means no limit
	events    []time.Duration
	rounds    []time.Duration
	rates     []float64 // MB/s
}

// streams measures streams directly, through a bare httputil.ReverseProxy and through the gateway.
func streams(ctx context.Context, out *report, set *cluster.Set, dir string) error {
	member := set.Cluster("member1")
	direct := member.RESTConfig()
	bare, closeBare, err := reverseProxy(direct, "http/1.1")
	if err != nil {
		return err
	}
	defer closeBare()
	gw, stop, err := gatewayConfig(ctx, filepath.Join(dir, "streams"), member.KubeconfigFile())
	if err != nil {
		return err
	}
	defer stop()
	endpoints := []*streamEndpoint{
		{name: "direct", namespace: "bench", cfg: direct}, {name: "ReverseProxy", namespace: "bench", cfg: bare},
		{name: "gateway", namespace: "bench", cfg: gw},
	}
	for _, w := range endpoints {
		w.cfg.QPS = -1
		if w.client, err = kubernetes.NewForConfig(w.cfg); err != nil {
			return err
		}
	}
	if err := startPod(ctx, endpoints[0].client, "bench"); err != nil {
		return err
	}
	if err := watchDelay(ctx, endpoints); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	if err := execRoundTrips(ctx, endpoints); err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	if err := portForward(ctx, endpoints); err != nil {
		return fmt.Errorf("port-forward: %w", err)
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "\nstreams\twatch event p50 ms\tp95 ms\texec round trip p50 ms\tp95 ms\tport-forward MB/s\t")
	for _, w := range endpoints {
		slices.Sort(w.events)
		slices.Sort(w.rounds)
		_, _ = fmt.Fprintf(tw, "%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.0f\t\n", w.name,
			ms(at(w.events, 0.5)), ms(at(w.events, 0.95)), ms(at(w.rounds, 0.5)), ms(at(w.rounds, 0.95)),
			median(w.rates))
	}
	return tw.Flush()
}

// gatewayConfig starts a gateway and returns a client's configuration for member1 behind it.
func gatewayConfig(
	ctx context.Context, dir, kubeconfig string, configure ...func(*server.Config),
) (*rest.Config, func(), error) {
	_, stop, err := startGateway(ctx, server.Inline, dir, kubeconfig, configure...)
	if err != nil {
		return nil, nil, err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "pass"))
	if err != nil {
		stop()
	}
	return cfg, stop, err
}

func startPod(ctx context.Context, client *kubernetes.Clientset, namespace string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: podName},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "any"}}}}
	_, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) { // another part has started it
		return err
	}
	for range 300 {
		p, err := client.CoreV1().Pods(namespace).Get(ctx, podName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if p.Status.Phase == corev1.PodRunning {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New("the pod does not run")
}

// watchDelay measures the time from the begin of a write until its event, on all endpoints at once.
func watchDelay(ctx context.Context, endpoints []*streamEndpoint) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	maps := endpoints[0].client.CoreV1().ConfigMaps("default")
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "watched"}},
		metav1.CreateOptions{}); err != nil {
		return err
	}
	defer func() { // another part measures events of the same cluster
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, maps.Delete(ctx, "watched", metav1.DeleteOptions{}))
	}()
	type arrival struct {
		at  time.Time
		err error
	}
	arrivals := make([]chan arrival, len(endpoints))
	for i, w := range endpoints {
		watcher, err := w.client.CoreV1().ConfigMaps("default").Watch(ctx,
			metav1.ListOptions{FieldSelector: "metadata.name=watched"})
		if err != nil {
			return err
		}
		defer watcher.Stop()
		arrivals[i] = make(chan arrival, 1)
		go func() {
			for range watcher.ResultChan() {
				arrivals[i] <- arrival{at: time.Now()}
			}
			arrivals[i] <- arrival{err: errors.New("the watch ended")}
		}()
		if a := <-arrivals[i]; a.err != nil { // ADDED
			return a.err
		}
	}
	for n := range watchEvents {
		start := time.Now()
		if _, err := maps.Patch(ctx, "watched", types.MergePatchType, fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n),
			metav1.PatchOptions{}); err != nil {
			return err
		}
		for i, w := range endpoints {
			a := <-arrivals[i]
			if a.err != nil {
				return a.err
			}
			w.events = append(w.events, a.at.Sub(start))
		}
	}
	return nil
}

// execRoundTrips measures the round trip of a byte through cat, interleaved over the endpoints.
func execRoundTrips(ctx context.Context, endpoints []*streamEndpoint) error {
	conns := make([]*websocket.Conn, len(endpoints))
	for i, w := range endpoints {
		conn, err := dialExec(ctx, w, url.Values{"command": {"cat"}, "stdin": {"1"}, "stdout": {"1"}})
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		conns[i] = conn
	}
	for n := range execRounds + 20 {
		for i, w := range endpoints {
			start := time.Now()
			if err := conns[i].WriteMessage(websocket.BinaryMessage, []byte{0, 'x'}); err != nil {
				return err
			}
			for got := false; !got; {
				_, m, err := conns[i].ReadMessage()
				if err != nil {
					return err
				}
				got = bytes.Equal(m, []byte{1, 'x'})
			}
			if n >= 20 { // after the warm-up
				w.rounds = append(w.rounds, time.Since(start))
			}
		}
	}
	return nil
}

// portForward measures the throughput of a forwarded connection from a pod.
func portForward(ctx context.Context, endpoints []*streamEndpoint) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = ln.Close() }()
	go func() {
		block := make([]byte, 1<<20)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for range forwardedSize / len(block) {
					if _, err := c.Write(block); err != nil {
						return
					}
				}
			}()
		}
	}()
	port := ln.Addr().(*net.TCPAddr).Port
	for range forwardRounds {
		for _, w := range endpoints {
			rate, err := forwardOnce(ctx, w, port)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			w.rates = append(w.rates, rate)
		}
	}
	return nil
}

// forwardOnce receives forwardedSize bytes and returns MB/s.
func forwardOnce(ctx context.Context, w *streamEndpoint, port int) (float64, error) {
	u := w.client.CoreV1().RESTClient().Post().Namespace("bench").Resource("pods").Name(podName).SubResource(
		"portforward").URL()
	dialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(u, w.cfg)
	if err != nil {
		return 0, err
	}
	stop, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	pf, err := portforward.NewForStreaming(dialer, []string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard,
		io.Discard)
	if err != nil {
		return 0, err
	}
	go func() { ended <- pf.ForwardPorts() }()
	defer func() { close(stop); <-ended }()
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		return 0, err
	}
	ports, err := pf.GetPorts()
	if err != nil {
		return 0, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	start := time.Now()
	n, err := io.Copy(io.Discard, conn)
	if err == nil && n != forwardedSize {
		err = fmt.Errorf("%d of %d bytes came", n, forwardedSize)
	}
	return float64(n) / 1e6 / time.Since(start).Seconds(), err
}
