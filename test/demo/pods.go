package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/clusterpass/clusterpass/test/cluster"
)

// podNames are the names of the pods in each cluster.
var podNames = []string{"cart", "web"}

// createPods creates the pods of a cluster.
func createPods(ctx context.Context, c *cluster.Cluster) error {
	for _, name := range podNames {
		if err := createPod(ctx, c, name); err != nil {
			return err
		}
	}
	return nil
}

// waitForPods returns when the pods of a cluster run.
func waitForPods(ctx context.Context, c *cluster.Cluster) error {
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		pods, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		running := 0
		for _, pod := range pods.Items {
			if pod.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		return running == len(podNames), nil
	})
	if err != nil {
		return fmt.Errorf("wait for the pods of %s: %w", c.Name(), err)
	}
	return nil
}

// createPod creates a pod that logs a line each 200 ms. It names its node, because there is no scheduler.
func createPod(ctx context.Context, c *cluster.Cluster, name string) error {
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return err
	}
	grace := int64(1)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName: c.Node(), TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{
			Name: name, Image: name,
			Command: []string{"sh", "-c", "while sleep 0.2; do echo hello from " + name + " in " + c.Name() + "; done"},
		}},
	}}
	_, err = client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the pod %s of %s: %w", name, c.Name(), err)
	}
	return nil
}
