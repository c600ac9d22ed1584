package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
)

// readCalls is the number of calls in a minute by which storeReads measures.
const readCalls = 360

// storeReads makes calls for a minute and prints how many requests to AWS they cost a warm gateway.
func storeReads(ctx context.Context, out *report, w endpoint, path string, front *mototest.Front) error {
	if err := get(ctx, w, path); err != nil {
		return err
	}
	before := callsTo(front)
	ticks := time.NewTicker(time.Minute / readCalls)
	defer ticks.Stop()
	for range readCalls {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks.C:
		}
		if err := get(ctx, w, path); err != nil {
			return err
		}
	}
	n := callsTo(front).each(before, 1)
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(tw, "\na minute asks AWS for\tGetSecretValue\tother secrets calls\tDynamoDB calls\t")
	out.atMost("a minute of calls to one cluster: reads of its secret", n.values, 2, "")
	_, _ = fmt.Fprintf(tw, "%d calls, all warm\t%.0f\t%.0f\t%.0f\t\n", readCalls, n.values, n.others, n.objects)
	return tw.Flush()
}
