package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/test/cluster"
)

// endpoint is a server that reaches the cluster: the cluster itself or a gateway.
type endpoint struct {
	name   string
	client *http.Client
	url    string
	// reset closes connections and clears caches, so that the next call is the first one.
	reset func() error
}

// load is one call that is measured.
type load struct {
	name, path string
	rounds     int
	parallel   int
	cold       bool // resets the endpoint before each call
}

// part is a measurement that prints one or more tables, and may add goals.
type part struct {
	name    string
	measure func(ctx context.Context, out *report, set *cluster.Set, dir string) error
	isAlone bool // runs without real clusters, which would need CPU time, before them; set is nil
}

// allParts returns the parts. hammerRate is an argument of hang, and watch of churn.
func allParts(hammerRate int, watch churnOptions) []part {
	hangs := func(ctx context.Context, out *report, set *cluster.Set, dir string) error {
		return hang(ctx, out, set, dir, hammerRate)
	}
	watches := func(ctx context.Context, out *report, set *cluster.Set, dir string) error {
		return measureChurn(ctx, out, set, dir, watch)
	}
	return []part{
		{"coldstart", coldStarts, true}, {"idle", idle, true}, {"far", far, true},
		{"hang", hangs, false}, {"calls", restCalls, false}, {"warm", warm, false}, {"aws", onAWS, false},
		{"streams", streams, false}, {"recordings", recordings, false}, {"fleet", fleet, false}, {"gzip", compressed, false},
		{"private", private, false}, {"churn", watches, false}, {"scale", scale, false},
	}
}

// partNames returns the parts in the order of a page.
func partNames() (names []string) {
	for _, p := range allParts(0, churnOptions{}) {
		names = append(names, p.name)
	}
	return append(names, peersSection)
}

// run measures the named parts, or all.
func run(ctx context.Context, out *report, names []string, hammerRate int, watch churnOptions) (err error) {
	parts := allParts(hammerRate, watch)
	for _, name := range names {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return fmt.Errorf("there is no part %q", name)
		}
	}
	dir, err := os.MkdirTemp("", "clusterpass-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var (
		set    *cluster.Set
		failed error
	)
	for _, p := range parts {
		if len(names) > 0 && !slices.Contains(names, p.name) {
			continue
		}
		if set == nil && !p.isAlone {
			if set, err = startClusters(ctx); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, set.Stop()) }()
			if out.kubernetes, err = kubernetesOf(set.Cluster("member1").RESTConfig()); err != nil {
				return err
			}
		}
		measure := func() error { return p.measure(ctx, out, set, dir) }
		if partErr := out.measure(p.name, measure); partErr != nil { // the others are measured, too
			failed = errors.Join(failed, fmt.Errorf("%s: %w", p.name, partErr))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return failed
}

// startClusters starts three real clusters. The caller stops them.
func startClusters(ctx context.Context) (*cluster.Set, error) {
	set, err := cluster.New(ctx, cluster.Options{Clusters: []string{"member1", "member2", "member3"}, Progress: os.Stderr})
	if err != nil {
		return nil, err
	}
	for _, c := range set.Clusters() {
		if err := fill(ctx, c.RESTConfig()); err != nil {
			return nil, errors.Join(err, set.Stop())
		}
	}
	return set, nil
}

// kubernetesOf returns the version of a cluster.
func kubernetesOf(cfg *rest.Config) (string, error) {
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return "", err
	}
	version, err := client.ServerVersion()
	if err != nil {
		return "", err
	}
	return version.GitVersion, nil
}

// fill creates a namespace whose ConfigMaps are a list of 10 MB.
func fill(ctx context.Context, cfg *rest.Config) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	if err := createNamespace(ctx, client, "bench"); err != nil {
		return err
	}
	if err := createConfigMaps(ctx, client); err != nil {
		return errors.Join(err, empty(context.WithoutCancel(ctx), cfg))
	}
	return nil
}

func createNamespace(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	return err
}

func createConfigMaps(ctx context.Context, client kubernetes.Interface) error {
	random := make([]byte, 50_000)
	for i := range 100 {
		_, _ = rand.Read(random) // never fails
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i)},
			Data: map[string]string{"a": hex.EncodeToString(random)}}
		if _, err := client.CoreV1().ConfigMaps("bench").Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// empty deletes what fill created.
func empty(ctx context.Context, cfg *rest.Config) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	return client.CoreV1().Namespaces().Delete(ctx, "bench", metav1.DeleteOptions{})
}

