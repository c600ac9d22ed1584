package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/test/cluster"
)

// allClusters is the path of the fleet of all registered clusters at the bridge.
const allClusters = "/bridge/apis/cluster.karmada.io/v1alpha1/clusters/*/proxy"

// How much is measured.
const (
	listRounds  = 15
	largeRounds = 3
	largePods   = 10_000 // of each of 10 members
	eventTime   = 15 * time.Second
)

// fleet measures lists and watches of many clusters. The references are the slowest cluster alone, and kubectl that
// calls one cluster after the other.
func fleet(ctx context.Context, out *report, set *cluster.Set, dir string) error {
	if err := realFleet(ctx, out, set, dir); err != nil {
		return fmt.Errorf("real clusters: %w", err)
	}
	if err := fleetLatency(ctx, out, set.Kubectl(), dir); err != nil {
		return fmt.Errorf("latency: %w", err)
	}
	if err := fleetLarge(ctx, out, dir); err != nil {
		return fmt.Errorf("large lists: %w", err)
	}
	if err := fleetLargeWatch(ctx, out, dir); err != nil {
		return fmt.Errorf("large watches: %w", err)
	}
	return fleetEvents(ctx, out, dir)
}

// realFleet measures two real clusters.
func realFleet(ctx context.Context, out io.Writer, set *cluster.Set, dir string) error {
	gw, stop, err := startGateway(ctx, server.Inline, filepath.Join(dir, "fleet-real"), set.KubeconfigFile())
	if err != nil {
		return err
	}
	defer stop()
	one, err := newEndpoint("direct, one of 2", set.Cluster("member1").RESTConfig())
	if err != nil {
		return err
	}
	all := gw
	root, _, _ := strings.Cut(gw.url, "/clusters/")
	gw.url, all.name, all.url = root+"/clusters/member1", "fleet, both", root+allClusters
	_, _ = fmt.Fprintln(out, "\nThe fleet of 2 real clusters")
	if err := measure(ctx, out, []endpoint{one, all}, []load{
		{name: "LIST of nodes", path: "/api/v1/nodes", rounds: 300, parallel: 1},
		{name: "LIST of 10 MB each", path: "/api/v1/namespaces/bench/configmaps", rounds: 30, parallel: 1},
	}); err != nil {
		return err
	}
	endpoints := []*streamEndpoint{{name: "direct", cfg: set.Cluster("member1").RESTConfig()},
		{name: "gateway, one cluster"},
		{name: "gateway, the fleet"}}
	for i, host := range []string{"", gw.url, all.url} {
		w := endpoints[i]
		client := one.client
		if host != "" {
			w.cfg, client = &rest.Config{Host: host}, gw.client
		}
		w.cfg.QPS = -1
		if w.client, err = kubernetes.NewForConfigAndClient(w.cfg, client); err != nil {
			return err
		}
	}
	if err := watchDelay(ctx, endpoints); err != nil {
		return err
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "\nwatch\tevent p50 ms\tp95 ms\t")
	for _, w := range endpoints {
		slices.Sort(w.events)
		_, _ = fmt.Fprintf(tw, "%s\t%.2f\t%.2f\t\n", w.name, ms(at(w.events, 0.5)), ms(at(w.events, 0.95)))
	}
	return tw.Flush()
}

// farFleet is a gateway in its own process, with stand-ins for members.
type farFleet struct {
	gateway *exec.Cmd
	pass    string
	fleet   endpoint   // all members
	direct  []endpoint // each member
	slowest endpoint   // the slowest member
	members served
	stop    func()
}

