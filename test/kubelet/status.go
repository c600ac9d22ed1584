package kubelet

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"
)

// podIP is the address of pods without one of their own. All pods share the host's network.
const podIP = "127.0.0.1"

// report updates the pod's status if it has changed. last means that the pod's containers have ended and it is going to
// be deleted.
func (p *pod) report(ctx context.Context, last bool) error {
	known := p.object()
	if equality.Semantic.DeepEqual(known.Status, p.status(known, last)) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	// The known status may be older than the last report, and a patch needs the current one.
	pods := p.kubelet.Client.CoreV1().Pods(known.Namespace)
	current, err := pods.Get(ctx, known.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && current.UID != known.UID {
		return nil // the watch reports it
	}
	if err != nil {
		return fmt.Errorf("read the pod: %w", err)
	}
	status := p.status(current, last)
	if equality.Semantic.DeepEqual(current.Status, status) {
		return nil
	}
	patch, err := statusPatch(current, status)
	if err != nil {
		return err
	}
	if _, err := pods.Patch(ctx, current.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{},
		"status"); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("report the pod's status: %w", err)
	}
	return nil
}

// statusPatch returns a patch that keeps the parts of other writers and applies only to this pod's UID.
func statusPatch(current *corev1.Pod, status corev1.PodStatus) ([]byte, error) {
	from, err := json.Marshal(corev1.Pod{Status: current.Status})
	if err != nil {
		return nil, fmt.Errorf("encode the pod: %w", err)
	}
	to, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: current.UID}, Status: status})
	if err != nil {
		return nil, fmt.Errorf("encode the pod: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(from, to, corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("make a patch of the pod's status: %w", err)
	}
	return patch, nil
}

func (p *pod) deleteObject(ctx context.Context, api *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	err := p.kubelet.Client.CoreV1().Pods(api.Namespace).Delete(ctx, api.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To(int64(0)),
		Preconditions:      metav1.NewUIDPreconditions(string(api.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete the pod: %w", err)
	}
	return nil
}

// status returns the pod's current status, including the parts of other writers.
func (p *pod) status(api *corev1.Pod, last bool) corev1.PodStatus {
	s := *api.Status.DeepCopy()
	s.ObservedGeneration = api.Generation
	s.HostIP = p.kubelet.Address
	s.HostIPs = []corev1.HostIP{{IP: p.kubelet.Address}}
	s.PodIP = p.address
	s.PodIPs = []corev1.PodIP{{IP: p.address}}
	s.StartTime = &p.startTime
	s.InitContainerStatuses = p.initStatuses(api)
	s.ContainerStatuses = p.containerStatuses(api)
	s.EphemeralContainerStatuses = nil
	for _, c := range api.Spec.EphemeralContainers {
		spec := corev1.Container(c.EphemeralContainerCommon)
		s.EphemeralContainerStatuses = append(s.EphemeralContainerStatuses, p.containerStatus(&spec, "ContainerCreating"))
	}
	s.Phase = p.phase(api, last)
	p.setConditions(api, &s)
	return s
}

func (p *pod) initStatuses(api *corev1.Pod) []corev1.ContainerStatus {
	var statuses []corev1.ContainerStatus
	for i := range api.Spec.InitContainers {
		spec := &api.Spec.InitContainers[i]
		status := p.containerStatus(spec, "PodInitializing")
		if initPolicy(api, spec) != corev1.RestartPolicyAlways {
			status.Ready = status.State.Terminated != nil && status.State.Terminated.ExitCode == 0
		}
		statuses = append(statuses, status)
	}
	return statuses
}

func (p *pod) containerStatuses(api *corev1.Pod) []corev1.ContainerStatus {
	reason := "ContainerCreating"
	if !p.initialised && len(api.Spec.InitContainers) > 0 {
		reason = "PodInitializing"
	}
	var statuses []corev1.ContainerStatus
	for i := range api.Spec.Containers {
		statuses = append(statuses, p.containerStatus(&api.Spec.Containers[i], reason))
	}
	return statuses
}

func (p *pod) containerStatus(spec *corev1.Container, pending string) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: spec.Name, Image: spec.Image, State: waiting(pending, ""), Started: ptr.To(false)}
	c, ok := p.containers[spec.Name]
	if !ok || c.state == (corev1.ContainerState{}) {
		return s
	}
	s.State, s.LastTerminationState, s.RestartCount, s.ContainerID = c.state, c.last, c.restarts, c.id
	isStarted := c.running() && !c.run.unstarted.Load()
	s.Started = &isStarted
	s.Ready = isStarted && !c.run.unready.Load()
	return s
}

func (p *pod) phase(api *corev1.Pod, last bool) corev1.PodPhase {
	if terminal(api.Status.Phase) {
		return api.Status.Phase // final
	}
	failed, unstarted, running := false, false, false
	for i := range api.Spec.Containers {
		c := p.containers[api.Spec.Containers[i].Name]
		switch {
		case c == nil || c.exit == nil && !c.running():
			unstarted = true
		case c.running():
			running = true
		case c.exit.ExitCode != 0:
			failed = true
		}
	}
	over := last || p.finished && !running
	switch {
	case over && (failed || unstarted):
		return corev1.PodFailed
	case over:
		return corev1.PodSucceeded
	case unstarted:
		return corev1.PodPending
	}
	return corev1.PodRunning
}

func (p *pod) setConditions(api *corev1.Pod, s *corev1.PodStatus) {
	over := terminal(s.Phase)
	ready := !over
	var unready []string
	for _, c := range s.ContainerStatuses {
		if !c.Ready {
			ready = false
			unready = append(unready, c.Name)
		}
	}
	reason, message := "", ""
	switch {
	case s.Phase == corev1.PodSucceeded:
		reason = "PodCompleted"
	case s.Phase == corev1.PodFailed:
		reason = "PodFailed"
	case !ready:
		reason, message = "ContainersNotReady", fmt.Sprintf("containers with unready status: %v", unready)
	}
	p.setCondition(api, s, corev1.PodReadyToStartContainers, !over, "", "")
	if p.initialised || over && s.Phase == corev1.PodSucceeded {
		p.setCondition(api, s, corev1.PodInitialized, true, "", "")
	} else {
		p.setCondition(api, s, corev1.PodInitialized, false, "ContainersNotInitialized", "")
	}
	p.setCondition(api, s, corev1.ContainersReady, ready, reason, message)
	p.setCondition(api, s, corev1.PodReady, ready, reason, message)
}

func (p *pod) setCondition(api *corev1.Pod, s *corev1.PodStatus, kind corev1.PodConditionType, ok bool,
	reason, message string) {
	c := corev1.PodCondition{
		Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message,
		ObservedGeneration: api.Generation, LastTransitionTime: metav1.Now().Rfc3339Copy(),
	}
	if ok {
		c.Status = corev1.ConditionTrue
	}
	for i, old := range s.Conditions {
		if old.Type == kind {
			if old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
			s.Conditions[i] = c
			return
		}
	}
	s.Conditions = append(s.Conditions, c)
}