// startGateway starts a gateway and returns its endpoint.
func startGateway(
	ctx context.Context, mode server.Mode, dir, kubeconfig string, configure ...func(*server.Config),
) (endpoint, func(), error) {
	// make builds the functions and runs bench in the root of the checkout.
	functions, err := filepath.Abs("dist/local/functions")
	if err != nil {
		return endpoint{}, nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return endpoint{}, nil, err
	}
	cfg := &server.Config{
		Listen: "127.0.0.1:0", Data: filepath.Join(dir, "data"), Functions: mode, FunctionsDir: functions,
		Kubeconfig: filepath.Join(dir, "pass"), Register: kubeconfig, DrainTimeout: time.Second,
		Shared: assembly.Shared{LogLevel: slog.LevelError},
	}
	for _, fn := range configure {
		fn(cfg)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended, ready := make(chan error, 1), make(chan struct{})
	go func() { ended <- server.Run(ctx, cfg, server.Output{Progress: io.Discard}, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-ended:
		cancel()
		return endpoint{}, nil, err
	}
	stop := func() { cancel(); <-ended }
	rc, err := clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	if err != nil {
		stop()
		return endpoint{}, nil, err
	}
	w, err := newEndpoint("functions "+string(mode), rc)
	return w, stop, err
}

// measure makes the calls of all endpoints, interleaved, and prints their durations.
func measure(ctx context.Context, out io.Writer, endpoints []endpoint, loads []load) error {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "load\tthrough\tp50 ms\tp95 ms\tcalls/s\tp50 / direct\t")
	for _, l := range loads {
		elapsed := make([][]time.Duration, len(endpoints))
		wall := make([]time.Duration, len(endpoints))
		const repetitions = 10 // interleaving spreads noise of the machine over all endpoints
		for repetition := range repetitions + 1 {
			for i, w := range endpoints {
				n := l.rounds / repetitions
				if repetition == 0 {
					n = max(l.parallel, n/10) // warm up
				}
				start := time.Now()
				times, err := calls(ctx, w, l, n)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", l.name, w.name, err)
				}
				if repetition > 0 {
					elapsed[i] = append(elapsed[i], times...)
					wall[i] += time.Since(start)
				}
			}
		}
		for i, w := range endpoints {
			slices.Sort(elapsed[i])
			_, _ = fmt.Fprintf(tw, "%s\t%s\t%.2f\t%.2f\t%.0f\t%.2f\t\n", l.name, w.name,
				ms(at(elapsed[i], 0.5)), ms(at(elapsed[i], 0.95)), float64(len(elapsed[i]))/wall[i].Seconds(),
				ms(at(elapsed[i], 0.5))/ms(at(elapsed[0], 0.5)))
		}
	}
	return tw.Flush()
}

func at(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// calls makes n calls, l.parallel at a time.
func calls(ctx context.Context, w endpoint, l load, n int) ([]time.Duration, error) {
	var (
		mu    sync.Mutex
		times []time.Duration
		fail  error
		wg    sync.WaitGroup
		todo  = make(chan struct{}, n)
	)
	for range n {
		todo <- struct{}{}
	}
	close(todo)
	for range l.parallel {
		wg.Go(func() {
			for range todo {
				var err error
				if l.cold {
					err = w.reset()
				}
				start := time.Now()
				if err == nil {
					err = get(ctx, w, l.path)
				}
				d := time.Since(start)
				mu.Lock()
				times = append(times, d)
				fail = errors.Join(fail, err)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return times, fail
}

func get(ctx context.Context, w endpoint, path string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, nil)
	if err != nil {
		return err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("answer %s of %d bytes", resp.Status, n)
	}
	return err
}

// firstByte returns the time until the first byte of a response's body.
func firstByte(ctx context.Context, w endpoint, path string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	start := time.Now()
	resp, err := open(ctx, w, path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.ReadFull(resp.Body, make([]byte, 1))
	return time.Since(start), err
}

// open calls a path and fails unless the response is 200. The caller closes the body.
func open(ctx context.Context, w endpoint, path string) (*http.Response, error) {
	return openAs(ctx, w, path, "")
}

// openAs is open with an Accept header, if accept is not empty.
func openAs(ctx context.Context, w endpoint, path, accept string) (*http.Response, error) {
	return openWith(ctx, w, path, accepting(accept))
}

func accepting(mediaType string) http.Header {
	header := http.Header{}
	if mediaType != "" {
		header.Set("Accept", mediaType)
	}
	return header
}

// openWith is open with a header.
func openWith(ctx context.Context, w endpoint, path string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header = header
	resp, err := w.client.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("answer %s", resp.Status)
	}
	return resp, err
}

// read reads a response and returns its size.
func read(ctx context.Context, w endpoint, path, accept string) (int64, error) {
	return readWith(ctx, w, path, accepting(accept))
}

// readEncoded reads a list that is sent with an encoding, and returns its size as it was sent.
func readEncoded(ctx context.Context, w endpoint, path, encoding string) (int64, error) {
	return readWith(ctx, w, path, http.Header{"Accept-Encoding": {encoding}, "Accept": {"application/json"}})
}

func readWith(ctx context.Context, w endpoint, path string, header http.Header) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	resp, err := openWith(ctx, w, path, header)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	return io.Copy(io.Discard, resp.Body)
}
