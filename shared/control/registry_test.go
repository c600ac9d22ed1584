package control_test

import (
	"context"
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"

	"github.com/clusterpass/clusterpass/shared/control/registry"
)

// contended is a storage in which another writer is faster.
type contended struct {
	storage.Interface
	beforeUpdate, beforeDelete func()
}

func (c *contended) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object) error {
	if c.beforeUpdate != nil {
		c.beforeUpdate()
	}
	return c.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, tryUpdate, cached)
}

func (c *contended) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions) error {
	if c.beforeDelete != nil {
		c.beforeDelete()
	}
	return c.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
}

// registryTest has a registry whose storage is contended, and the registry of the other writer.
type registryTest struct {
	t             *testing.T
	ctx           context.Context // as the handlers pass it
	to            *contended
	roles, others *registry.Store
	deleted       []string
}

func newRegistryTest(t *testing.T) *registryTest {
	t.Helper()
	api := newInstallation(t).gateway().api
	r := &registryTest{t: t, roles: api.Roles(), others: api.Roles(),
		ctx: request.WithNamespace(t.Context(), metav1.NamespaceNone)}
	r.to = &contended{Interface: r.roles.Storage}
	r.roles.Storage = r.to
	r.roles.AfterDelete = func(_ context.Context, obj runtime.Object) {
		r.deleted = append(r.deleted, obj.(*rbacv1.ClusterRole).Name)
	}
	return r
}

func (r *registryTest) create(name string, finalizers ...string) {
	r.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}}
	if _, err := r.others.Create(r.ctx, role, nil, &metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// finalize removes the finalizers of role a, in to.
func (r *registryTest) finalize(to *registry.Store) {
	r.t.Helper()
	info := rest.DefaultUpdatedObjectInfo(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	if _, _, err := to.Update(r.ctx, "a", info, nil, nil, false, &metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *registryTest) delete(from *registry.Store) (deleted bool, err error) {
	r.t.Helper()
	_, deleted, err = from.Delete(r.ctx, "a", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
	return deleted, err
}

func (r *registryTest) expectDeleted(times int) {
	r.t.Helper()
	if _, err := r.others.Get(r.ctx, "a", &metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		r.t.Errorf("it is left: %v", err)
	}
	if len(r.deleted) != times {
		r.t.Errorf("AfterDelete was called for %v", r.deleted)
	}
}

// TestDeleteAfterFinalization fails if an object stays because another writer removed its finalizers meanwhile.
func TestDeleteAfterFinalization(t *testing.T) {
	r := newRegistryTest(t)
	r.create("a", "example.com/f")
	r.to.beforeUpdate = func() { r.finalize(r.others) }
	if deleted, err := r.delete(r.roles); !deleted || err != nil {
		t.Error(deleted, err)
	}
	r.expectDeleted(1)
}

// TestDeleteOfDeleted fails if the deletion of an object that another writer deleted meanwhile succeeds.
func TestDeleteOfDeleted(t *testing.T) {
	r := newRegistryTest(t)
	r.create("a", "example.com/f")
	r.to.beforeUpdate = func() {
		r.finalize(r.others)
		if _, err := r.delete(r.others); err != nil {
			t.Error(err)
		}
	}
	if _, err := r.delete(r.roles); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	r.expectDeleted(0)
}

// TestFinalizationOfDeleted fails if two updates that remove the last finalizer disturb each other.
func TestFinalizationOfDeleted(t *testing.T) {
	r := newRegistryTest(t)
	r.create("a", "example.com/f")
	if deleted, err := r.delete(r.others); deleted || err != nil {
		t.Fatal(deleted, err)
	}
	r.to.beforeDelete = func() { r.finalize(r.others) }
	r.finalize(r.roles)
	r.expectDeleted(1)
}

// TestDeleteManyObjects fails if the deletion of a collection ends after the first page that it reads.
func TestDeleteManyObjects(t *testing.T) {
	r := newRegistryTest(t)
	const objects = 501
	for i := range objects {
		r.create(fmt.Sprintf("role-%d", i))
	}
	list, err := r.roles.DeleteCollection(r.ctx, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{},
		&internalversion.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := list.(*rbacv1.ClusterRoleList)
	if len(got.Items) != objects || got.Continue != "" || len(r.deleted) != objects {
		t.Errorf("%d objects in the response, %d deleted", len(got.Items), len(r.deleted))
	}
	left, err := r.others.List(r.ctx, &internalversion.ListOptions{})
	if err != nil || len(left.(*rbacv1.ClusterRoleList).Items) != 0 {
		t.Errorf("%v, %v are left", err, left)
	}
}
