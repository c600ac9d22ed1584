// Command coldstart measures the size of each function and the time from its start to its first response. A hello world
// in the same run is the reference. Machines are noisy, so only ratios are comparable. The command runs in the root of
// the checkout, after make build-local.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
