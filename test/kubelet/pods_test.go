package kubelet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/clusterpass/clusterpass/shared/waittest"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestNode(t *testing.T) {
	t.Parallel()
	if got := must(t, "get", "node", world.node.name, "--no-headers"); !strings.Contains(got, " Ready ") {
		t.Errorf("node: %s", got)
	}
	waittest.Until(t, "the lease", func() bool {
		lease, err := world.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), world.node.name,
			metav1.GetOptions{})
		return err == nil && lease.Spec.RenewTime != nil
	})
}

func TestRunningPod(t *testing.T) {
	t.Parallel()
	name := runPod(t, script("exec sleep 1000"), func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "idle", Image: "pause"})
	})
	p := getPod(t, name)
	if p.Status.Phase != corev1.PodRunning || p.Status.PodIP != "127.0.0.1" || p.Status.HostIP != "127.0.0.1" ||
		p.Status.StartTime.IsZero() {
		t.Errorf("status %+v", p.Status)
	}
	for _, c := range p.Status.ContainerStatuses {
		if !c.Ready || c.State.Running == nil || c.State.Running.StartedAt.IsZero() || c.RestartCount != 0 ||
			!strings.HasPrefix(c.ContainerID, "process://") || c.Started == nil || !*c.Started {
			t.Errorf("container %+v", c)
		}
	}
	if got := must(t, "exec", name, "-c", "idle", "--", "echo", "awake"); got != "awake\n" {
		t.Errorf("exec in an idle container: %q", got)
	}
}

func TestEnds(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		script                 string
		policy                 corev1.RestartPolicy
		want                   corev1.PodPhase
		wantCode, wantRestarts int32
		wantReason             string
	}{
		"success":   {"exit 0", corev1.RestartPolicyNever, corev1.PodSucceeded, 0, 0, "Completed"},
		"failure":   {"exit 3", corev1.RestartPolicyNever, corev1.PodFailed, 3, 0, "Error"},
		"by signal": {"kill -KILL $$", corev1.RestartPolicyNever, corev1.PodFailed, 137, 0, "Error"},
		"success, at last": {
			`echo x >> $ONCE; [ $(wc -l < $ONCE) = 3 ]`, corev1.RestartPolicyOnFailure, corev1.PodSucceeded, 0, 2, "Completed",
		},
		"success, no resume": {"exit 0", corev1.RestartPolicyOnFailure, corev1.PodSucceeded, 0, 0, "Completed"},
	}
	for name, test := range tests {
		t.Run(strings.NewReplacer(" ", "-", ",", "").Replace(name), func(t *testing.T) {
			t.Parallel()
			once := filepath.Join(t.TempDir(), "once")
			pod := makePod(t, script("ONCE="+once+"; "+test.script), restart(test.policy))
			p := waitPod(t, pod, "ends", over)
			c := p.Status.ContainerStatuses[0]
			if p.Status.Phase != test.want || c.RestartCount != test.wantRestarts || c.Ready {
				t.Errorf("phase %s, %d restarts, ready %t; want %s, %d, false", p.Status.Phase, c.RestartCount, c.Ready, test.want,
					test.wantRestarts)
			}
			if e := c.State.Terminated; e == nil || e.ExitCode != test.wantCode || e.Reason != test.wantReason ||
				e.StartedAt.IsZero() || e.FinishedAt.IsZero() || e.ContainerID != c.ContainerID {
				t.Errorf("state %+v, want exit code %d, reason %s", c.State, test.wantCode, test.wantReason)
			}
		})
	}
}

func TestRestarts(t *testing.T) {
	t.Parallel()
	name := makePod(t, script("echo run; exit 5"))
	p := waitPod(t, name, "waits to be restarted", func(p *corev1.Pod) bool {
		c := p.Status.ContainerStatuses
		return len(c) == 1 && c[0].RestartCount >= 2 && c[0].State.Waiting != nil
	})
	c := p.Status.ContainerStatuses[0]
	if c.State.Waiting.Reason != "CrashLoopBackOff" || c.LastTerminationState.Terminated == nil ||
		c.LastTerminationState.Terminated.ExitCode != 5 {
		t.Errorf("container %+v", c)
	}
	if p.Status.Phase != corev1.PodRunning || ready(p) {
		t.Errorf("phase %s, ready %t", p.Status.Phase, ready(p))
	}
}

