package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/api/search/v1alpha1"
	memberpkg "github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/registration"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/test/cluster"
)

// The fleet of scale: a million pods of 4 KB.
const (
	scaleMembers  = 500
	scalePods     = 2000 // of each member
	scaleDistinct = 10   // recordings
	realClusters  = 3    // beside them
)

// scale measures a fleet of 500 clusters with a million pods, beside the real clusters of set. The 500 are stand-ins
// that serve recordings, because real ones would need more than one machine. A bare ReverseProxy copies as many lists
// of one of them.
func scale(ctx context.Context, out *report, set *cluster.Set, dir string) error {
	openAPI := filepath.Join(dir, "openapi.json")
	if err := recordOpenAPI(ctx, set.Cluster("member1").RESTConfig(), openAPI); err != nil {
		return err
	}
	f, err := startScaleFleet(ctx, set, dir, standIns{Members: scaleMembers, Pods: scalePods, Events: 1, OpenAPI: openAPI})
	if err != nil {
		return err
	}
	defer f.stop()
	kubectlPage := func(ctx context.Context, out *report, f *scaleFleet) error {
		return scaleKubectl(ctx, out, f, set.BuiltKubectl(), dir)
	}
	for _, measure := range []func(context.Context, *report, *scaleFleet) error{
		scaleDiscovery, scaleFirstPage, kubectlPage, scaleLists, scaleCompressed,
	} {
		if err := measure(ctx, out, f); err != nil {
			return err
		}
	}
	return nil
}

// recordOpenAPI writes the OpenAPI of apps/v1, one of the largest documents of a cluster, to a file.
func recordOpenAPI(ctx context.Context, cfg *rest.Config, file string) error {
	e, err := newEndpoint("direct", cfg)
	if err != nil {
		return err
	}
	resp, err := openAs(ctx, e, "/openapi/v3/apis/apps/v1", "application/json")
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	document, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	return os.WriteFile(file, document, 0o600)
}

// scaleFleet is a gateway before the stand-ins, and a bare proxy to one of them.
type scaleFleet struct {
	*farFleet
	plain, qualified endpoint // /fleet and /fleet/@
	proxy            proxied
}

func startScaleFleet(ctx context.Context, set *cluster.Set, dir string, s standIns) (*scaleFleet, error) {
	s.Recorded = scaleDistinct
	members, err := startFleet(ctx, s, dir, func(ctx context.Context, data string) error {
		return errors.Join(coverEverything(ctx, data), registerReal(ctx, data, set))
	})
	if err != nil {
		return nil, err
	}
	f := &scaleFleet{farFleet: members, plain: members.fleet, qualified: members.fleet}
	root := strings.TrimSuffix(members.fleet.url, allClusters)
	f.plain.name, f.plain.url = "/fleet", root+"/bridge/fleet"
	f.qualified.name, f.qualified.url = "/fleet/@", root+"/bridge/fleet/@"
	process, cfg, err := startReverseProxy(ctx, members.members.URLs[0], "h2")
	if err != nil {
		f.stop()
		return nil, err
	}
	stop := f.stop
	f.stop = func() {
		interrupt(process)
		stop()
	}
	f.proxy.process = process
	if f.proxy.endpoint, err = newEndpoint("ReverseProxy", cfg); err != nil {
		f.stop()
	}
	return f, err
}

// registerReal registers the real clusters, unless set is nil.
func registerReal(ctx context.Context, data string, set *cluster.Set) error {
	if set == nil {
		return nil
	}
	st, err := stores.Open(ctx, stores.Address{Kind: "dir", Where: data})
	if err != nil {
		return err
	}
	r := registration.Registrar{Secrets: st.Secrets, Objects: st.Objects,
		Policy: memberpkg.DialPolicy{AllowLoopback: true}}
	for _, c := range set.Clusters() {
		if _, err := r.Register(ctx, registration.Request{
			Name: c.Name(), Kubeconfig: secrets.NewValue(c.Kubeconfig()), Identity: clusterv1alpha1.Impersonate,
		}); err != nil {
			return err
		}
	}
	return nil
}

// coverEverything adds a ResourceRegistry that covers all kinds of all clusters.
func coverEverything(ctx context.Context, data string) error {
	st, err := stores.Open(ctx, stores.Address{Kind: "dir", Where: data})
	if err != nil {
		return err
	}
	r := v1alpha1.ResourceRegistry{Spec: v1alpha1.ResourceRegistrySpec{
		ResourceSelectors: []v1alpha1.ResourceSelector{{APIVersion: "*", Kind: "*"}},
	}}
	r.APIVersion, r.Kind, r.Name = v1alpha1.APIVersion, "ResourceRegistry", "all"
	value, err := json.Marshal(r)
	if err == nil {
		_, err = st.Objects.Create(ctx, v1alpha1.Prefix+r.Name, value)
	}
	return err
}

