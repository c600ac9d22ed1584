package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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

// allClusters is the fleet of all that are registered, as the bridge answers for it.
const allClusters = "/bridge/apis/cluster.karmada.io/v1alpha1/clusters/*/proxy"

// How much is measured.
const (
	listRounds  = 15
	largeRounds = 3
	largePods   = 10_000 // of each of 10 members
	eventTime   = 15 * time.Second
)

// fleet measures lists and watches of many clusters: beside the slowest of them alone, and beside kubectl that asks one after the other.
func fleet(ctx context.Context, out io.Writer, set *cluster.Set, dir string) error {
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
	gw, stop, err := through(ctx, server.Inline, filepath.Join(dir, "fleet-real"), set.KubeconfigFile())
	if err != nil {
		return err
	}
	defer stop()
	one, err := wayOf("direct, one of 2", set.Cluster("member1").RESTConfig())
	if err != nil {
		return err
	}
	all := gw
	root, _, _ := strings.Cut(gw.url, "/clusters/")
	gw.url, all.name, all.url = root+"/clusters/member1", "fleet, both", root+allClusters
	_, _ = fmt.Fprintln(out, "\nThe fleet of 2 real clusters")
	if err := measure(ctx, out, []way{one, all}, []load{
		{name: "LIST of nodes", path: "/api/v1/nodes", rounds: 300, parallel: 1},
		{name: "LIST of 10 MB each", path: "/api/v1/namespaces/bench/configmaps", rounds: 30, parallel: 1},
	}); err != nil {
		return err
	}
	ways := []*streamWay{{name: "direct", cfg: set.Cluster("member1").RESTConfig()}, {name: "gateway, one cluster"},
		{name: "gateway, the fleet"}}
	for i, host := range []string{"", gw.url, all.url} {
		w := ways[i]
		client := one.client
		if host != "" {
			w.cfg, client = &rest.Config{Host: host}, gw.client
		}
		w.cfg.QPS = -1
		if w.client, err = kubernetes.NewForConfigAndClient(w.cfg, client); err != nil {
			return err
		}
	}
	if err := watchDelay(ctx, ways); err != nil {
		return err
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "\nwatch\tevent p50 ms\tp95 ms\t")
	for _, w := range ways {
		slices.Sort(w.events)
		_, _ = fmt.Fprintf(tw, "%s\t%.2f\t%.2f\t\n", w.name, ms(at(w.events, 0.5)), ms(at(w.events, 0.95)))
	}
	return tw.Flush()
}

// farFleet is a gateway in a process of its own, with stand-ins for members.
type farFleet struct {
	gateway *exec.Cmd
	pass    string
	fleet   way   // to all of them
	direct  []way // to each
	slowest way   // to the slowest
	members served
	stop    func()
}

func startFleet(ctx context.Context, s standIns, dir string) (f *farFleet, err error) {
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
	said, stop, err := s.start(ctx)
	if err != nil {
		return nil, err
	}
	f.members, stops = said, append(stops, stop)
	data, err := os.MkdirTemp(dir, "fleet-")
	if err != nil {
		return nil, err
	}
	var pairs []string
	for i, url := range said.URLs {
		pairs = append(pairs, fmt.Sprintf("m%02d", i), url)
	}
	if err := registerStandIns(ctx, data, said.CA, pairs...); err != nil {
		return nil, err
	}
	cmd, cfg, err := startProcess(ctx, data)
	if err != nil {
		return nil, err
	}
	f.gateway, f.pass = cmd, filepath.Join(data, "pass")
	stops = append(stops, func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() })
	root, _, _ := strings.Cut(cfg.Host, "/clusters/")
	if f.fleet, err = wayOf("fleet", cfg); err != nil {
		return nil, err
	}
	f.fleet.url = root + allClusters
	for _, url := range said.URLs {
		if f.slowest, err = wayOf("slowest",
			&rest.Config{Host: url, TLSClientConfig: rest.TLSClientConfig{CAData: said.CA}}); err != nil {
			return nil, err
		}
		f.direct = append(f.direct, f.slowest)
	}
	return f, nil
}