func TestProgramThatCannotStart(t *testing.T) {
	t.Parallel()
	name := makePod(t, restart(corev1.RestartPolicyNever), func(p *corev1.Pod) {
		p.Spec.Containers[0].Command = []string{"no-such-program"}
	})
	p := waitPod(t, name, "fails", over)
	e := p.Status.ContainerStatuses[0].State.Terminated
	if e == nil || e.Reason != "StartError" || e.ExitCode != 128 || !strings.Contains(e.Message, "no-such-program") {
		t.Errorf("state %+v", p.Status.ContainerStatuses[0].State)
	}
}

func TestInitContainers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "order")
	step := func(name, script string) corev1.Container {
		return corev1.Container{Name: name, Image: "none", Command: []string{"sh", "-c", script}}
	}
	note := func(s string) string { return "echo " + s + " >> " + file }
	name := makePod(t, script(note("main")), restart(corev1.RestartPolicyNever), func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{
			step("one", "sleep 0.3; "+note("one")),
			step("sidecar", "trap '"+note("sidecar-end")+"; exit' TERM; "+note("sidecar")+"; while :; do sleep 0.05; done"),
			step("two", "until grep -q sidecar "+file+"; do sleep 0.05; done; "+note("two")),
		}
		p.Spec.InitContainers[1].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	})
	p := waitPod(t, name, "ends", over)
	if p.Status.Phase != corev1.PodSucceeded {
		t.Errorf("phase %s", p.Status.Phase)
	}
	waittest.Until(t, "the sidecar is ended last", func() bool {
		return readFile(file) == "one\nsidecar\ntwo\nmain\nsidecar-end\n"
	})
}

func TestInitContainerThatFails(t *testing.T) {
	t.Parallel()
	name := makePod(t, script("echo never"), restart(corev1.RestartPolicyNever), func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "none", Command: []string{"false"}}}
	})
	p := waitPod(t, name, "fails", over)
	if p.Status.Phase != corev1.PodFailed || p.Status.ContainerStatuses[0].State.Waiting == nil {
		t.Errorf("status %+v", p.Status)
	}
}

func TestEnvironmentAndVolumes(t *testing.T) {
	t.Parallel()
	const name = "settings"
	text := "cat $CONTAINER_ROOT/etc/app/app.conf; cat etc/app/app.conf; cat $CONTAINER_ROOT/secret/renamed; ls run; " +
		"echo $0 $1 $GREETING $NAME $IP $PREFIX_greeting; pwd"
	pod := makePod(t, restart(corev1.RestartPolicyNever), func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.Command = []string{"sh", "-c", text}
		c.Args = []string{"$(GREETING)", "$(NOBODY)$$(NAME)"}
		c.EnvFrom = []corev1.EnvFromSource{
			{
				Prefix:       "PREFIX_",
				ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}},
			},
		}
		c.Env = []corev1.EnvVar{
			{
				Name:      "NAME",
				ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['app']"}},
			},
			{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
			{Name: "GREETING", Value: "$(PREFIX_greeting)-$(NAME)"},
		}
		p.Labels = map[string]string{"app": "settings-app"}
		c.VolumeMounts = []corev1.VolumeMount{
			{Name: "config", MountPath: "/etc/app"}, {Name: "secret", MountPath: "/secret"},
			{Name: "scratch", MountPath: "/run", SubPath: "a"}, {Name: "scratch", MountPath: "/scratch"},
		}
		p.Spec.Volumes = []corev1.Volume{
			{
				Name: "config",
				VolumeSource: corev1.VolumeSource{
					ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}},
				},
			},
			{
				Name: "secret",
				VolumeSource: corev1.VolumeSource{
					Secret: &corev1.SecretVolumeSource{
						SecretName: name, Items: []corev1.KeyToPath{{Key: "password", Path: "renamed"}},
					},
				},
			},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}
	})
	// A missing object delays the container, and the status contains the reason.
	waitPod(t, pod, "waits for its settings", func(p *corev1.Pod) bool {
		c := p.Status.ContainerStatuses
		return len(c) == 1 && c[0].State.Waiting != nil && c[0].State.Waiting.Reason == "CreateContainerConfigError" &&
			strings.Contains(c[0].State.Waiting.Message, name)
	})
	core := world.client.CoreV1()
	t.Cleanup(func() { must(t, "delete", "secret,configmap", name) })
	if _, err := core.Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"password": "sesame\n"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := core.ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"greeting": "hi", "app.conf": "x=1\n"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p := waitPod(t, pod, "ends", over)
	dir := filepath.Join(world.node.root, "pods", string(p.UID), "containers", "main", "0")
	want := "x=1\nx=1\nsesame\nhi-settings-app $(NOBODY)$(NAME) hi-settings-app settings-app 127.0.0.1 hi\n" + dir + "\n"
	if got := must(t, "logs", pod); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestUnsupportedVolume(t *testing.T) {
	t.Parallel()
	name := makePod(t, script("echo never"), func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{
			{Name: "share", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "example", Path: "/"}}},
		}
	})
	waitPod(t, name, "says why it waits", func(p *corev1.Pod) bool {
		c := p.Status.ContainerStatuses
		return len(c) == 1 && c[0].State.Waiting != nil &&
			c[0].State.Waiting.Message == "volume share: its type is not supported by the process kubelet"
	})
}

