package fleet_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

func references(t *testing.T) (k e2e.Kubectl, namespace string) {
	t.Helper()
	k = fleet(t, `{apiVersion: v1, kind: "*"}, {apiVersion: rbac.authorization.k8s.io/v1, kind: "*"}`)
	return k, e2e.NewNamespace(t, e2e.Members...)
}

func mayGetPods(t *testing.T, cluster, namespace, account string) bool {
	t.Helper()
	as := "--as=system:serviceaccount:" + namespace + ":" + account
	r := e2e.Direct(cluster).Run(t, "auth", "can-i", "get", "pods", "-n", namespace, as)
	return strings.TrimSpace(r.Stdout) == "yes"
}

const subjectBinding = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: NAME@member1, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: see}
subjects: [{kind: ServiceAccount, name: NAME, namespace: NAMESPACE@CLUSTER}]
`

func subjectManifest(namespace, name, cluster string) string {
	return strings.NewReplacer("NAMESPACE", namespace, "NAME", name, "CLUSTER", cluster).Replace(subjectBinding)
}

// kustomize gives a binding and its account the namespace of a cluster.
func kustomize(t *testing.T, namespace, name string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for file, text := range map[string]string{
		"kustomization.yaml": "namespace: " + namespace + "@member1\nresources: [binding.yaml, account.yaml]\n",
		"binding.yaml":       subjectManifest(namespace, name, "member1"),
		"account.yaml":       "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: " + name + ", namespace: default}\n",
	} {
		if file != "kustomization.yaml" {
			text = strings.NewReplacer(namespace+"@member1", "default", ": "+namespace+"}", ": default}").Replace(text)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestFleetSubjectsTakeEffect: a binding that was made by name@cluster must give its account the right.
func TestFleetSubjectsTakeEffect(t *testing.T) {
	k, ns := references(t)
	d := e2e.Direct("member1")
	in := func(args ...string) []string { return append(args, "-n", ns) }
	d.Must(t, in("create", "role", "see", "--verb=get", "--resource=pods")...)
	cfg := e2e.FleetConfig(t, e2e.Shared(t).Kubeconfig, nil)
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	typed, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func(t *testing.T, name string){
		"apply": func(t *testing.T, name string) {
			k.WithInput(subjectManifest(ns, name, "member1")).Must(t, "apply", "-f", "-")
		},
		"server-side": func(t *testing.T, name string) {
			k.WithInput(subjectManifest(ns, name, "member1")).Must(t, "apply", "--server-side", "-f", "-")
		},
		"create": func(t *testing.T, name string) {
			account := "--serviceaccount=" + ns + "@member1:" + name
			k.Must(t, in("create", "rolebinding", name+"@member1", "--role=see@member1", account)...)
		},
		"kustomize": func(t *testing.T, name string) { k.Must(t, "apply", "-k", kustomize(t, ns, name)) },
		"patch": func(t *testing.T, name string) {
			d.Must(t, in("create", "rolebinding", name, "--role=see", "--user=someone")...)
			subject := `{"kind":"ServiceAccount","name":"` + name + `","namespace":"` + ns + `@member1"}`
			patch := `[{"op":"replace","path":"/subjects/0","value":` + subject + `}]`
			k.Must(t, in("patch", "rolebinding", name+"@member1", "--type=json", "-p", patch)...)
		},
		"protobuf": func(t *testing.T, name string) {
			_, err := typed.RbacV1().RoleBindings(ns).Create(t.Context(), &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "see@member1"},
				Subjects: []rbacv1.Subject{
					{Kind: rbacv1.ServiceAccountKind, Name: name + "@member1", Namespace: ns + "@member1"},
				},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, name)
			const subject = "jsonpath={.subjects[*].namespace}/{.subjects[*].name}"
			stored := d.Must(t, in("get", "rolebinding", name, "-o", subject)...)
			if stored != ns+"/"+name {
				t.Fatalf("the subject is %q", stored)
			}
			waittest.Until(t, "the account may get pods", func() bool { return mayGetPods(t, "member1", ns, name) })
			if mayGetPods(t, "member2", ns, name) {
				t.Error("the account may get pods in member2, too")
			}
		})
	}
	t.Run("another cluster", func(t *testing.T) {
		r := k.WithInput(subjectManifest(ns, "elsewhere", "member2")).Run(t, "create", "-f", "-")
		if r.Code == 0 || !strings.Contains(r.Stderr, `subjects[].namespace has "`+ns+`@member2"`) {
			t.Errorf("a subject of another cluster: %v", r)
		}
	})
}

// TestFleetRoleNamesWithAt: a binding that is read and written back must bind the same role.
func TestFleetRoleNamesWithAt(t *testing.T) {
	k, ns := references(t)
	d := e2e.Direct("member1")
	in := func(args ...string) []string { return append(args, "-n", ns) }
	for role, resource := range map[string]string{"dev": "nodes", "dev@member1": "pods", "dev@member2": "pods"} {
		d.Must(t, in("create", "role", role, "--verb=get", "--resource="+resource)...)
	}
	for name, role := range map[string]string{
		"own": "dev@member1", "other": "dev@member2", "plain": "dev", "mail": "dev@example.com",
	} {
		t.Run(name, func(t *testing.T) {
			d.Must(t, in("create", "rolebinding", name, "--role="+role, "--user=someone")...)
			for _, k := range []e2e.Kubectl{k, qualified(t, k)} {
				for _, called := range []string{name, name + "@member1"} {
					printed := k.Must(t, in("get", "rolebinding", called, "-o", "yaml")...)
					k.WithInput(printed).Must(t, "replace", "-f", "-")
				}
			}
			printed := k.Must(t, in("get", "rolebinding", name, "-o", "yaml")...)
			lines := slices.DeleteFunc(strings.Split(printed, "\n"), func(line string) bool {
				return strings.Contains(line, "uid:") || strings.Contains(line, "resourceVersion:")
			})
			renamed := strings.ReplaceAll(strings.Join(lines, "\n"), "  name: "+name+"\n", "  name: copy-of-"+name+"\n")
			k.WithInput(renamed).Must(t, "create", "-f", "-")
			for _, binding := range []string{name, "copy-of-" + name} {
				got := d.Must(t, in("get", "rolebinding", binding, "-o", "jsonpath={.roleRef.name}")...)
				if got != role {
					t.Errorf("%s binds %q, want %q", binding, got, role)
				}
			}
		})
	}
}

// TestFleetBoundTokens: kubectl must bind a token to a pod by the name that the fleet gives it.
func TestFleetBoundTokens(t *testing.T) {
	k, ns := references(t)
	for _, m := range e2e.Members {
		e2e.Direct(m).Apply(t, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: builder, namespace: `+ns+`}}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: `+ns+`}
spec:
  serviceAccountName: builder
  automountServiceAccountToken: false
  nodeSelector: {none: such}
  containers: [{name: c, image: one}]
`)
	}
	bound := func(pod string) []string {
		return []string{
			"create", "token", "builder@member1", "-n", ns, "--bound-object-kind=Pod", "--bound-object-name=" + pod,
		}
	}
	token := k.Must(t, bound("web-0@member1")...)
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil || !strings.Contains(string(claims), `"pod":{"name":"web-0"`) {
		t.Errorf("the token has the claims %s, %v", claims, err)
	}
	r := k.Run(t, bound("web-1@member1")...)
	if r.Code == 0 || !strings.Contains(r.Stderr, `pods "web-1@member1" not found`) {
		t.Errorf("bound to a pod that is not there: %v", r)
	}
	r = k.Run(t, bound("web-0@member2")...)
	if r.Code == 0 || !strings.Contains(r.Stderr, `spec.boundObjectRef.name has "web-0@member2"`) {
		t.Errorf("bound to a pod of another cluster: %v", r)
	}
}

