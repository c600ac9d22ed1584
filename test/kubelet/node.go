package kubelet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	// leaseDuration is how long the node counts as alive without a renewal.
	leaseDuration = 40 * time.Second
	renewInterval = 10 * time.Second
	retryInterval = time.Second
	// statusInterval is the interval of status updates. The lease is the heartbeat.
	statusInterval = time.Minute
)

func (k *Kubelet) maintainNode(ctx context.Context) {
	var reported time.Time
	for {
		var err error
		if time.Since(reported) > statusInterval {
			if err = k.reportNode(ctx); err == nil {
				if reported.IsZero() {
					k.Log.InfoContext(ctx, "the node is registered", "node", k.NodeName, "address", k.Address, "port", k.port)
				}
				reported = time.Now()
			}
		}
		err = errors.Join(err, k.renewLease(ctx))
		pause := renewInterval
		if err != nil {
			if ctx.Err() == nil {
				k.Log.WarnContext(ctx, "the node's heartbeat failed, will try again", "error", err)
			}
			pause = retryInterval
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (k *Kubelet) reportNode(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	version, err := k.Client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("ask for the server's version: %w", err)
	}
	nodes := k.Client.CoreV1().Nodes()
	labels := map[string]string{
		corev1.LabelHostname:   k.NodeName,
		corev1.LabelOSStable:   runtime.GOOS,
		corev1.LabelArchStable: runtime.GOARCH,
	}
	node, err := nodes.Get(ctx, k.NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node, err = nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.NodeName, Labels: labels}},
			metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("register the node: %w", err)
	}
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(memory(), resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(int64(k.MaxPods), resource.DecimalSI),
	}
	node.Status.Capacity, node.Status.Allocatable = resources, resources
	// No host name: an API server would prefer it by default, but DNS does not know it.
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: k.Address}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(k.port)
	node.Status.NodeInfo.KubeletVersion = version.GitVersion // the scheduler and clients compare it
	node.Status.NodeInfo.ContainerRuntimeVersion = "process://1"
	node.Status.NodeInfo.OperatingSystem = runtime.GOOS
	node.Status.NodeInfo.Architecture = runtime.GOARCH
	node.Status.NodeInfo.OSImage = "the host's"
	for _, c := range []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "NotMeasured"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "NotMeasured"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "NotMeasured"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "the process kubelet runs"},
	} {
		setNodeCondition(&node.Status, c)
	}
	if _, err := nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("report the node's status: %w", err)
	}
	return nil
}

func setNodeCondition(status *corev1.NodeStatus, c corev1.NodeCondition) {
	c.LastHeartbeatTime = metav1.Now()
	c.LastTransitionTime = c.LastHeartbeatTime
	for i, old := range status.Conditions {
		if old.Type == c.Type {
			if old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
			status.Conditions[i] = c
			return
		}
	}
	status.Conditions = append(status.Conditions, c)
}

func (k *Kubelet) renewLease(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	leases := k.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Get(ctx, k.NodeName, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return fmt.Errorf("read the node's lease: %w", err)
	}
	if missing {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: k.NodeName}}
	}
	lease.Spec.HolderIdentity = &k.NodeName
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(leaseDuration.Seconds()))
	lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
	if missing {
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renew the node's lease: %w", err)
	}
	return nil
}

// memory returns the machine's memory in bytes, or an estimate without /proc.
func memory() int64 {
	const guess = 8 << 30
	file, err := os.Open("/proc/meminfo")
	if err != nil {
		return guess
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var kib int64
		if strings.HasPrefix(lines.Text(), "MemTotal:") {
			if _, err := fmt.Sscanf(lines.Text(), "MemTotal: %d kB", &kib); err == nil {
				return kib << 10
			}
		}
	}
	return guess
}
