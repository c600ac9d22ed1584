// Package load fills a cluster with thousands of running pods through the API. The pods are created on fake nodes,
// which kwok simulates, so neither kubelet nor scheduler limits the speed. Fake nodes have the taint
// kwok.x-k8s.io/node=fake:NoSchedule, so that other pods go to the process kubelet.
package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// kwok simulates the nodes with this annotation and value. The taint has the same key and value.
const (
	annotation      = "kwok.x-k8s.io/node"
	annotationValue = "fake"
)

// Options are the numbers of objects. Another run of a load creates only missing objects.
type Options struct {
	Pods      int       // how many pods, named load-000000 and up
	Nodes     int       // how many fake nodes, named fake-0000 and up; default: one for each 100 pods
	Namespace string    // default: load
	Progress  io.Writer // default: none
}

const (
	parallel       = 32
	requestTimeout = 30 * time.Second
	podsPerNode    = 100
	// ahead is the number of pods that are created at once, and the maximum number that wait. If kwok is far behind, it
	// keeps all waiting pods in memory and simulates many of them twice.
	ahead = 500
	// patience is how long the number of running pods may stay the same.
	patience = 3 * time.Minute
)

// Run makes nodes and pods in the cluster of config and returns when every pod runs.
func Run(ctx context.Context, config *rest.Config, o Options) error {
	if o.Pods < 0 || o.Nodes < 0 {
		return errors.New("the numbers of pods and nodes cannot be negative")
	}
	if o.Nodes == 0 {
		o.Nodes = (o.Pods + podsPerNode - 1) / podsPerNode
	}
	if o.Namespace == "" {
		o.Namespace = "load"
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.Timeout = requestTimeout
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	defer httpClient.CloseIdleConnections()
	client, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	l := &load{Options: o, client: client, start: time.Now()}
	return l.run(ctx)
}

type load struct {
	Options
	client  kubernetes.Interface
	start   time.Time
	created atomic.Int64
}

func (l *load) run(ctx context.Context) error {
	if err := l.namespace(ctx); err != nil {
		return err
	}
	err := l.each(ctx, l.Nodes, func(ctx context.Context, i int) error {
		_, err := l.client.CoreV1().Nodes().Create(ctx, node(i), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("make fake nodes: %w", err)
	}
	l.report("%d fake nodes", l.Nodes)

	stop := l.reportPods(ctx)
	err = l.pods(ctx)
	stop()
	if err != nil {
		return err
	}
	if err := l.untilWaiting(ctx, 0); err != nil {
		return err
	}
	l.report("%d pods run", l.Pods)
	return nil
}

func (l *load) pods(ctx context.Context) error {
	for first := 0; first < l.Pods; first += ahead {
		err := l.each(ctx, min(ahead, l.Pods-first), func(ctx context.Context, i int) error {
			_, err := l.client.CoreV1().Pods(l.Namespace).Create(ctx, l.pod(first+i), metav1.CreateOptions{})
			l.created.Add(1)
			return err
		})
		if err != nil {
			return fmt.Errorf("make pods: %w", err)
		}
		if err := l.untilWaiting(ctx, ahead); err != nil {
			return err
		}
	}
	return nil
}

func (l *load) each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	all, group := errgroup.WithContext(ctx)
	all.SetLimit(parallel)
	for i := range n {
		if group.Err() != nil {
			break
		}
		all.Go(func() error {
			if err := do(group, i); !apierrors.IsAlreadyExists(err) {
				return err
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

func (l *load) namespace(ctx context.Context) error {
	_, err := l.client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.Namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make namespace %s: %w", l.Namespace, err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		_, err := l.client.CoreV1().ServiceAccounts(l.Namespace).Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the service account of namespace %s: %w", l.Namespace, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (l *load) untilWaiting(ctx context.Context, atMost int) error {
	const page = 2*ahead + 1 // more than can wait, unless others make pods, too
	waiting, changed := -1, time.Now()
	for {
		list, err := l.client.CoreV1().Pods(l.Namespace).List(ctx, metav1.ListOptions{
			LabelSelector: podLabel + "=" + podLabelValue,
			FieldSelector: fields.OneTermNotEqualSelector("status.phase", string(corev1.PodRunning)).String(),
			Limit:         page,
		})
		if err != nil {
			return fmt.Errorf("count the pods that run: %w", err)
		}
		if len(list.Items) <= atMost {
			return nil
		}
		if len(list.Items) != waiting || waiting == page {
			waiting, changed = len(list.Items), time.Now()
		}
		if time.Since(changed) > patience {
			return fmt.Errorf("%d pods do not run, such as %s; does something play their nodes?", waiting, list.Items[0].Name)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (l *load) reportPods(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticks := time.NewTicker(time.Second)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
				l.report("%d/%d pods made", l.created.Load(), l.Pods)
			}
		}
	}()
	return func() { cancel(); <-ended }
}

func (l *load) report(format string, args ...any) {
	_, _ = fmt.Fprintf(l.Progress, "%5.1fs  %s\n", time.Since(l.start).Seconds(), fmt.Sprintf(format, args...))
}

const (
	podLabel      = "app"
	podLabelValue = "load"
)

func nodeName(i int) string { return fmt.Sprintf("fake-%04d", i) }

func node(i int) *corev1.Node {
	resources := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("64"),
		corev1.ResourceMemory: resource.MustParse("512Gi"),
		corev1.ResourcePods:   resource.MustParse("1000"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        nodeName(i),
			Annotations: map[string]string{annotation: annotationValue},
			Labels: map[string]string{
				"type":                   "kwok",
				corev1.LabelHostname:     nodeName(i),
				corev1.LabelOSStable:     "linux",
				corev1.LabelArchStable:   "amd64",
				corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3),
			},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{
			Key: annotation, Value: annotationValue, Effect: corev1.TaintEffectNoSchedule,
		}}},
		Status: corev1.NodeStatus{Capacity: resources, Allocatable: resources},
	}
}

func (l *load) pod(i int) *corev1.Pod {
	no := false
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:   fmt.Sprintf("load-%06d", i),
			Labels: map[string]string{podLabel: podLabelValue, "shard": fmt.Sprintf("%02d", i%100)},
		},
		Spec: corev1.PodSpec{
			NodeName:                     nodeName(i % l.Nodes),
			NodeSelector:                 map[string]string{"type": "kwok"},
			AutomountServiceAccountToken: &no,
			Tolerations: []corev1.Toleration{{
				Key: annotation, Value: annotationValue, Effect: corev1.TaintEffectNoSchedule,
			}},
			Containers: []corev1.Container{{
				Name: "app", Image: "example.test/load:1",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi"),
				}},
			}},
		},
	}
}
