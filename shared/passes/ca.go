package passes

import (
	"context"
	"errors"
	"fmt"

	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// CASecret names the secret with the CA of clients, certificate and key in PEM: where it is there, gateways make certificates.
const CASecret = "keys/client-ca"

// LoadCA returns the CA of clients, or an error that wraps secrets.ErrNotFound where certificates are made elsewhere.
func LoadCA(ctx context.Context, store secrets.Store) (*pki.CA, error) {
	s, err := store.Get(ctx, CASecret)
	if err != nil {
		return nil, err
	}
	ca, err := pki.ParseCA(s.Value.Reveal())
	if err != nil {
		return nil, fmt.Errorf("secret %s holds no CA that signs now", CASecret)
	}
	return ca, nil
}

// StoreCA keeps the CA of clients, in place of the one that is kept.
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
