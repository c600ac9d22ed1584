package console

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/test/e2e"
)

// stepCommand waits for a step whose name is a command, runs the command in a shell as the owner, and lets the script
// continue. It returns what the command prints.
func (s *script) stepCommand() string {
	s.t.Helper()
	line := s.WaitForLine("step with a command", func(line string) bool {
		return strings.HasPrefix(line, "step kubectl ")
	})
	command := strings.TrimPrefix(line, "step ")
	ctx, cancel := context.WithTimeout(s.t.Context(), e2e.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir = s.t.TempDir()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e2e.Shared(s.t).Kubeconfig, "KUBECACHEDIR="+cmd.Dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("the command that the console shows fails: %s\n%v\n%s", command, err, out)
	}
	s.next("")
	return string(out)
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "shop"}}, Data: data,
	}
}

// TestTableFollowsWatch fails if the table misses what happens in a cluster, or if its URL or its command select
// other objects than it shows.
func TestTableFollowsWatch(t *testing.T) {
	e2e.CreateRegistry(t, "console-table", "{}", "{apiVersion: v1, kind: ConfigMap}")
	namespace := e2e.NewNamespace(t, e2e.Members...)
	one := e2e.DirectClient(t, "member1").CoreV1().ConfigMaps(namespace)
	two := e2e.DirectClient(t, "member2").CoreV1().ConfigMaps(namespace)
	for _, client := range []interface {
		Create(context.Context, *corev1.ConfigMap, metav1.CreateOptions) (*corev1.ConfigMap, error)
	}{one, two} {
		settings := configMap("settings", map[string]string{"a": ""})
		if _, err := client.Create(t.Context(), settings, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s := startAsOwner(t, "fleet.mjs", "NAMESPACE="+namespace)
	s.step("live")
	data := map[string]string{"a": "", "b": "", "c": "", "d": "", "e": "", "f": "", "g": ""}
	if _, err := two.Update(t.Context(), configMap("settings", data), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Create(t.Context(), configMap("added", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := one.Delete(t.Context(), "settings", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.next("")
	if out := s.stepCommand(); !strings.Contains(out, "added") || strings.Contains(out, "settings") {
		t.Errorf("the command of the fleet prints\n%s", out)
	}
	if out := s.stepCommand(); !strings.Contains(out, "settings") || strings.Contains(out, "added") {
		t.Errorf("the command of member2 prints\n%s", out)
	}
	s.end()
}

// TestHostileObjectIsText fails if a name or an annotation of a member's object runs a script. The script could act
// with the rights of the user. It also fails if a command that the console shows runs a part of a name.
func TestHostileObjectIsText(t *testing.T) {
	e2e.CreateRegistry(t, "console-hostile", "{}", `{apiVersion: rbac.authorization.k8s.io/v1, kind: "*"}`)
	namespace := e2e.NewNamespace(t, "member1")
	const name = `<img src=x onerror=hostile()>'$(touch ran)"`
	const markup = `</pre></script><img src=x onerror="hostile()"><svg onload=hostile()>{{hostile()}}javascript:hostile()`
	client := e2e.DirectClient(t, "member1")
	role, err := client.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: map[string]string{"hostile": markup, "reversed": "a\u202eb"},
		OwnerReferences: []metav1.OwnerReference{{ // the garbage collector ignores owners of unknown kinds
			APIVersion: "example.com/v1", Kind: "Hostile", Name: markup, UID: "c6f4bd7c-0f2e-4f0e-a0f0-5f6a4f2b5d11",
		}},
	}}, metav1.CreateOptions{FieldManager: "<b>hostile</b>"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Events(namespace).Create(t.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "hostile"}, Message: markup, Reason: markup, Type: "Warning",
		InvolvedObject: corev1.ObjectReference{Kind: "Role", Namespace: namespace, Name: name, UID: role.UID},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s := startAsOwner(t, "hostile.mjs", "NAMESPACE="+namespace, "NAME="+name, "MARKUP="+markup)
	for _, view := range []string{"table", "summary", "YAML"} {
		if out := s.stepCommand(); !strings.Contains(out, "onerror=hostile()") {
			t.Errorf("the command of the %s prints\n%s", view, out)
		}
	}
	s.stepCommand()
	s.end()
}