// TestGracefulDeletion: a container can end by itself, and its end is reported before the pod is gone.
func TestGracefulDeletion(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "end")
	name := runPod(t,
		script("trap 'sleep 0.3; echo bye > "+file+"; exit 0' TERM; echo ready; while :; do sleep 0.05; done"))
	waittest.Until(t, "the trap is set", func() bool { return must(t, "logs", name) == "ready\n" })
	must(t, "delete", "pod", name, "--wait")
	if got := readFile(file); got != "bye\n" {
		t.Errorf("the container did not end by itself: %q", got)
	}
}

func TestDeletionKills(t *testing.T) {
	t.Parallel()
	name := runPod(t,
		script("trap '' TERM; setsid sh -c 'echo $$; while :; do sleep 0.1; done' & while :; do sleep 0.1; done"))
	var pid int
	waittest.Until(t, "the child's id", func() bool {
		var err error
		pid, err = strconv.Atoi(strings.TrimSpace(must(t, "logs", name)))
		return err == nil
	})
	must(t, "delete", "pod", name, "--grace-period=1", "--wait")
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("process %d is still there: %v", pid, err)
	}
	if _, err := world.client.CoreV1().Pods("default").Get(t.Context(), name,
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pod is still there: %v", err)
	}
}

func TestForcedDeletion(t *testing.T) {
	t.Parallel()
	name := runPod(t, script("trap '' TERM; echo $$; while :; do sleep 0.1; done"))
	uid := getPod(t, name).UID
	waittest.Until(t, "the process runs", func() bool { return must(t, "logs", name) != "" })
	must(t, "delete", "pod", name, "--force", "--grace-period=0")
	waittest.Until(t, "nothing is left of the pod", func() bool {
		_, err := os.Stat(filepath.Join(world.node.root, "pods", string(uid)))
		return os.IsNotExist(err)
	})
}

func TestRollout(t *testing.T) {
	t.Parallel()
	must(t, "create", "deployment", "web", "--image=none", "--replicas=3", "--", "sh", "-c", "echo up; exec sleep 1000")
	t.Cleanup(func() { must(t, "delete", "deployment", "web", "--cascade=foreground") })
	if got := must(t, "rollout", "status", "deployment/web"); !strings.Contains(got, "successfully rolled out") {
		t.Errorf("rollout: %s", got)
	}
	must(t, "set", "env", "deployment/web", "A=b")
	must(t, "rollout", "status", "deployment/web")
	// kubectl may choose an older pod that is still ending.
	waittest.Until(t, "the new pods have A=b", func() bool {
		return kubectl(t, nil, "exec", "deployment/web", "--", "sh", "-c", "echo $A").stdout == "b\n"
	})
}

func TestJob(t *testing.T) {
	t.Parallel()
	must(t, "create", "job", "once", "--image=none", "--", "sh", "-c", "echo done")
	t.Cleanup(func() { must(t, "delete", "job", "once") })
	must(t, "wait", "--for=condition=complete", "job/once", "--timeout="+fmt.Sprint(patience))
	if got := must(t, "logs", "job/once"); got != "done\n" {
		t.Errorf("log %q", got)
	}
}
