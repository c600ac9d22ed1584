package access

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"

	"github.com/clusterpass/clusterpass/shared/objects"
)

// Prefixes of the keys of roles and bindings in the object store.
const (
	RolePrefix    = "clusterroles/"
	BindingPrefix = "clusterrolebindings/"
)

// Store is the part of objects.Store that an Authorizer needs.
type Store interface {
	objects.Lister
	objects.Log
}

const pageSize = 1000

// snapshot is an immutable set of all roles and bindings at one revision of the store.
type snapshot struct {
	revision uint64
	roles    map[string]*rbacv1.ClusterRole
	bindings map[string]*rbacv1.ClusterRoleBinding
	policy   *Policy
}

// next returns the current state of the store. It reads the changes since s, or everything if s is nil or too old.
func (s *snapshot) next(ctx context.Context, store Store, log *slog.Logger) (*snapshot, error) {
	if s == nil {
		return load(ctx, store, log)
	}
	limit := max(pageSize, len(s.roles)+len(s.bindings)) // for more changes, everything costs less
	changes, rev, err := store.Changes(ctx, s.revision, limit)
	if errors.Is(err, objects.ErrCompacted) { // also if the store was replaced or restored
		return load(ctx, store, log)
	} else if err != nil {
		return nil, err
	}
	if rev == s.revision {
		return s, nil
	}
	events := slices.DeleteFunc(changes, func(e objects.Event) bool {
		return !strings.HasPrefix(e.Object.Key, RolePrefix) && !strings.HasPrefix(e.Object.Key, BindingPrefix)
	})
	n := &snapshot{revision: rev, roles: s.roles, bindings: s.bindings, policy: s.policy}
	if len(events) > 0 {
		n.roles, n.bindings = maps.Clone(s.roles), maps.Clone(s.bindings)
		for _, e := range events {
			n.put(e.Object, e.Type == objects.Deleted, log)
			n.revision = max(n.revision, e.Object.Revision)
		}
		n.compile()
	}
	return n, nil
}

// load reads all roles and bindings. It then applies the changes that were written meanwhile. Otherwise a role and a
// binding of different moments could grant a right that never existed.
func load(ctx context.Context, store Store, log *slog.Logger) (*snapshot, error) {
	n := &snapshot{roles: map[string]*rbacv1.ClusterRole{}, bindings: map[string]*rbacv1.ClusterRoleBinding{}}
	for i, prefix := range []string{RolePrefix, BindingPrefix} {
		cont := ""
		for {
			page, err := store.List(ctx, prefix, pageSize, cont)
			if err != nil {
				return nil, err
			}
			for _, o := range page.Objects {
				n.put(o, false, log)
			}
			if i == 0 && cont == "" {
				n.revision = page.Revision
			}
			if cont = page.Continue; cont == "" {
				break
			}
		}
	}
	n.compile()
	return n.next(ctx, store, log)
}

// put applies a write or a deletion. An object that cannot be read grants nothing.
func (n *snapshot) put(o objects.Object, deleted bool, log *slog.Logger) {
	var err error
	if name, ok := strings.CutPrefix(o.Key, RolePrefix); ok {
		delete(n.roles, name)
		if r := (&rbacv1.ClusterRole{}); !deleted {
			if err = json.UnmarshalCaseSensitivePreserveInts(o.Value, r); err == nil {
				r.ObjectMeta = metav1.ObjectMeta{Name: name, Labels: r.Labels} // other metadata would only use memory
				n.roles[name] = r
			}
		}
	} else if name, ok := strings.CutPrefix(o.Key, BindingPrefix); ok {
		delete(n.bindings, name)
		if b := (&rbacv1.ClusterRoleBinding{}); !deleted {
			if err = json.UnmarshalCaseSensitivePreserveInts(o.Value, b); err == nil {
				b.ObjectMeta = metav1.ObjectMeta{Name: name}
				n.bindings[name] = b
			}
		}
	}
	if err != nil {
		log.Error("an RBAC object cannot be read and grants nothing", "key", o.Key, "error", err.Error())
	}
}

func (n *snapshot) compile() {
	roles := make([]*rbacv1.ClusterRole, 0, len(n.roles))
	for _, name := range slices.Sorted(maps.Keys(n.roles)) {
		roles = append(roles, n.roles[name])
	}
	n.policy = Compile(roles, slices.Collect(maps.Values(n.bindings)))
}