const podsPath = "/api/v1/pods"

// fleetLatency measures lists of 100 pods of each of several members, of which the farthest is 50 ms away.
func fleetLatency(ctx context.Context, out io.Writer, kubectl, dir string) error {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "\nLIST of 100 pods each\tfleet p50 ms\tp95 ms\tslowest alone p50 ms\tratio\tkubectl at the "+
		"fleet ms\tkubectl, one by one ms\t")
	for _, n := range []int{1, 2, 10, 50} {
		if err := fleetLatencyOf(ctx, tw, n, kubectl, dir); err != nil {
			return fmt.Errorf("%d members: %w", n, err)
		}
	}
	return tw.Flush()
}

func fleetLatencyOf(ctx context.Context, tw io.Writer, n int, kubectl, dir string) error {
	f, err := startFleet(ctx, standIns{Members: n, Pods: 100, Delay: 50 * time.Millisecond}, dir)
	if err != nil {
		return err
	}
	defer f.stop()
	took := map[string][]time.Duration{}
	for round := range listRounds + 1 {
		for _, w := range []way{f.fleet, f.slowest} {
			start := time.Now()
			if err := get(ctx, w, podsPath); err != nil {
				return err
			}
			if round > 0 {
				took[w.name] = append(took[w.name], time.Since(start))
			}
		}
	}
	slices.Sort(took["fleet"])
	slices.Sort(took["slowest"])
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
	p50, alone := at(took["fleet"], 0.5), at(took["slowest"], 0.5)
	_, err = fmt.Fprintf(tw, "%d members\t%.1f\t%.1f\t%.1f\t%.2f\t%.0f\t%.0f\t\n", n, ms(p50), ms(at(took["fleet"], 0.95)),
		ms(alone), ms(p50)/ms(alone), ms(atOnce), ms(time.Since(start)))
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

// fleetLarge measures lists of 100,000 pods of 10 members: as fast as they come, which takes the whole machine, and with members whose
// lists come at rates of clusters that are elsewhere.
func fleetLarge(ctx context.Context, out io.Writer, dir string) error {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "\nLIST of 100,000 pods of 10 members\tMB in all\tfleet s\tslowest alone s\tratio\tall at "+
		"once, directly s\tRSS before MB\tpeak MB\tpeak without the program's file MB\tCPU s\t")
	for _, rate := range []int{0, 20 << 20, 8 << 20} {
		if err := fleetLargeOf(ctx, tw, rate, dir); err != nil {
			return err
		}
	}
	return tw.Flush()
}

func fleetLargeOf(ctx context.Context, tw io.Writer, rate int, dir string) error {
	f, err := startFleet(ctx, standIns{Members: 10, Pods: largePods, Delay: 50 * time.Millisecond, Rate: rate}, dir)
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
	if rate > 0 {
		name = fmt.Sprintf("each at %d MB/s", rate>>20)
	}
	_, err = fmt.Fprintf(tw, "%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%d\t%d\t%d\t%.1f\t\n", name, all.size>>20,
		all.took.Seconds(), at(alone, 0.5).Seconds(),
		all.took.Seconds()/at(alone, 0.5).Seconds(), at(together, 0.5).Seconds(), all.before>>10, all.peak>>10,
		(all.peak-all.file)>>10, all.cpu)
	return err
}

// cost is what a large answer costs the gateway.
type cost struct {
	took               time.Duration // median
	size               int64         // bytes
	before, peak, file int           // resident memory, KB; file is that of the program's file
	cpu                float64       // seconds of each answer
}