const reconciled = `---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: see@member1, namespace: NAMESPACE}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: see@member1, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: see}
subjects: [{kind: ServiceAccount, name: builder, namespace: NAMESPACE}]
`

// TestFleetAuthReconcile: kubectl auth reconcile must make roles and bindings, without a further subject each time.
func TestFleetAuthReconcile(t *testing.T) {
	k, ns := references(t)
	d := e2e.Direct("member1")
	for _, namespace := range []string{ns, ns + "@member1", e2e.UniqueName(t) + "@member1"} {
		t.Run(namespace, func(t *testing.T) {
			own := strings.TrimSuffix(namespace, "@member1")
			t.Cleanup(func() {
				d.Run(t, "delete", "role,rolebinding", "see", "-n", own)
				if own != ns {
					d.Run(t, "delete", "namespace", own, "--wait=false")
				}
			})
			for range 3 {
				docs := strings.ReplaceAll(reconciled, "NAMESPACE", namespace)
				k.WithInput(docs).Must(t, "auth", "reconcile", "-f", "-")
			}
			const binds = "jsonpath={.roleRef.name}{range .subjects[*]} {.namespace}/{.name}{end}"
			if got := d.Must(t, "get", "rolebinding", "see", "-n", own, "-o", binds); got != "see "+own+"/builder" {
				t.Errorf("the binding is %q", got)
			}
			waittest.Until(t, "the account may get pods", func() bool { return mayGetPods(t, "member1", own, "builder") })
			if r := e2e.Direct("member2").Run(t, "get", "role", "see", "-n", own); r.Code == 0 {
				t.Errorf("member2 has the role, too: %v", r)
			}
		})
	}
}
