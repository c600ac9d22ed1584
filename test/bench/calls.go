package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/test/cluster"
)

// callRounds is the number of interleaved rounds. The table shows their medians.
const callRounds = 7

// proxied is an endpoint with the process whose CPU time is measured. The process of a direct call and of a peer is
// nil.
type proxied struct {
	endpoint
	process *exec.Cmd
}

// callResult is one round of calls to one endpoint.
type callResult struct {
	p50, p99 time.Duration
	rate     float64       // calls a second
	cpu      time.Duration // CPU time of the proxy for each call
}

// restCalls measures calls to one cluster: directly, through bare httputil.ReverseProxies and through the gateway, each
// in a process of its own.
func restCalls(ctx context.Context, out *report, set *cluster.Set, dir string) error {
	return measureCalls(ctx, out, set.Cluster("member1").KubeconfigFile(), nil, dir)
}

func measureCalls(ctx context.Context, out *report, kubeconfig string, peers []peer, dir string) (err error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	direct, err := newEndpoint("direct", cfg)
	if err != nil {
		return err
	}
	endpoints := []*proxied{{endpoint: direct}}
	defer func() {
		for _, p := range endpoints[1:] {
			if p.process == nil {
				continue
			}
			interrupt(p.process)
		}
	}()
	for _, start := range []struct {
		name string
		run  func() (*exec.Cmd, *rest.Config, error)
	}{
		{"ReverseProxy", func() (*exec.Cmd, *rest.Config, error) {
			return startReverseProxy(ctx, kubeconfig, "h2")
		}},
		{"ReverseProxy, HTTP/1.1 upstream", func() (*exec.Cmd, *rest.Config, error) {
			return startReverseProxy(ctx, kubeconfig, "http/1.1")
		}},
		{ofGateway, func() (*exec.Cmd, *rest.Config, error) {
			return startProcess(ctx, filepath.Join(dir, "calls-inline"), "--register="+kubeconfig)
		}},
		{"gateway, functions as processes", func() (*exec.Cmd, *rest.Config, error) {
			return startProcess(ctx, filepath.Join(dir, "calls-process"), "--register="+kubeconfig,
				"--functions="+string(server.Process))
		}},
	} {
		process, cfg, err := start.run()
		if err != nil {
			return fmt.Errorf("%s: %w", start.name, err)
		}
		p := &proxied{process: process}
		endpoints = append(endpoints, p)
		if p.endpoint, err = newEndpoint(start.name, cfg); err != nil {
			return err
		}
	}
	for _, p := range peers {
		e, err := p.endpoint(cfg)
		if err != nil {
			return fmt.Errorf("--peer %s: %w", p.name, err)
		}
		endpoints = append(endpoints, &proxied{endpoint: e})
	}
	loads := []load{
		{name: "GET, 1 caller", path: smallPath, rounds: 1000, parallel: 1},
		{name: "GET, 8 callers", path: smallPath, rounds: 3000, parallel: 8},
		{name: "GET, 64 callers", path: smallPath, rounds: 3000, parallel: 64},
		{name: "GET, 256 callers", path: smallPath, rounds: 3000, parallel: 256},
		{name: "LIST of 10 MB, 1 caller", path: "/api/v1/namespaces/bench/configmaps", rounds: 5, parallel: 1},
	}
	if err := checkEndpoints(ctx, endpoints, loads); err != nil {
		return err
	}
	if err := compareCalls(ctx, out, endpoints, loads); err != nil {
		return err
	}
	for _, smallCalls := range []int{0, firstByteCalls} {
		if err := compareFirstBytes(ctx, out, endpoints, loads[len(loads)-1], smallCalls); err != nil {
			return err
		}
	}
	return nil
}

// smallPath is an object of 0.5 KB.
const smallPath = "/api/v1/namespaces/default"

