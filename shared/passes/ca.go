package passes

import (
	"context"
	"errors"
	"fmt"

	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// CASecret is the secret with the CA of client certificates, in PEM. Programs that can read it can issue certificates.
const CASecret = "keys/client-ca"

// LoadCA returns the CA of client certificates. The error wraps secrets.ErrNotFound if the store has no CA.
func LoadCA(ctx context.Context, store secrets.Store) (*pki.CA, error) {
	s, err := store.Get(ctx, CASecret)
	if err != nil {
		return nil, err
	}
	ca, err := pki.ParseCA(s.Value.Reveal())
	if err != nil {
		return nil, fmt.Errorf("secret %s contains no CA that is valid now", CASecret)
	}
	return ca, nil
}

// StoreCA stores the CA of client certificates, and replaces an earlier one.
func StoreCA(ctx context.Context, store secrets.Store, ca *pki.CA) error {
	pem, err := ca.KeyPair()
	if err != nil {
		return err
	}
	value := secrets.NewValue(pem)
	for range attempts {
		old, err := store.Get(ctx, CASecret)
		switch {
		case errors.Is(err, secrets.ErrNotFound):
			_, err = store.Create(ctx, CASecret, value, nil)
		case err != nil:
			return err
		case old.Value.Equal(value):
			return nil
		default:
			_, err = store.Replace(ctx, CASecret, old.Version, value)
		}
		if !errors.Is(err, secrets.ErrConflict) && !errors.Is(err, secrets.ErrExists) {
			return err
		}
	}
	return fmt.Errorf("secret %s: %w", CASecret, secrets.ErrConflict)
}