// startFleet starts a fleet. prepare, if not nil, changes the stores in a directory before the gateway starts.
func startFleet(
	ctx context.Context, s standIns, dir string, prepare func(ctx context.Context, data string) error,
) (f *farFleet, err error) {
	f = &farFleet{}
	var stops []func()
	f.stop = func() {
		for _, stop := range slices.Backward(stops) {
			stop()
		}
	}
	defer func() {
		if err != nil {
			f.stop()
		}
	}()
	info, stop, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	f.members, stops = info, append(stops, stop)
	data, err := os.MkdirTemp(dir, "fleet-")
	if err != nil {
		return nil, err
	}
	var pairs []string
	for i, url := range info.URLs {
		pairs = append(pairs, fmt.Sprintf("m%02d", i), url)
	}
	if err := registerStandIns(ctx, data, info.CA, pairs...); err != nil {
		return nil, err
	}
	if prepare != nil {
		if err := prepare(ctx, data); err != nil {
			return nil, err
		}
	}
	cmd, cfg, err := startProcess(ctx, data)
	if err != nil {
		return nil, err
	}
	f.gateway, f.pass = cmd, filepath.Join(data, "pass")
	stops = append(stops, func() { interrupt(cmd) })
	root, _, _ := strings.Cut(cfg.Host, "/clusters/")
	cfg.DisableCompression = true // the stand-ins do not compress, either
	if f.fleet, err = newEndpoint("fleet", cfg); err != nil {
		return nil, err
	}
	f.fleet.url = root + allClusters
	for _, url := range info.URLs {
		if f.slowest, err = newEndpoint("slowest",
			&rest.Config{Host: url, TLSClientConfig: rest.TLSClientConfig{CAData: info.CA}}); err != nil {
			return nil, err
		}
		f.direct = append(f.direct, f.slowest)
	}
	return f, nil
}

const podsPath = "/api/v1/pods"

// fleetLatency measures lists of 100 pods of each of several members. The round trip to the slowest member
// lasts 50 ms.
func fleetLatency(ctx context.Context, out io.Writer, kubectl, dir string) error {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "\nLIST of 100 pods each\tMiB in all\tfleet p50 ms\tp95 ms\tslowest alone p50 ms\tratio\t"+
		"CPU ms of the gateway\tbusy % of the machine\tkubectl at the fleet ms\tkubectl, one by one ms\t")
	for _, n := range []int{1, 2, 10, 50} {
		if err := fleetLatencyOf(ctx, tw, n, kubectl, dir); err != nil {
			return fmt.Errorf("%d members: %w", n, err)
		}
	}
	return tw.Flush()
}

func fleetLatencyOf(ctx context.Context, tw io.Writer, n int, kubectl, dir string) error {
	f, err := startFleet(ctx, standIns{Members: n, Pods: 100, Delay: 50 * time.Millisecond}, dir, nil)
	if err != nil {
		return err
	}
	defer f.stop()
	lists, err := f.compareLists(ctx, listRounds)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := raw(ctx, kubectl, "--kubeconfig", f.pass, "--server", strings.TrimSuffix(f.fleet.url, allClusters), "get",
		"--raw", allClusters+podsPath); err != nil {
		return err
	}
	atOnce := time.Since(start)
	start = time.Now()
	for _, url := range f.members.URLs {
		if err := raw(ctx, kubectl, "--kubeconfig", os.DevNull, "--server", url, "--token=any", "--insecure-skip-tls-verify",
			"get", "--raw", podsPath); err != nil {
			return err
		}
	}
	p50, alone := at(lists.fleet, 0.5), at(lists.slowest, 0.5)
	_, err = fmt.Fprintf(tw, "%d members\t%d\t%.1f\t%.1f\t%.1f\t%.2f\t%.0f\t%.0f\t%.0f\t%.0f\t\n", n, lists.size>>20,
		ms(p50), ms(at(lists.fleet, 0.95)), ms(alone), ms(p50)/ms(alone), ms(lists.gateway), lists.busy, ms(atOnce),
		ms(time.Since(start)))
	return err
}

func raw(ctx context.Context, kubectl string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, kubectl, args...).Output()
	if err == nil && !strings.Contains(string(out), `"items"`) {
		err = errors.New("kubectl printed no list")
	}
	return err
}

// fleetLarge measures lists of 100,000 pods of 10 members. First the members are as fast as possible, which uses the
// whole machine. Then they send at the rates of remote clusters.
func fleetLarge(ctx context.Context, out *report, dir string) error {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "\nLIST of 100,000 pods of 10 members\tMiB in all\tfleet s\tslowest alone s\tratio\tall at "+
		"once, directly s\tRSS before MiB\tpeak MiB\tpeak without the program's file MiB\tCPU s\t")
	for _, rate := range []int{0, 20 << 20, 8 << 20} {
		if err := fleetLargeOf(ctx, out, tw, rate, dir); err != nil {
			return err
		}
	}
	return tw.Flush()
}

