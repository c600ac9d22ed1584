package kubelet

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// maxBackoff is the longest pause before a restart, as a multiple of the first one.
	maxBackoff = 10
	// configRetry is the pause before another attempt to start a container with an incomplete configuration.
	configRetry = 2 * time.Second
	// startErrorCode is the exit code of a container whose program could not be started, as in containerd.
	startErrorCode = 128
	// unknownCode is the exit code of a container whose end was not observed.
	unknownCode = 137
)

// container is one container of a pod, with all of its runs. Its pod's lock guards it.
type container struct {
	run      *run // present or last run; nil before the first, or if another kubelet ran it
	previous *run
	restarts int32
	state    corev1.ContainerState
	last     corev1.ContainerState
	id       string
	exit     *corev1.ContainerStateTerminated // result of the last run; nil while one runs or before the first
	retryAt  time.Time                        // earliest time of the next start
	failures int                              // consecutive failures, for the backoff
}

func (c *container) running() bool { return c.state.Running != nil }

// recall restores the state that another kubelet reported. Containers that were running then have ended.
func (p *pod) recall(api *corev1.Pod) {
	for _, statuses := range [][]corev1.ContainerStatus{
		api.Status.ContainerStatuses, api.Status.EphemeralContainerStatuses,
	} {
		for _, s := range statuses {
			c := &container{restarts: s.RestartCount, id: s.ContainerID, last: s.LastTerminationState}
			switch {
			case s.State.Running != nil:
				c.exit = &corev1.ContainerStateTerminated{
					ExitCode: unknownCode, Reason: "ContainerStatusUnknown", Message: "the kubelet ended, and the container with it",
					StartedAt: s.State.Running.StartedAt, FinishedAt: metav1.Now().Rfc3339Copy(), ContainerID: s.ContainerID,
				}
			case s.State.Terminated != nil:
				c.exit = s.State.Terminated
			default:
				c.exit = s.LastTerminationState.Terminated
			}
			if c.exit != nil {
				c.state = corev1.ContainerState{Terminated: c.exit}
				p.containers[s.Name] = c
			}
		}
	}
}

func (p *pod) container(name string) *container {
	c, ok := p.containers[name]
	if !ok {
		c = &container{}
		p.mu.Lock()
		p.containers[name] = c
		p.mu.Unlock()
	}
	return c
}

