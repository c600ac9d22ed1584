package main

import (
	"context"

	"github.com/clusterpass/clusterpass/test/bench/coldstart"
	"github.com/clusterpass/clusterpass/test/cluster"
)

// coldStarts measures the starts of the functions.
func coldStarts(ctx context.Context, out *report, _ *cluster.Set, _ string) error {
	results, err := coldstart.Run(ctx, out)
	for _, r := range results {
		if r.Goal > 0 {
			out.atMost("cold start of functions/"+r.Name+": / hello world", r.Ratio, r.Goal, "")
		}
	}
	return err
}
