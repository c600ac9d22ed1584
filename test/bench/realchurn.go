package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/clusterpass/clusterpass/test/cluster"
)

// realChurn changes a pod of each real cluster. The zero value has no clusters.
type realChurn []*kubernetes.Clientset

// newRealChurn starts a pod in each cluster.
func newRealChurn(ctx context.Context, set *cluster.Set) (out realChurn, err error) {
	for _, c := range set.Clusters() {
		client, err := kubernetes.NewForConfig(c.RESTConfig())
		if err != nil {
			return nil, err
		}
		if err := startPod(ctx, client, "bench"); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name(), err)
		}
		out = append(out, client)
	}
	return out, nil
}

// run changes all pods once a second, until ctx ends. It numbers the changes as stand-ins number theirs.
func (c realChurn) run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for n := listVersion + 1; ; n++ {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"sent":"%d"}}}`, n)
		for _, client := range c {
			_, err := client.CoreV1().Pods("bench").Patch(ctx, podName, types.MergePatchType, patch, metav1.PatchOptions{})
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
