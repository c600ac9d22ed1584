// Package override stores an operator's decision to allow requests while audit events cannot be recorded. It is an
// object in the store, so that it reaches every process within seconds. It ends at a set time.
package override

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/clusterpass/clusterpass/shared/objects"
)

const key = "audit/override"

// Override is the decision of an operator.
type Override struct {
	Until  time.Time `json:"until"`
	Reason string    `json:"reason,omitempty"`
}

// InForce reports whether an override has not ended yet at now. Its errors are the store's.
func InForce(ctx context.Context, store objects.Store, now time.Time) (bool, error) {
	o, err := store.Get(ctx, key)
	if errors.Is(err, objects.ErrNotFound) {
		return false, nil
	}
	var override Override
	if err == nil {
		err = json.Unmarshal(o.Value, &override)
	}
	return err == nil && now.Before(override.Until), err
}

// Set replaces the override. An Until in the past ends it. Errors are the store's. Of several concurrent callers, all
// but one may get objects.ErrConflict or objects.ErrExists.
func Set(ctx context.Context, store objects.Store, override Override) error {
	value, err := json.Marshal(override)
	if err != nil {
		return err
	}
	old, err := store.Get(ctx, key)
	switch {
	case errors.Is(err, objects.ErrNotFound):
		_, err = store.Create(ctx, key, value)
	case err == nil:
		_, err = store.Update(ctx, key, value, old.Revision)
	}
	if err != nil {
		return fmt.Errorf("store the override of the audit log: %w", err)
	}
	return nil
}
