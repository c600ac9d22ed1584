package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/test/cluster/keeper"
	"github.com/clusterpass/clusterpass/test/cluster/ownership"
)

// guarded is in the environment of the keeper. A process without it is the keeper's guard.
const guarded = "CLUSTERPASS_CLUSTERS_GUARDED"

func newKeepCommand() *cobra.Command {
	return &cobra.Command{
		Use:    cluster.KeepCommand + " RUN",
		Short:  "Keep the clusters that standard input describes (started by up and by tests)",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			// The reader of the output may be gone, which must not end the clusters. Children would inherit an ignored signal.
			signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

			if os.Getenv(guarded) == "" {
				code, err := ownership.Guard(args[0], guarded+"=1")
				if err == nil && code != 0 {
					err = exitCode(code)
				}
				return err
			}
			if err := os.Unsetenv(guarded); err != nil {
				return fmt.Errorf("clean the environment: %w", err)
			}
			// Client libraries log each connection that a fault breaks.
			klog.LogToStderr(false)
			klog.SetOutput(io.Discard)
			return keeper.Run(cmd.Context(), os.Stdin, os.Stdout, os.Stderr)
		},
	}
}