func fleetLargeOf(ctx context.Context, goals *report, tw io.Writer, rate int, dir string) error {
	f, err := startFleet(ctx, standIns{Members: 10, Pods: largePods, Delay: 50 * time.Millisecond, Rate: rate}, dir, nil)
	if err != nil {
		return err
	}
	defer f.stop()
	all, err := f.cost(ctx, func() (int64, error) { return getLarge(ctx, f.fleet) })
	if err != nil {
		return err
	}
	var alone, together []time.Duration
	for range largeRounds {
		start := time.Now()
		if _, err := getLarge(ctx, f.slowest); err != nil {
			return err
		}
		alone = append(alone, time.Since(start))
		start = time.Now()
		if err := getTogether(ctx, f.direct); err != nil {
			return err
		}
		together = append(together, time.Since(start))
	}
	slices.Sort(alone)
	slices.Sort(together)
	name := "as fast as they come"
	if rate == 0 {
		goals.atMost("list of 100,000 pods of 10 clusters: memory without the program's file",
			float64(all.peak-all.file)/1024, 64, " MiB")
	} else {
		name = fmt.Sprintf("each at %d MiB/s", rate>>20)
	}
	_, err = fmt.Fprintf(tw, "%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%d\t%d\t%d\t%.1f\t\n", name, all.size>>20,
		all.elapsed.Seconds(), at(alone, 0.5).Seconds(),
		all.elapsed.Seconds()/at(alone, 0.5).Seconds(), at(together, 0.5).Seconds(), all.before>>10, all.peak>>10,
		(all.peak-all.file)>>10, all.cpu)
	return err
}

// cost is the time and the memory of the gateway for a large response.
type cost struct {
	elapsed            time.Duration // median
	size               int64         // bytes
	before, peak, file int           // resident memory, KB; file is that of the program's file
	cpu                float64       // seconds for each response
}

// cost measures largeRounds responses. call reads a response and returns its size.
func (f *farFleet) cost(ctx context.Context, call func() (int64, error)) (c cost, err error) {
	pid := f.gateway.Process.Pid
	if err := get(ctx, f.fleet, "/version"); err != nil { // opens connections
		return c, err
	}
	if c.before, err = rss(pid); err != nil {
		return c, err
	}
	if err := resetPeak(pid); err != nil {
		return c, err
	}
	ticks, err := cpuTicks(pid)
	if err != nil {
		return c, err
	}
	var elapsed []time.Duration
	for range largeRounds {
		start := time.Now()
		if c.size, err = call(); err != nil {
			return c, err
		}
		elapsed = append(elapsed, time.Since(start))
	}
	after, err := cpuTicks(pid)
	if err != nil {
		return c, err
	}
	if c.peak, err = peak(pid); err != nil {
		return c, err
	}
	slices.Sort(elapsed)
	c.elapsed, c.cpu = at(elapsed, 0.5), float64(after-ticks)/ticksPerSecond/largeRounds
	c.file, err = memoryOf(pid, "RssFile:")
	return c, err
}

// fleetLargeWatch measures the initial events of a watch of 100,000 pods of 10 members, and a list of the same pods.
func fleetLargeWatch(ctx context.Context, out io.Writer, dir string) error {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "\n100,000 pods of 10 members\tMiB in all\tuntil all are there s\tRSS before MiB\tpeak "+
		"MiB\tpeak without the program's file MiB\tCPU s\t")
	for _, endpoint := range []struct {
		name string
		read func(ctx context.Context, w endpoint) (int64, error)
	}{{"list", getLarge}, {"watch", watchLarge}} {
		if err := func() error {
			f, err := startFleet(ctx, standIns{Members: 10, Pods: largePods, Delay: 50 * time.Millisecond}, dir, nil)
			if err != nil {
				return err
			}
			defer f.stop()
			c, err := f.cost(ctx, func() (int64, error) { return endpoint.read(ctx, f.fleet) })
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(tw, "%s\t%d\t%.2f\t%d\t%d\t%d\t%.1f\t\n", endpoint.name, c.size>>20, c.elapsed.Seconds(),
				c.before>>10,
				c.peak>>10, (c.peak-c.file)>>10, c.cpu)
			return err
		}(); err != nil {
			return fmt.Errorf("%s: %w", endpoint.name, err)
		}
	}
	return tw.Flush()
}

