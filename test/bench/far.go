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

// The members of far: remote clusters whose latency and rate decide, not this machine.
const (
	farMembers = 10
	farDelay   = 50 * time.Millisecond
	farRate    = 20 << 20 // bytes a second
	farRounds  = 7
)

// far measures lists of members that are slower than the machine, and those of the slowest member alone.
func far(ctx context.Context, out *report, _ *cluster.Set, dir string) error {
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(tw, "\nLIST of %d members, %v and %d MiB/s\tMiB in all\tfleet p50 ms\tslowest alone p50 ms\t"+
		"ratio\t\n", farMembers, farDelay, farRate>>20)
	for _, pods := range []int{100, 1000, 10_000} {
		if err := farLists(ctx, out, tw, pods, dir); err != nil {
			return fmt.Errorf("%d pods: %w", pods, err)
		}
	}
	return tw.Flush()
}

func farLists(ctx context.Context, goals *report, tw io.Writer, pods int, dir string) error {
	f, err := startFleet(ctx, standIns{Members: farMembers, Pods: pods, Delay: farDelay, Rate: farRate}, dir, nil)
	if err != nil {
		return err
	}
	defer f.stop()
	elapsed := map[string][]time.Duration{}
	var size int64
	for round := range farRounds + 1 {
		for _, w := range []endpoint{f.slowest, f.fleet} {
			start := time.Now()
			if size, err = getLarge(ctx, w); err != nil {
				return err
			}
			if round > 0 { // the first one opens connections
				elapsed[w.name] = append(elapsed[w.name], time.Since(start))
			}
		}
	}
	slices.Sort(elapsed[f.fleet.name])
	slices.Sort(elapsed[f.slowest.name])
	all, alone := at(elapsed[f.fleet.name], 0.5), at(elapsed[f.slowest.name], 0.5)
	goals.atMost(fmt.Sprintf("far lists, %d pods each: / slowest", pods), ms(all)/ms(alone), 1.2, "")
	_, err = fmt.Fprintf(tw, "%d pods each\t%d\t%.0f\t%.0f\t%.2f\t\n", pods, size>>20, ms(all), ms(alone),
		ms(all)/ms(alone))
	return err
}
