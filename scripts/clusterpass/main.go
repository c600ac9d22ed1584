// Command clusterpass is the command line for users and administrators of a gateway. Its file name makes it a kubectl
// plugin (kubectl-clusterpass), or the completion of one (kubectl_complete-clusterpass).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/clusterpass/clusterpass/shared/config"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := named(root(), os.Args).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		var bad *config.Error
		if errors.As(err, &bad) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}