// watchLarge reads the initial events of a watch, which must be all pods, and returns their size.
func watchLarge(ctx context.Context, w endpoint) (size int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	resp, err := open(ctx, w, podsPath+
		"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	for added := 0; lines.Scan(); {
		line := lines.Bytes()
		size += int64(len(line)) + 1
		if bytes.HasPrefix(line, []byte(`{"type":"ADDED"`)) {
			added++
		} else if added == 10*largePods && bytes.Contains(line, []byte(`"k8s.io/initial-events-end":"true"`)) {
			return size, nil
		} else {
			return 0, fmt.Errorf("after %d pods: %.200s", added, line)
		}
	}
	return 0, errors.Join(errors.New("the watch ended"), lines.Err())
}

// getTogether reads the lists of all endpoints in parallel. No gateway on the same machine can be faster.
func getTogether(ctx context.Context, endpoints []endpoint) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, w := range endpoints {
		g.Go(func() error {
			_, err := getLarge(ctx, w)
			return err
		})
	}
	return g.Wait()
}

// getLarge reads a list and returns its size.
func getLarge(ctx context.Context, w endpoint) (size int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	resp, err := open(ctx, w, podsPath)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	return io.Copy(io.Discard, resp.Body)
}

// fleetEvents measures a watch of 10 members with 1,000 events a second in total.
func fleetEvents(ctx context.Context, out io.Writer, dir string) error {
	f, err := startFleet(ctx, standIns{Members: 10, Events: 100}, dir, nil)
	if err != nil {
		return err
	}
	defer f.stop()
	pid := f.gateway.Process.Pid
	ticks, err := cpuTicks(pid)
	if err != nil {
		return err
	}
	delays, size, err := events(ctx, f.fleet)
	if err != nil {
		return err
	}
	after, err := cpuTicks(pid)
	if err != nil {
		return err
	}
	most, err := peak(pid)
	if err != nil {
		return err
	}
	slices.Sort(delays)
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "\nwatch of 10 members\tevents/s\tMiB/s\tdelay p50 ms\tp95 ms\tp99 ms\tCPU % of a "+
		"core\tpeak MiB\t")
	_, _ = fmt.Fprintf(tw, "100 events/s each\t%.0f\t%.1f\t%.2f\t%.2f\t%.2f\t%.0f\t%d\t\n",
		float64(len(delays))/eventTime.Seconds(), float64(size)/eventTime.Seconds()/(1<<20),
		ms(at(delays, 0.5)), ms(at(delays, 0.95)), ms(at(delays, 0.99)),
		100*float64(after-ticks)/ticksPerSecond/eventTime.Seconds(), most>>10)
	return tw.Flush()
}

// events watches for eventTime and returns the delay of each event.
func events(ctx context.Context, w endpoint) (delays []time.Duration, size int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*eventTime)
	defer cancel()
	resp, err := open(ctx, w, podsPath+"?watch=1")
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	for end := time.Now().Add(eventTime); time.Now().Before(end) && lines.Scan(); size += len(lines.Bytes()) {
		var e struct {
			Type   string
			Object struct {
				Metadata struct{ Annotations struct{ Sent string } }
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, 0, err
		}
		sent, err := strconv.ParseInt(e.Object.Metadata.Annotations.Sent, 10, 64)
		if err != nil || e.Type != "MODIFIED" {
			return nil, 0, fmt.Errorf("an event %.200s", lines.Bytes())
		}
		delays = append(delays, time.Since(time.Unix(0, sent)))
	}
	if len(delays) == 0 {
		return nil, 0, errors.Join(errors.New("no events"), lines.Err())
	}
	return delays, size, nil
}