const aggregatedAccept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// scaleDiscovery measures what kubectl reads at its start.
func scaleDiscovery(ctx context.Context, out *report, f *scaleFleet) error {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(tw, "\ndiscovery of %d clusters\tKiB\tfirst ms\tlater ms, p50\t\n", scaleMembers+realClusters)
	var cold, warm float64
	for _, path := range []string{"/api", "/apis", "/openapi/v3", "/openapi/v3/apis/g00.example.com/v1"} {
		var size int64
		var elapsed []time.Duration
		for range 11 {
			start := time.Now()
			var err error
			if size, err = read(ctx, f.plain, path, aggregatedAccept); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			elapsed = append(elapsed, time.Since(start))
		}
		first := elapsed[0]
		slices.Sort(elapsed[1:])
		cold, warm = cold+ms(first), max(warm, ms(at(elapsed[1:], 0.5)))
		_, _ = fmt.Fprintf(tw, "%s\t%d\t%.0f\t%.1f\t\n", path, size>>10, ms(first), ms(at(elapsed[1:], 0.5)))
	}
	out.atMost("discovery and OpenAPI of 500 clusters, cold, in all", cold, 2000, " ms")
	out.atMost("discovery and OpenAPI of 500 clusters, warm, the slowest of four documents", warm, 50, " ms")
	return tw.Flush()
}

// scaleFirstPage measures the time until a client has its first 500 pods.
func scaleFirstPage(ctx context.Context, out *report, f *scaleFleet) error {
	return firstPages(out, f, "", "", 10, func(w endpoint) (time.Duration, error) {
		start := time.Now()
		_, err := read(ctx, w, podsPath+"?limit=500", "")
		return time.Since(start), err
	})
}

// scaleKubectl measures the time from the start of kubectl get pods -A until it has read the first 500 pods. kubectl
// prints a Table only when it has all pages, so it is ended when it asks for the next ones.
func scaleKubectl(ctx context.Context, out *report, f *scaleFleet, kubectl, dir string) error {
	return firstPages(out, f, "kubectl get pods -A, ", " by kubectl, with its start", 7,
		func(w endpoint) (time.Duration, error) { return untilSecondPage(ctx, kubectl, f.pass, w.url, dir) })
}

// firstPages prints the durations of rounds pages, after one that opens connections and fills kubectl's cache of
// discovery. by is added to the names of the goals.
func firstPages(
	out *report, f *scaleFleet, title, by string, rounds int, page func(w endpoint) (time.Duration, error),
) error {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(tw, "\n%sfirst 500 of %d pods\tp50 ms\tthe longest ms\t\n", title, scaleMembers*scalePods)
	for _, w := range []endpoint{f.plain, f.qualified} {
		var elapsed []time.Duration
		for round := range rounds + 1 {
			d, err := page(w)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			if round > 0 {
				elapsed = append(elapsed, d)
			}
		}
		slices.Sort(elapsed)
		out.atMost(w.name+": first page of a million pods"+by, ms(at(elapsed, 0.5)), 1000, " ms")
		_, _ = fmt.Fprintf(tw, "%s\t%.0f\t%.0f\t\n", w.name, ms(at(elapsed, 0.5)), ms(elapsed[len(elapsed)-1]))
	}
	return tw.Flush()
}

// untilSecondPage runs kubectl, whose log has a line before each request, until it asks for the second page.
func untilSecondPage(ctx context.Context, kubectl, kubeconfig, server, home string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, kubectl, "--kubeconfig", kubeconfig, "--server", server, "get", "pods", "-A", "-v=7")
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}()
	last := ""
	lines := bufio.NewScanner(stderr)
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	for lines.Scan() {
		last = lines.Text()
		if strings.Contains(last, "continue=") {
			return time.Since(start), nil
		}
	}
	err = errors.Join(lines.Err(), ctx.Err())
	return 0, errors.Join(fmt.Errorf("kubectl asked for no second page; its last line: %s", last), err)
}

// scaleRounds is the number of interleaved rounds of scaleLists.
const scaleRounds = 3

