package kubelet_test

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/clusterpass/clusterpass/test/kubelet"
)

// probed makes a pod a server at an address of its own in network, with probes for the files started, ready and live.
func probed(t *testing.T, network string) podOption {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	probe := func(path string) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("http")},
			},
			PeriodSeconds: 1, FailureThreshold: 2, TimeoutSeconds: 60,
		}
	}
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{kubelet.AddressAnnotation: network}
		c := &p.Spec.Containers[0]
		c.Command = []string{self}
		c.Env = []corev1.EnvVar{
			{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
			{Name: probedEnv, Value: "$(IP):7080"},
		}
		c.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 7080}}
		c.StartupProbe, c.ReadinessProbe, c.LivenessProbe = probe("/started"), probe("/ready"), probe("/live")
		c.StartupProbe.FailureThreshold = 1000
	}
}

// TestProbes fails if tests of charts do not notice wrong probes, or if two pods cannot listen on one port.
func TestProbes(t *testing.T) {
	t.Parallel()
	touch := func(pod string, files ...string) {
		must(t, append([]string{"exec", pod, "--", "touch"}, files...)...)
	}
	network, names := kubelet.NewNetwork(), map[string]string{}
	for _, name := range []string{"one", "two"} {
		names[name] = makePod(t, probed(t, network), func(p *corev1.Pod) { p.Name += "-" + name })
	}
	for _, name := range names {
		waitPod(t, name, "runs", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
		touch(name, "live", "started")
		waitPod(t, name, "has started, and is not ready", func(p *corev1.Pod) bool {
			s := p.Status.ContainerStatuses[0]
			return s.Started != nil && *s.Started && !s.Ready && !ready(p)
		})
		touch(name, "ready")
		waitPod(t, name, "is ready", ready)
	}
	one, two := getPod(t, names["one"]).Status.PodIP, getPod(t, names["two"]).Status.PodIP
	prefix := strings.TrimSuffix(network, "0/24")
	if one == two || !strings.HasPrefix(one, prefix) || !strings.HasPrefix(two, prefix) {
		t.Errorf("the addresses %s and %s", one, two)
	}
	must(t, "exec", names["one"], "--", "rm", "ready")
	waitPod(t, names["one"], "is unready", func(p *corev1.Pod) bool { return !ready(p) })
	must(t, "exec", names["two"], "--", "rm", "live")
	waitPod(t, names["two"], "was restarted", func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].RestartCount == 1
	})
}