// checkEndpoints makes one call of each load to each endpoint. It fails if a peer lacks the cluster, or answers with
// something else: the list must have the size that it has directly, within 1 %.
func checkEndpoints(ctx context.Context, endpoints []*proxied, loads []load) error {
	for _, l := range loads {
		var direct int64
		for i, p := range endpoints {
			size, err := read(ctx, p.endpoint, l.path, "")
			if err != nil {
				return fmt.Errorf("%s does not serve %s: %w", p.name, l.path, err)
			}
			if i == 0 {
				direct = size
			}
			if size < direct-direct/100 || size > direct+direct/100 {
				return fmt.Errorf("%s serves %s with %d bytes, and the cluster with %d", p.name, l.path, size, direct)
			}
		}
	}
	return nil
}

const (
	// firstByteRounds is the number of interleaved calls of compareFirstBytes.
	firstByteRounds = 15
	// firstBytePause lets the cluster end a list whose client has gone. It encodes on until it writes.
	firstBytePause = 300 * time.Millisecond
	// firstByteCalls wake up the processes after the pause, which may last longer than the transfer. They also make the
	// gateway open a connection for reads, as for any frequent caller.
	firstByteCalls = 20
)

// compareFirstBytes prints the time until the first byte of a large list, after a pause and small calls to the same
// endpoint. Only with these calls, it has a goal.
func compareFirstBytes(ctx context.Context, out *report, endpoints []*proxied, l load, smallCalls int) error {
	elapsed := make([][]time.Duration, len(endpoints))
	for round := range firstByteRounds {
		for i := range endpoints {
			i = position(round, i, len(endpoints))
			wait(ctx, firstBytePause)
			for range smallCalls {
				if err := get(ctx, endpoints[i].endpoint, smallPath); err != nil {
					return fmt.Errorf("%s: %w", endpoints[i].name, err)
				}
			}
			d, err := firstByte(ctx, endpoints[i].endpoint, l.path)
			if err != nil {
				return fmt.Errorf("%s: %w", endpoints[i].name, err)
			}
			elapsed[i] = append(elapsed[i], d)
		}
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(tw, "\n%s, after %v and %d small calls\tfirst byte p50 ms\t- direct\t\n",
		l.name, firstBytePause, smallCalls)
	for i, p := range endpoints {
		slices.Sort(elapsed[i])
		_, _ = fmt.Fprintf(tw, "%s\t%.1f\t%.1f\t\n", p.name, ms(at(elapsed[i], 0.5)),
			ms(at(elapsed[i], 0.5)-at(elapsed[0], 0.5)))
		if p.name == ofGateway && smallCalls > 0 {
			out.atMost(l.name+": first byte, beyond direct", ms(at(elapsed[i], 0.5)-at(elapsed[0], 0.5)), 1, " ms")
		}
	}
	return tw.Flush()
}

// compareCalls prints a table of interleaved calls. The endpoints are the direct one, two ReverseProxies and others.
func compareCalls(ctx context.Context, out *report, endpoints []*proxied, loads []load) error {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "load\tthrough\tp50 ms\tp99 ms\tcalls/s\tCPU µs\t"+
		"p50 / direct\tp50 / proxy\tp99 / proxy\tcalls/s / proxy\tCPU / proxy\t")
	diagram := plot{title: "Median duration of a call, relative to a bare ReverseProxy"}
	for _, p := range endpoints {
		diagram.endpoints = append(diagram.endpoints, p.name)
	}
	for _, l := range loads {
		results := make([][]callResult, len(endpoints))
		for round := range callRounds + 1 {
			for i := range endpoints {
				at := position(round, i, len(endpoints))
				p := endpoints[at]
				r, err := timeCalls(ctx, p, l)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", l.name, p.name, err)
				}
				if round > 0 { // the first one warms up
					results[at] = append(results[at], r)
				}
			}
		}
		diagram.loads = append(diagram.loads, l.name)
		diagram.ratios = append(diagram.ratios, nil)
		for i, p := range endpoints {
			one := func(f func(callResult) float64) float64 { return medianOf(results[i], f) }
			over := func(base int, f func(callResult) float64) float64 { return one(f) / medianOf(results[base], f) }
			p50 := func(r callResult) float64 { return ms(r.p50) }
			p99 := func(r callResult) float64 { return ms(r.p99) }
			rate := func(r callResult) float64 { return r.rate }
			cpu := func(r callResult) float64 { return float64(r.cpu.Microseconds()) }
			last := &diagram.ratios[len(diagram.ratios)-1]
			*last = append(*last, over(1, p50))
			if p.name == ofGateway {
				callGoals(out, l, over(1, p50), over(1, p99), over(1, rate), over(1, cpu))
				if strings.HasPrefix(l.name, "LIST") { // whose faster proxy is the other one
					out.atMost(l.name+": p50 / proxy by HTTP/1.1", over(2, p50), 1.05, "")
				}
			}
			used, usedOverProxy := "-", "-" // for servers that this program did not start
			if p.process != nil {
				used, usedOverProxy = fmt.Sprintf("%.0f", one(cpu)), fmt.Sprintf("%.2f", over(1, cpu))
			}
			_, _ = fmt.Fprintf(tw, "%s\t%s\t%.2f\t%.2f\t%.0f\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%s\t\n", l.name, p.name,
				one(p50), one(p99), one(rate), used, over(0, p50), over(1, p50), over(1, p99), over(1, rate), usedOverProxy)
		}
	}
	out.current().plot = &diagram
	return tw.Flush()
}

