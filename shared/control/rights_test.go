package control_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// rightsTest is a gateway with a user eve, who may write roles and get member1.
type rightsTest struct {
	t         *testing.T
	ctx       context.Context //nolint:containedctx // that of the test
	root, eve dynamic.Interface
}

const roleWriter = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: role-writer},
rules: [
{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles, clusterrolebindings],
verbs: [create, update, patch, get%s]},
%s]}`

// newRightsTest returns when eve's rights are in force. By then she has created the role mine.
func newRightsTest(t *testing.T) *rightsTest {
	t.Helper()
	d := newInstallation(t).gateway()
	r := &rightsTest{t, testContext(t), d.dynamic(d.master()), d.dynamic(d.config("eve"))}
	r.apply(fmt.Sprintf(roleWriter, "",
		"{apiGroups: [cluster.karmada.io], resources: [clusters/proxy], resourceNames: [member1], verbs: [get]}"))
	r.apply(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: role-writer},
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: role-writer},
subjects: [{kind: User, name: eve}]}`)
	r.createWhenAllowed(clusterRole("mine", "member1", "get"))
	return r
}

func clusterRole(name, cluster, verb string) string {
	return fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: %s}, rules: [
{apiGroups: [cluster.karmada.io], resources: [clusters/proxy], resourceNames: [%s], verbs: [%s]}]}`,
		name, cluster, verb)
}

func roleBinding(role string) string {
	return fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: b-%s},
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s},
subjects: [{kind: User, name: mallory}]}`, role, role)
}

func (r *rightsTest) apply(doc string) {
	r.t.Helper()
	obj := object(r.t, doc)
	gvr := roleGVR
	if obj.GetKind() == "ClusterRoleBinding" {
		gvr = bindingGVR
	}
	if _, err := r.root.Resource(gvr).Apply(r.ctx, obj.GetName(), obj,
		metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rightsTest) create(doc string) error {
	r.t.Helper()
	obj := object(r.t, doc)
	gvr := roleGVR
	if obj.GetKind() == "ClusterRoleBinding" {
		gvr = bindingGVR
	}
	_, err := r.eve.Resource(gvr).Create(r.ctx, obj, metav1.CreateOptions{})
	return err
}

func (r *rightsTest) createWhenAllowed(doc string) {
	r.t.Helper()
	for {
		err := r.create(doc)
		if err == nil {
			return
		} else if !apierrors.IsForbidden(err) || r.ctx.Err() != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rightsTest) patch(role string, form types.PatchType, patch string) error {
	r.t.Helper()
	_, err := r.eve.Resource(roleGVR).Patch(r.ctx, role, form, []byte(patch), metav1.PatchOptions{})
	return err
}

func TestWithoutRole(t *testing.T) {
	d := newInstallation(t).gateway()
	eve := d.dynamic(d.config("eve"))
	if _, err := eve.Resource(clusterGVR).List(testContext(t), metav1.ListOptions{}); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), `User "eve" cannot list resource "clusters" in API group "cluster.karmada.io"`) {
		t.Errorf("without a role: %v", err)
	}
	for _, path := range []string{"/api", "/apis", "/apis/cluster.karmada.io/v1alpha1", "/openapi/v2", "/openapi/v3",
		"/version", "/readyz"} {
		if code, answer := d.call(d.config("eve"), "GET", path, "", ""); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, answer)
		}
	}
}

func TestRights(t *testing.T) {
	r := newRightsTest(t)
	if err := r.create(roleBinding("mine")); err != nil { // the role was created a moment ago
		t.Errorf("a role with eve's own rights: %v", err)
	}
	for _, doc := range []string{clusterRole("more", "member1", "create"), clusterRole("other", "member2", "get"),
		clusterRole("all", "member1", `"*"`)} {
		if err := r.create(doc); !apierrors.IsForbidden(err) ||
			!strings.Contains(err.Error(), "attempting to grant RBAC permissions not currently held") {
			t.Errorf("%s: %v", doc, err)
		}
	}
	const allVerbs = `[{"op":"replace","path":"/rules/0/verbs","value":["*"]}]`
	if err := r.patch("mine", types.JSONPatchType, allVerbs); !apierrors.IsForbidden(err) {
		t.Errorf("a patch: %v", err)
	}
	if _, err := r.eve.Resource(roleGVR).Apply(r.ctx, "more", object(t, clusterRole("more", "member1", "create")),
		metav1.ApplyOptions{FieldManager: "eve"}); !apierrors.IsForbidden(err) {
		t.Errorf("an apply that creates: %v", err)
	}
	if err := r.patch("mine", types.MergePatchType, `{"metadata":{"labels":{"a":"b"}}}`); err != nil {
		t.Errorf("a label: %v", err)
	}
	r.apply(clusterRole("more", "member1", "create"))
	if err := r.create(roleBinding("more")); !apierrors.IsForbidden(err) {
		t.Errorf("a role with rights that eve lacks: %v", err)
	}
	// A label may make another role aggregate the rules.
	const aggregate = `{"metadata":{"labels":{"aggregate":"yes"}}}`
	if err := r.patch("more", types.MergePatchType, aggregate); !apierrors.IsForbidden(err) {
		t.Errorf("a label on a role with rights that eve lacks: %v", err)
	}
	if err := r.create(roleBinding("missing")); !apierrors.IsForbidden(err) {
		t.Errorf("a role that does not exist: %v", err)
	}
}

func TestEscalateAndBind(t *testing.T) {
	r := newRightsTest(t)
	r.apply(clusterRole("more", "member1", "create"))
	r.apply(fmt.Sprintf(roleWriter, ", escalate",
		"{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [more], verbs: [bind]}"))
	r.createWhenAllowed(clusterRole("escalated", "member9", "create"))
	if err := r.create(roleBinding("more")); err != nil {
		t.Errorf("with bind: %v", err)
	}
	if err := r.create(roleBinding("escalated")); !apierrors.IsForbidden(err) {
		t.Errorf("bind on another role: %v", err)
	}
}

func TestDeletedBinding(t *testing.T) {
	r := newRightsTest(t)
	if err := r.root.Resource(bindingGVR).Delete(r.ctx, "role-writer", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for {
		err := r.create(clusterRole("late", "member1", "get"))
		if apierrors.IsForbidden(err) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if err := r.root.Resource(roleGVR).Delete(r.ctx, "late", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// A rule without resources would grant nothing, so it must be rejected.
func TestInvalidRole(t *testing.T) {
	d := newInstallation(t).gateway()
	const doc = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: bad},
rules: [{verbs: [get]}]}`
	if _, err := d.dynamic(d.master()).Resource(roleGVR).Create(testContext(t), object(t, doc),
		metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a rule of nothing: %v", err)
	}
}
