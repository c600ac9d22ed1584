package stores

import (
	"context"
	"encoding/json"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/clusterpass/clusterpass/shared/access"
	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	clusterpassv1alpha1 "github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	searchv1alpha1 "github.com/clusterpass/clusterpass/shared/api/search/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/objects"
)

// DefaultRegistry is the name of the ResourceRegistry in a new store. It covers all kinds of all clusters.
const DefaultRegistry = "default"

// DecisionKey is the key of an object that exists once it was decided whether a store gets the DefaultRegistry.
const DecisionKey = "installation/default-registry"

// CreateDefaultRegistry creates DefaultRegistry in a new object store, so that the fleet shows something at once. A
// store is new if it has nothing but the gateway's own keys. The decision is made once for each store, so that a
// deleted registry does not return. A gateway with a control-plane cluster must not call it.
func CreateDefaultRegistry(ctx context.Context, store objects.Store) error {
	if _, err := store.Get(ctx, DecisionKey); !errors.Is(err, objects.ErrNotFound) {
		return err
	}
	isNew, err := isNew(ctx, store)
	if err == nil && isNew {
		err = createRegistry(ctx, store)
	}
	if err != nil {
		return err
	}
	if _, err = store.Create(ctx, DecisionKey, nil); errors.Is(err, objects.ErrExists) {
		return nil // another program started at once
	}
	return err
}

func createRegistry(ctx context.Context, store objects.Store) error {
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

// userPrefixes are the prefixes of everything that users and administrators write.
var userPrefixes = []string{
	clusterv1alpha1.Prefix, searchv1alpha1.Prefix, access.RolePrefix, access.BindingPrefix,
	clusterpassv1alpha1.PassPrefix, clusterpassv1alpha1.RevocationPrefix, clusterpassv1alpha1.AgentPrefix,
	clusterpassv1alpha1.RecordingPolicyPrefix,
}

func isNew(ctx context.Context, store objects.Store) (bool, error) {
	for _, prefix := range userPrefixes {
		page, err := store.List(ctx, prefix, 1, "")
		if err != nil || len(page.Objects) > 0 {
			return false, err
		}
	}
	return true, nil
}
