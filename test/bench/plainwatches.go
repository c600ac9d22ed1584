package main

import (
	"context"
	"os/exec"

	"k8s.io/client-go/rest"
)

// plainCommand runs this program as a server that keeps watches open itself: the least that any gateway needs.
const plainCommand = "plain-watches"

func startPlainWatches(ctx context.Context) (*exec.Cmd, *rest.Config, error) {
	return startServer(ctx, plainCommand)
}

// servePlainWatches serves until ctx ends. It prints its address.
func servePlainWatches(ctx context.Context) error {
	srv := standIn()
	return printAndWait(ctx, srv.URL)
}
