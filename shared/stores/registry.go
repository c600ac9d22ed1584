package stores

import (
	"context"
	"encoding/json"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	clusterpassv1alpha1 "github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	searchv1alpha1 "github.com/clusterpass/clusterpass/shared/api/search/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/objects"
)

// DefaultRegistry is the name of the ResourceRegistry in a new store. It covers all kinds of all clusters.
const DefaultRegistry = "default"

// CreateDefaultRegistry creates DefaultRegistry in a new object store, so that the fleet shows something at once. It
// changes no other store. A gateway with a control-plane cluster must not call it.
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

// isNew reports whether all writes so far registered clusters, as clusterpass cluster add does before the first start
// of a gateway. Each write increases the revision, so that changes and deletions count, too.
func isNew(ctx context.Context, store objects.Store) (bool, error) {
	writes, err := store.Revision(ctx)
	if err != nil {
		return false, err
	}
	creations := 0
	for _, prefix := range []string{clusterv1alpha1.Prefix, clusterpassv1alpha1.InstallationKey} {
		page, err := store.List(ctx, prefix, 0, "")
		if err != nil {
			return false, err
		}
		creations += len(page.Objects)
	}
	return writes == uint64(creations), nil
}
