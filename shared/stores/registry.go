package stores

import (
	"context"
	"encoding/json"
	"errors"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	clusterpassv1alpha1 "github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	searchv1alpha1 "github.com/clusterpass/clusterpass/shared/api/search/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/objects"
)

// DefaultRegistry is the name of the ResourceRegistry in a new store. It covers all kinds of all clusters.
const DefaultRegistry = "default"

// CreateDefaultRegistry creates DefaultRegistry in a new object store, so that the fleet shows something at once. A
// store is new until something other than the gateway's own keys is written. Other stores do not change. A gateway with
// a control-plane cluster must not call it.
func CreateDefaultRegistry(ctx context.Context, store objects.Store) error {
	if isNew, err := isNew(ctx, store); err != nil || !isNew {
		return err
	}
	r := searchv1alpha1.ResourceRegistry{
		TypeMeta: metav1.TypeMeta{APIVersion: searchv1alpha1.APIVersion, Kind: searchv1alpha1.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Name: DefaultRegistry, UID: uuid.NewUUID(), CreationTimestamp: metav1.Now().Rfc3339Copy(),
		},
		Spec: searchv1alpha1.ResourceRegistrySpec{
			ResourceSelectors: []searchv1alpha1.ResourceSelector{{APIVersion: searchv1alpha1.Any, Kind: searchv1alpha1.Any}},
		},
	}
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err = store.Create(ctx, searchv1alpha1.Prefix+r.Name, value); errors.Is(err, objects.ErrExists) {
		return nil // another program started at once
	}
	return err
}

// isNew reports whether all writes so far are the gateway's own: the keys that it publishes, and the installation's ID.
// Each write has its own revision, also a deletion. So a store whose revisions are not all known has, or had, other
// objects. Of an object, the creation and the last write are known. A store with keys that changed more often is not
// new.
func isNew(ctx context.Context, store objects.Store) (bool, error) {
	writes, err := store.Revision(ctx)
	if err != nil {
		return false, err
	}
	known := map[uint64]bool{}
	for _, prefix := range []string{clusterpassv1alpha1.KeyPrefix, clusterpassv1alpha1.InstallationKey} {
		page, err := store.List(ctx, prefix, 0, "")
		if err != nil {
			return false, err
		}
		for _, o := range page.Objects {
			known[o.Created], known[o.Revision] = true, true
		}
	}
	// A gateway that starts at the same time may have published keys since.
	maps.DeleteFunc(known, func(revision uint64, _ bool) bool { return revision > writes })
	return uint64(len(known)) == writes, nil
}
