package kubelet

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	// shutdownGrace is the time for containers to end when the kubelet ends.
	shutdownGrace = time.Second
	// forcedGrace is the same for a pod that was deleted without grace.
	forcedGrace = 2 * time.Second
	// never is the pause of a worker that waits for an event.
	never = time.Hour
)

func (k *Kubelet) watchPods(ctx context.Context) {
	informer := coreinformers.NewFilteredPodInformer(k.Client, metav1.NamespaceAll, 0, cache.Indexers{},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", k.NodeName).String()
		})
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { k.podSeen(ctx, o.(*corev1.Pod)) },
		UpdateFunc: func(old, new any) {
			before, now := old.(*corev1.Pod), new.(*corev1.Pod)
			if before.UID != now.UID { // a deletion that the watch missed
				k.podGone(before)
			}
			k.podSeen(ctx, now)
		},
		DeleteFunc: func(o any) {
			if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			k.podGone(o.(*corev1.Pod))
		},
	})
	if err != nil {
		k.Log.ErrorContext(ctx, "pods cannot be watched", "error", err) // only returned by a stopped informer
		return
	}
	informer.RunWithContext(ctx)
}

func (k *Kubelet) podSeen(ctx context.Context, api *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p, ok := k.pods[api.UID]; ok {
		p.mu.Lock()
		p.api = api
		p.mu.Unlock()
		p.notify()
		return
	}
	p := newPod(k, api)
	k.pods[api.UID] = p
	k.workers.Go(func() {
		p.work(ctx)
		k.mu.Lock()
		delete(k.pods, api.UID)
		k.mu.Unlock()
	})
}

func (k *Kubelet) podGone(api *corev1.Pod) {
	k.mu.Lock()
	p, ok := k.pods[api.UID]
	k.mu.Unlock()
	if !ok {
		return
	}
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	p.notify()
}

func (k *Kubelet) findPod(namespace, name string) *pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	var found *pod
	for _, p := range k.pods {
		api := p.object()
		if api.Namespace == namespace && api.Name == name &&
			(found == nil || found.object().CreationTimestamp.Before(&api.CreationTimestamp)) {
			found = p
		}
	}
	return found
}

// pod is a pod and its worker. Only the worker changes it, except for api and gone.
type pod struct {
	kubelet *Kubelet
	dir     string
	address string
	wake    chan struct{}

	past        bool // ended before this kubelet saw it: there is nothing to run or report
	volumesMade bool
	initialised bool      // every init container has succeeded or, as a sidecar, started
	finished    bool      // all containers have ended and will not restart
	endingSince time.Time // zero until the pod must end
	startTime   metav1.Time

	mu         sync.Mutex // guards the following fields; the worker needs it only to write
	api        *corev1.Pod
	gone       bool // deleted from the API
	containers map[string]*container
}

func newPod(k *Kubelet, api *corev1.Pod) *pod {
	p := &pod{
		kubelet:    k,
		dir:        filepath.Join(k.podsDir, string(api.UID)),
		address:    k.newAddress(api),
		wake:       make(chan struct{}, 1),
		past:       terminal(api.Status.Phase),
		startTime:  metav1.Now().Rfc3339Copy(),
		api:        api,
		containers: make(map[string]*container),
	}
	if api.Status.StartTime != nil { // another kubelet ran it
		p.startTime = *api.Status.StartTime
		p.recall(api)
	}
	return p
}

func (p *pod) notify() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pod) object() *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.api
}

func (p *pod) work(ctx context.Context) {
	defer p.cleanUp()
	for {
		pause, done := p.sync(ctx)
		if done {
			return
		}
		select {
		case <-p.wake:
		case <-time.After(pause):
		case <-ctx.Done():
			p.shutDown()
			return
		}
	}
}

// sync performs the next step for the pod and reports its status. It returns the latest time of the next call.
func (p *pod) sync(ctx context.Context) (pause time.Duration, done bool) {
	p.mu.Lock()
	api, gone := p.api, p.gone
	p.mu.Unlock()
	p.collectExits(api)

	now := time.Now()
	switch {
	case gone:
		pause = p.end(api, now, forcedGrace)
	case api.DeletionTimestamp != nil:
		pause = p.end(api, now, deletionGrace(api))
	case p.past:
		return never, false
	case p.finished:
		pause = p.end(api, now, terminationGrace(api))
	default:
		pause = p.drive(ctx, api, now)
	}
	deleting := gone || api.DeletionTimestamp != nil
	ended := deleting && !p.anyRuns()
	if gone {
		return pause, ended
	}
	var err error
	if !p.past {
		err = p.report(ctx, ended)
	}
	if err == nil && ended {
		if err = p.deleteObject(ctx, api); err == nil {
			return 0, true
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			p.kubelet.Log.WarnContext(ctx, "a pod's state was not reported, will try again", "pod", podName(api), "error", err)
		}
		pause = min(pause, retryInterval)
	}
	return pause, false
}

func (p *pod) anyRuns() bool {
	for _, c := range p.containers {
		if c.running() {
			return true
		}
	}
	return false
}

// end signals the containers to end, and kills them after grace. Sidecars are signalled last.
func (p *pod) end(api *corev1.Pod, now time.Time, grace time.Duration) time.Duration {
	if p.endingSince.IsZero() {
		p.endingSince = now
	}
	left := p.endingSince.Add(grace).Sub(now)
	sidecars := make(map[string]bool)
	for _, c := range api.Spec.InitContainers {
		sidecars[c.Name] = true
	}
	served := false
	for name, c := range p.containers {
		if c.running() && !sidecars[name] {
			served = true
		}
	}
	for name, c := range p.containers {
		switch {
		case !c.running():
		case left <= 0:
			c.run.kill()
		case !served || !sidecars[name]:
			if c.run.stop() {
				p.event(api, name, corev1.EventTypeNormal, "Killing", "Stopping container "+name)
			}
		}
	}
	if left <= 0 {
		return never // exits wake the worker
	}
	return left
}

// shutDown ends the containers together with the kubelet. Nothing is reported.
func (p *pod) shutDown() {
	for _, c := range p.containers {
		if c.running() {
			c.run.stop()
		}
	}
	patience := time.After(shutdownGrace)
	for _, c := range p.containers {
		if !c.running() {
			continue
		}
		select {
		case <-c.run.done:
		case <-patience:
			patience = time.After(0)
			c.run.kill()
			<-c.run.done
		}
	}
}

func (p *pod) cleanUp() {
	for _, c := range p.containers {
		if c.run != nil {
			c.run.discard()
		}
	}
	if err := os.RemoveAll(p.dir); err != nil {
		p.kubelet.Log.Warn("a pod's directory was not removed", "pod", podName(p.object()), "error", err)
	}
}

func deletionGrace(api *corev1.Pod) time.Duration {
	if s := api.DeletionGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return terminationGrace(api)
}

func terminationGrace(api *corev1.Pod) time.Duration {
	if s := api.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

func terminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

func podName(api *corev1.Pod) string { return api.Namespace + "/" + api.Name }