// drive starts the init containers one after the other, then all others. It returns the time of the next check.
func (p *pod) drive(ctx context.Context, api *corev1.Pod, now time.Time) time.Duration {
	pause := never
	if !p.initialised {
		for i := range api.Spec.InitContainers {
			spec := &api.Spec.InitContainers[i]
			policy := initPolicy(api, spec)
			pause = min(pause, p.advance(ctx, api, spec, policy, now))
			c := p.container(spec.Name)
			switch {
			case c.running() && policy == corev1.RestartPolicyAlways:
				continue // the others wait only for a sidecar's start
			case c.exit == nil || c.exit.ExitCode != 0:
				p.finished = c.exit != nil && !restarts(policy, c.exit)
				return pause
			}
		}
		p.initialised = true
	}
	for i := range api.Spec.InitContainers {
		if spec := &api.Spec.InitContainers[i]; initPolicy(api, spec) == corev1.RestartPolicyAlways {
			pause = min(pause, p.advance(ctx, api, spec, corev1.RestartPolicyAlways, now))
		}
	}
	p.finished = true
	for i := range api.Spec.Containers {
		spec := &api.Spec.Containers[i]
		policy := containerPolicy(api, spec)
		pause = min(pause, p.advance(ctx, api, spec, policy, now))
		if c := p.container(spec.Name); c.exit == nil || restarts(policy, c.exit) {
			p.finished = false
		}
	}
	for i := range api.Spec.EphemeralContainers {
		spec := corev1.Container(api.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		pause = min(pause, p.advance(ctx, api, &spec, corev1.RestartPolicyNever, now))
	}
	if p.finished {
		return 0
	}
	return pause
}

func restarts(policy corev1.RestartPolicy, exit *corev1.ContainerStateTerminated) bool {
	return policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && exit.ExitCode != 0
}

func containerPolicy(api *corev1.Pod, spec *corev1.Container) corev1.RestartPolicy {
	if spec.RestartPolicy != nil {
		return corev1.RestartPolicy(*spec.RestartPolicy)
	}
	return api.Spec.RestartPolicy
}

// initPolicy returns Always only for a sidecar. Other init containers must succeed once.
func initPolicy(api *corev1.Pod, spec *corev1.Container) corev1.RestartPolicy {
	if spec.RestartPolicy == nil && api.Spec.RestartPolicy != corev1.RestartPolicyNever {
		return corev1.RestartPolicyOnFailure
	}
	return containerPolicy(api, spec)
}

// advance returns the time of the next check.
func (p *pod) advance(ctx context.Context, api *corev1.Pod, spec *corev1.Container, policy corev1.RestartPolicy,
	now time.Time) time.Duration {
	c := p.container(spec.Name)
	if c.running() || c.exit != nil && !restarts(policy, c.exit) {
		return never
	}
	if wait := c.retryAt.Sub(now); wait > 0 {
		if c.exit != nil && c.state.Terminated != nil {
			p.update(func() {
				c.last = corev1.ContainerState{Terminated: c.exit}
				c.state = waiting("CrashLoopBackOff", fmt.Sprintf("back-off %s restarting container=%s pod=%s(%s)",
					wait.Round(time.Second), spec.Name, podName(api), api.UID))
			})
			p.event(api, spec.Name, corev1.EventTypeWarning, "BackOff", "Back-off restarting container "+spec.Name)
		}
		return wait
	}
	p.start(ctx, api, spec, c)
	if c.running() {
		return never
	}
	return max(0, time.Until(c.retryAt))
}

func (p *pod) start(ctx context.Context, api *corev1.Pod, spec *corev1.Container, c *container) {
	attempt := c.restarts
	if c.exit != nil {
		attempt++
	}
	next, err := p.newRun(ctx, api, spec, attempt)
	var failure *startError
	switch {
	case err == nil:
		p.event(api, spec.Name, corev1.EventTypeNormal, "Started", "Started container "+spec.Name)
	case errors.As(err, &failure):
		p.event(api, spec.Name, corev1.EventTypeWarning, "Failed", "Error: "+err.Error())
	default: // something is missing that may still arrive
		if c.state.Waiting == nil || c.state.Waiting.Message != err.Error() {
			p.event(api, spec.Name, corev1.EventTypeWarning, "Failed", "Error: "+err.Error())
		}
		p.update(func() {
			c.retryAt = time.Now().Add(configRetry)
			c.state = waiting("CreateContainerConfigError", err.Error())
		})
		return
	}
	if err == nil {
		p.startProbes(api, spec, next)
	}
	p.update(func() {
		if c.exit != nil {
			c.last = corev1.ContainerState{Terminated: c.exit}
		}
		c.previous.forget()
		c.previous, c.run = c.run, next
		c.restarts, c.exit, c.id, c.retryAt = attempt, nil, next.id, time.Time{}
		c.state = corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(next.started).Rfc3339Copy()},
		}
		if failure != nil {
			p.ended(c, startErrorCode, "StartError", failure.Error(), next.started)
		}
	})
}

func (p *pod) collectExits(api *corev1.Pod) {
	for _, c := range p.containers {
		if !c.running() {
			continue
		}
		select {
		case <-c.run.done:
		default:
			continue
		}
		reason := "Completed"
		if c.run.code != 0 {
			reason = "Error"
		}
		p.update(func() { p.ended(c, c.run.code, reason, "", c.run.ended) })
	}
}

// ended records the end of the present run. The pod must be locked.
func (p *pod) ended(c *container, code int, reason, message string, at time.Time) {
	c.exit = &corev1.ContainerStateTerminated{
		ExitCode: int32(code), Reason: reason, Message: message, ContainerID: c.id,
		StartedAt: metav1.NewTime(c.run.started).Rfc3339Copy(), FinishedAt: metav1.NewTime(at).Rfc3339Copy(),
	}
	c.state = corev1.ContainerState{Terminated: c.exit}
	base := p.kubelet.Backoff
	if at.Sub(c.run.started) > 2*maxBackoff*base {
		c.failures = 0
	}
	c.retryAt = at.Add(min(base<<min(c.failures, 10), maxBackoff*base))
	c.failures++
}

// update changes state that the HTTP API reads concurrently.
func (p *pod) update(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func (p *pod) event(api *corev1.Pod, name, kind, reason, message string) {
	ref := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: api.Namespace, Name: api.Name, UID: api.UID,
		ResourceVersion: api.ResourceVersion, FieldPath: fieldPath(api, name),
	}
	p.kubelet.recorder.Event(ref, kind, reason, message)
}

func fieldPath(api *corev1.Pod, name string) string {
	list := "containers"
	for _, c := range api.Spec.InitContainers {
		if c.Name == name {
			list = "initContainers"
		}
	}
	for _, c := range api.Spec.EphemeralContainers {
		if c.Name == name {
			list = "ephemeralContainers"
		}
	}
	return fmt.Sprintf("spec.%s{%s}", list, name)
}
