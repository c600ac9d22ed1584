package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/clusterpass/clusterpass/test/cluster"
)

// The members of far are remote clusters. Their latency and rate decide, unless the machine is busy throughout.
const (
	farDelay  = 50 * time.Millisecond // round trip to the slowest member
	farRate   = 20 << 20              // bytes a second
	farRounds = 7
)

// far measures lists of members that are slower than the machine, and those of the slowest member alone.
func far(ctx context.Context, out *report, _ *cluster.Set, dir string) error {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(tw, "\nLIST of members, up to %v and %d MiB/s each\tMiB in all\tfleet p50 ms\t"+
		"slowest alone p50 ms\tratio\tCPU ms of the gateway\tbusy %% of the machine\t\n", farDelay, farRate>>20)
	for _, l := range []struct{ members, pods int }{{10, 100}, {10, 1000}, {5, 10_000}, {10, 10_000}} {
		if err := farLists(ctx, out, tw, l.members, l.pods, dir); err != nil {
			return fmt.Errorf("%d pods of %d members: %w", l.pods, l.members, err)
		}
	}
	return tw.Flush()
}

func farLists(ctx context.Context, goals *report, tw io.Writer, members, pods int, dir string) error {
	f, err := startFleet(ctx, standIns{Members: members, Pods: pods, Delay: farDelay, Rate: farRate}, dir, nil)
	if err != nil {
		return err
	}
	defer f.stop()
	lists, err := f.compareLists(ctx, farRounds)
	if err != nil {
		return err
	}
	all, alone := at(lists.fleet, 0.5), at(lists.slowest, 0.5)
	goals.atMost(fmt.Sprintf("far lists, %d pods of each of %d members: / slowest", pods, members), ms(all)/ms(alone), 1.2,
		"")
	_, err = fmt.Fprintf(tw, "%d pods of each of %d\t%d\t%.0f\t%.0f\t%.2f\t%.0f\t%.0f\t\n", pods, members, lists.size>>20,
		ms(all), ms(alone), ms(all)/ms(alone), ms(lists.gateway), lists.busy)
	return err
}

// fleetLists are lists of a fleet, and of its slowest member alone.
type fleetLists struct {
	fleet, slowest []time.Duration // sorted
	size           int64           // bytes of a list of the fleet
	gateway        time.Duration   // CPU time of the gateway for a list of the fleet
	busy           float64         // part of the machine that is busy during lists of the fleet, in %
}

// compareLists measures interleaved lists of all pods. Lists before the first round open connections.
func (f *farFleet) compareLists(ctx context.Context, rounds int) (l fleetLists, err error) {
	for _, w := range []endpoint{f.slowest, f.fleet} {
		if _, err := getLarge(ctx, w); err != nil {
			return l, err
		}
	}
	var busy, all int
	for range rounds {
		start := time.Now()
		if _, err := getLarge(ctx, f.slowest); err != nil {
			return l, err
		}
		l.slowest = append(l.slowest, time.Since(start))
		before, err := readCPUUsage(f.gateway.Process.Pid)
		if err != nil {
			return l, err
		}
		start = time.Now()
		if l.size, err = getLarge(ctx, f.fleet); err != nil {
			return l, err
		}
		l.fleet = append(l.fleet, time.Since(start))
		after, err := readCPUUsage(f.gateway.Process.Pid)
		if err != nil {
			return l, err
		}
		l.gateway += (after.process - before.process) / time.Duration(rounds)
		busy, all = busy+after.busy-before.busy, all+after.all-before.all
	}
	l.busy = 100 * float64(busy) / float64(max(all, 1))
	slices.Sort(l.fleet)
	slices.Sort(l.slowest)
	return l, nil
}
