// Command clusterpass is the command line for users of a gateway, who log in, and for its administrators, who register
// member clusters. With the name kubectl-clusterpass it is a kubectl plugin. With the name kubectl_complete-clusterpass
// it completes the plugin's command line.
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
