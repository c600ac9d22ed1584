package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/clusterpass/clusterpass/test/cluster"
)

// churnOptions configures the watch of the part churn.
type churnOptions struct {
	duration time.Duration
	rate     float64 // events per second of each cluster
}

// measureChurn measures a watch of the stand-ins of scale and of real clusters.
func measureChurn(ctx context.Context, out *report, set *cluster.Set, dir string, churn churnOptions) error {
	f, err := startScaleFleet(ctx, set, dir, standIns{Members: scaleMembers, Pods: scalePods, Events: churn.rate})
	if err != nil {
		return err
	}
	defer f.stop()
	realOnes, err := newRealChurn(ctx, set)
	if err != nil {
		return err
	}
	return watchAllMembers(ctx, out, f, scaleMembers, realOnes, churn)
}

// watchAllMembers watches standIns stand-ins and the real clusters while each sends events. Every event must arrive, in
// order.
func watchAllMembers(ctx context.Context, out *report, f *scaleFleet, standIns int, realOnes realChurn,
	churn churnOptions) (err error) {
	members, d := standIns+len(realOnes), churn.duration
	ctx, cancel := context.WithTimeout(ctx, d+time.Minute)
	defer cancel()
	version, err := versionOf(ctx, f.plain)
	if err != nil {
		return err
	}
	resp, err := openAs(ctx, f.plain, podsPath+"?watch=1&resourceVersion="+version, "")
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	changing, stop := context.WithCancel(ctx)
	var changes errgroup.Group
	changes.Go(func() error { return realOnes.run(changing) })
	defer func() {
		stop()
		err = errors.Join(err, changes.Wait())
	}()
	use, err := startSamples(f.gateway.Process.Pid, d/watchSamples)
	if err != nil {
		return err
	}
	last, n := map[string]sent{}, 0
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	end := time.Now().Add(d)
	for ; time.Now().Before(end) && lines.Scan(); n++ {
		cluster, version, err := scaleEvent(lines.Bytes())
		if err != nil {
			return err
		}
		was, ok := last[cluster]
		if !ok {
			was.version = listVersion
		}
		if version != was.version+1 {
			return fmt.Errorf("cluster %s: event %d follows event %d", cluster, version, was.version)
		}
		last[cluster] = sent{version, time.Now()}
		if err := use.sample(); err != nil {
			return err
		}
	}
	if len(last) != members || time.Now().Before(end) {
		return errors.Join(fmt.Errorf("%d clusters sent %d events", len(last), n), lines.Err())
	}
	if err := errors.Join(use.last(), allSend(last, churn.rate)); err != nil {
		return err
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(tw, "\nwatch of %d clusters\tevents\tlost\tCPU %% of a core over time\tRssAnon MiB over time\t\n",
		members)
	name := fmt.Sprintf("watch of %d clusters for %v: ", members, d)
	out.atMost(name+"CPU time of the second half / first half", growth(use.cpu), 1.25, "")
	out.atMost(name+"memory of the second half / first half", growth(use.memory), 1.1, "")
	out.atMost(name+"memory without the program's file", float64(slices.Max(use.memory)), 128, " MiB")
	const lost = 0 // a lost event is an error above
	out.atMost(name+"events lost", lost, 0, "")
	_, _ = fmt.Fprintf(tw, "%s\t%d\t%d\t%v\t%v\t\n", d, n, lost, use.cpu, use.memory)
	return tw.Flush()
}

// growth returns the sum of the last half of values relative to that of the first. It ignores the first value, while
// watches open, and one in the middle.
func growth(values []int) float64 {
	values = values[min(1, len(values)):]
	half, first, last := len(values)/2, 0, 0
	for i := range half {
		first, last = first+values[i], last+values[len(values)-1-i]
	}
	return float64(last) / float64(max(first, 1))
}

// sent is the last event of a cluster.
type sent struct {
	version int
	at      time.Time
}

// allSend fails if a cluster has been silent for 10 intervals between its events, and for at least 10 s. Its later
// events would then be missing without a gap.
func allSend(last map[string]sent, rate float64) error {
	limit := 10 * max(time.Second, time.Duration(float64(time.Second)/rate))
	for cluster, event := range last {
		if silent := time.Since(event.at); silent > limit {
			return fmt.Errorf("cluster %s: event %d is the last one, %v ago", cluster, event.version, silent)
		}
	}
	return nil
}

const watchSamples = 10 // number of values of its CPU time and memory

// versionOf returns the resourceVersion of the list of all members.
func versionOf(ctx context.Context, w endpoint) (string, error) {
	resp, err := open(ctx, w, podsPath+"?limit=1")
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	err = json.NewDecoder(resp.Body).Decode(&list)
	return list.Metadata.ResourceVersion, err
}

// scaleEvent returns the cluster of an event and the number that the cluster gave it.
func scaleEvent(line []byte) (cluster string, number int, err error) {
	var e struct {
		Type   string
		Object struct {
			Metadata struct {
				Annotations struct {
					Cluster string `json:"resource.karmada.io/cached-from-cluster"`
					Sent    string `json:"sent"`
				}
			}
		}
	}
	if err := json.Unmarshal(line, &e); err != nil || e.Type != "MODIFIED" {
		return "", 0, errors.Join(fmt.Errorf("an event %.200s", line), err)
	}
	number, err = strconv.Atoi(e.Object.Metadata.Annotations.Sent)
	return e.Object.Metadata.Annotations.Cluster, number, err
}
