// Command clusterpass is for users of a gateway, who log in, and for its administrators, who register member clusters in the
// installation's stores. As kubectl-clusterpass it is kubectl's plugin, and as kubectl_complete-clusterpass what completes that.
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
