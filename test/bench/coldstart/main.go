// Command coldstart measures how long each function takes from its start to its first answer, beside a hello world in the same
// run, and how large it is. Machines are noisy: read the ratios. It runs at the top of the checkout, after make build-local.
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