// scaleLists measures whole lists, and the same number of lists of one cluster through a bare proxy. The figures are
// medians of the rounds, and the largest memory.
func scaleLists(ctx context.Context, out *report, f *scaleFleet) error {
	endpoints := []proxied{f.proxy, {f.plain, f.gateway}, {f.qualified, f.gateway}}
	results := make([][]scaleResult, len(endpoints))
	for range scaleRounds {
		for i, w := range endpoints {
			list := readAll
			if i == 0 {
				list = copyAll
			}
			r, err := w.listAll(ctx, list)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			results[i] = append(results[i], r)
		}
	}
	diagram := plot{title: "Rate of a list of a million pods, relative to a bare ReverseProxy",
		loads: []string{"a million pods of 500 clusters"}, ratios: [][]float64{nil}}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(tw, "\nlist of %d pods\tMiB\ts\tMiB/s\t/ proxy\tRssAnon MiB, peak\tCPU s\t\n",
		scaleMembers*scalePods)
	for i, w := range endpoints {
		of := func(f func(scaleResult) float64) float64 { return medianOf(results[i], f) }
		rate := func(r scaleResult) float64 { return float64(r.size) / r.elapsed.Seconds() }
		ratio := of(rate) / medianOf(results[0], rate)
		peak := slices.MaxFunc(results[i], func(a, b scaleResult) int { return cmp.Compare(a.peak, b.peak) }).peak
		if i > 0 {
			out.atLeast(w.name+": rate of a million pods / proxy", ratio, []float64{0.6, 0.45}[i-1], "")
			out.atMost(w.name+": memory of a million pods", float64(peak)/1024, 128, " MiB")
		}
		diagram.endpoints = append(diagram.endpoints, w.name)
		diagram.ratios[0] = append(diagram.ratios[0], ratio)
		_, _ = fmt.Fprintf(tw, "%s\t%d\t%.1f\t%.0f\t%.2f\t%d\t%.1f\t\n", w.name, results[i][0].size>>20,
			of(func(r scaleResult) float64 { return r.elapsed.Seconds() }), of(rate)/(1<<20), ratio, peak>>10,
			of(func(r scaleResult) float64 { return r.cpu.Seconds() }))
	}
	out.current().plot = &diagram
	return tw.Flush()
}

// scaleCompressed measures one whole list with gzip. The stand-ins do not compress theirs.
func scaleCompressed(ctx context.Context, out *report, f *scaleFleet) error {
	fleet := proxied{f.plain, f.gateway}
	r, err := fleet.listAll(ctx, func(ctx context.Context, w endpoint) (int64, error) {
		return readEncoded(ctx, w, podsPath, "gzip")
	})
	if err != nil {
		return err
	}
	peak := float64(r.peak) / 1024
	out.atMost("/fleet: memory of a million pods with gzip", peak, 128, " MiB")
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(tw, "\nlist of %d pods with gzip\tMiB sent\ts\tRssAnon MiB, peak\tCPU s\t\n",
		scaleMembers*scalePods)
	_, _ = fmt.Fprintf(tw, "%s\t%d\t%.1f\t%.0f\t%.1f\t\n", fleet.name, r.size>>20, r.elapsed.Seconds(), peak,
		r.cpu.Seconds())
	return tw.Flush()
}

// scaleResult is one list of a million pods.
type scaleResult struct {
	size    int64
	elapsed time.Duration
	cpu     time.Duration // CPU time of the process that serves the list
	peak    int           // KiB of its anonymous memory
}

// listAll measures list, which reads a million pods.
func (p *proxied) listAll(ctx context.Context, list func(ctx context.Context, w endpoint) (int64, error)) (
	r scaleResult, err error,
) {
	before, err := p.cpuTime()
	if err != nil {
		return r, err
	}
	stop, start := watchMemory(p.process), time.Now()
	r.size, err = list(ctx, p.endpoint)
	r.elapsed = time.Since(start)
	peak, memoryErr := stop()
	after, cpuErr := p.cpuTime()
	r.peak, r.cpu = peak, after-before
	return r, errors.Join(err, memoryErr, cpuErr)
}

// readAll reads one list of all pods of the fleet.
func readAll(ctx context.Context, w endpoint) (int64, error) { return read(ctx, w, podsPath, "") }

// copyAll reads as many lists as there are members, two at once. It returns their size.
func copyAll(ctx context.Context, w endpoint) (size int64, err error) {
	g, ctx := errgroup.WithContext(ctx)
	const parallel = 2
	sizes := make([]int64, parallel)
	for i := range parallel {
		g.Go(func() error {
			for range scaleMembers / parallel {
				n, err := read(ctx, w, podsPath, "")
				if err != nil {
					return err
				}
				sizes[i] += n
			}
			return nil
		})
	}
	err = g.Wait()
	for _, n := range sizes {
		size += n
	}
	return size, err
}

// watchMemory samples the anonymous memory of a process. The returned function returns the maximum in KiB.
func watchMemory(process *exec.Cmd) func() (int, error) {
	ctx, cancel := context.WithCancel(context.Background())
	var g errgroup.Group
	peak := 0
	g.Go(func() error {
		for ctx.Err() == nil {
			now, err := memoryOf(process.Process.Pid, "RssAnon:")
			if err != nil {
				return err
			}
			peak = max(peak, now)
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
		return nil
	})
	return func() (int, error) {
		cancel()
		err := g.Wait()
		return peak, err
	}
}