// cost measures largeRounds answers, of which call reads each and returns its size.
func (f *farFleet) cost(ctx context.Context, call func() (int64, error)) (c cost, err error) {
	pid := f.gateway.Process.Pid
	if err := get(ctx, f.fleet, "/version"); err != nil { // connections are there
		return c, err
	}
	if c.before, err = rss(pid); err != nil {
		return c, err
	}
	if err := forgetPeak(pid); err != nil {
		return c, err
	}
	ticks, err := cpuTicks(pid)
	if err != nil {
		return c, err
	}
	var took []time.Duration
	for range largeRounds {
		start := time.Now()
		if c.size, err = call(); err != nil {
			return c, err
		}
		took = append(took, time.Since(start))
	}
	after, err := cpuTicks(pid)
	if err != nil {
		return c, err
	}
	if c.peak, err = peak(pid); err != nil {
		return c, err
	}
	slices.Sort(took)
	c.took, c.cpu = at(took, 0.5), float64(after-ticks)/ticksPerSecond/largeRounds
	c.file, err = memoryOf(pid, "RssFile:")
	return c, err
}

// fleetLargeWatch measures a watch that begins with all that is there, 100,000 pods of 10 members, beside a list of these.
func fleetLargeWatch(ctx context.Context, out io.Writer, dir string) error {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "\n100,000 pods of 10 members\tMB in all\tuntil all are there s\tRSS before MB\tpeak "+
		"MB\tpeak without the program's file MB\tCPU s\t")
	for _, way := range []struct {
		name string
		read func(ctx context.Context, w way) (int64, error)
	}{{"list", getLarge}, {"watch", watchLarge}} {
		if err := func() error {
			f, err := startFleet(ctx, standIns{Members: 10, Pods: largePods, Delay: 50 * time.Millisecond}, dir)
			if err != nil {
				return err
			}
			defer f.stop()
			c, err := f.cost(ctx, func() (int64, error) { return way.read(ctx, f.fleet) })
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(tw, "%s\t%d\t%.2f\t%d\t%d\t%d\t%.1f\t\n", way.name, c.size>>20, c.took.Seconds(), c.before>>10,
				c.peak>>10, (c.peak-c.file)>>10, c.cpu)
			return err
		}(); err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
	}
	return tw.Flush()
}

// watchLarge watches until all that is there has come, which must be all pods, and returns the size of that.
func watchLarge(ctx context.Context, w way) (size int64, err error) {
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

// getTogether reads the lists of all ways side by side, which no gateway on the same machine can be faster than.
func getTogether(ctx context.Context, ways []way) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, w := range ways {
		g.Go(func() error {
			_, err := getLarge(ctx, w)
			return err
		})
	}
	return g.Wait()
}

// getLarge reads a list and returns its size. It must end as one.
func getLarge(ctx context.Context, w way) (size int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	resp, err := open(ctx, w, podsPath)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	return io.Copy(io.Discard, resp.Body)
}

// open asks for a path. The answer is a good one, and its body is to be closed.
func open(ctx context.Context, w way, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := w.client.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("answer %s", resp.Status)
	}
	return resp, err
}

// fleetEvents measures a watch of 10 members that have 1,000 events a second together.
func fleetEvents(ctx context.Context, out io.Writer, dir string) error {
	f, err := startFleet(ctx, standIns{Members: 10, Events: 100}, dir)
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
	_, _ = fmt.Fprintln(tw, "\nwatch of 10 members\tevents/s\tMB/s\tdelay p50 ms\tp95 ms\tp99 ms\tCPU % of a "+
		"core\tpeak MB\t")
	_, _ = fmt.Fprintf(tw, "100 events/s each\t%.0f\t%.1f\t%.2f\t%.2f\t%.2f\t%.0f\t%d\t\n",
		float64(len(delays))/eventTime.Seconds(), float64(size)/eventTime.Seconds()/(1<<20),
		ms(at(delays, 0.5)), ms(at(delays, 0.95)), ms(at(delays, 0.99)),
		100*float64(after-ticks)/ticksPerSecond/eventTime.Seconds(), most>>10)
	return tw.Flush()
}

// events watches for eventTime and returns how long each event took.
func events(ctx context.Context, w way) (delays []time.Duration, size int, err error) {
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