// position returns the i-th of n endpoints in a round. None always follows the same other one.
func position(round, i, n int) int {
	at := (i + round) % n
	if round%2 == 1 {
		at = n - 1 - at
	}
	return at
}

// callGoals adds the goals of a load. The figures are relative to the bare ReverseProxy. For a list, only p50 has one.
func callGoals(out *report, l load, p50, p99, rate, cpu float64) {
	out.atMost(l.name+": p50 / proxy", p50, 1.05, "")
	if strings.HasPrefix(l.name, "LIST") {
		return
	}
	out.atMost(l.name+": p99 / proxy", p99, 1.2, "")
	out.atLeast(l.name+": calls/s / proxy", rate, 0.95, "")
	out.atMost(l.name+": CPU / proxy", cpu, 1.05, "")
}

// timeCalls makes the calls of one round.
func timeCalls(ctx context.Context, p *proxied, l load) (callResult, error) {
	before, err := p.cpuTime()
	if err != nil {
		return callResult{}, err
	}
	start := time.Now()
	times, err := calls(ctx, p.endpoint, l, l.rounds)
	if err != nil {
		return callResult{}, err
	}
	wall := time.Since(start)
	after, err := p.cpuTime()
	slices.Sort(times)
	return callResult{
		p50: at(times, 0.5), p99: at(times, 0.99), rate: float64(len(times)) / wall.Seconds(),
		cpu: (after - before) / time.Duration(len(times)),
	}, err
}

func (p *proxied) cpuTime() (time.Duration, error) {
	if p.process == nil {
		return 0, nil
	}
	var sum time.Duration
	pids, err := descendants(p.process.Process.Pid)
	for _, pid := range pids {
		one, cpuErr := cpuTime(pid)
		if cpuErr != nil && errors.Is(cpuErr, os.ErrNotExist) {
			continue // a function that ended
		}
		err = errors.Join(err, cpuErr)
		sum += one
	}
	return sum, err
}

// medianOf returns the median of one value of the results.
func medianOf[R any](results []R, value func(R) float64) float64 {
	values := make([]float64, len(results))
	for i, r := range results {
		values[i] = value(r)
	}
	return median(values)
}

// median sorts values and returns the middle one.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// newEndpoint returns an endpoint whose connections suffice for all parallel calls. Of cfg, it uses the server, TLS,
// the credential, Dial and DisableCompression.
func newEndpoint(name string, cfg *rest.Config) (endpoint, error) {
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return endpoint{}, err
	}
	transport := &http.Transport{DialContext: cfg.Dial, TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: 1000, DisableCompression: cfg.DisableCompression}
	wrapped, err := rest.HTTPWrappersForConfig(cfg, transport)
	return endpoint{name: name, client: &http.Client{Transport: wrapped}, url: cfg.Host}, err
}
