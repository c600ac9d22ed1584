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

// ServerCASecret is the secret with the CA of the certificates that bridges make for themselves, in PEM.
const ServerCASecret = "keys/server-ca"

// LoadCA returns the CA of client certificates. The error wraps secrets.ErrNotFound if the store has no CA.
func LoadCA(ctx context.Context, store secrets.Store) (*pki.CA, error) {
	return load(ctx, store, CASecret)
}

// LoadServerCA returns the CA of the certificates that bridges make for themselves. The error wraps secrets.ErrNotFound
// if no bridge has made one.
func LoadServerCA(ctx context.Context, store secrets.Store) (*pki.CA, error) {
	return load(ctx, store, ServerCASecret)
}

// EnsureServerCA is like LoadServerCA, but creates a missing CA. Bridges that start at once get the same.
func EnsureServerCA(ctx context.Context, store secrets.Store) (*pki.CA, error) {
	ca, err := LoadServerCA(ctx, store)
	if !errors.Is(err, secrets.ErrNotFound) {
		return ca, err
	}
	if ca, err = pki.NewCA("server-ca"); err != nil {
		return nil, err
	}
	pem, err := ca.KeyPair()
	if err != nil {
		return nil, err
	}
	_, err = store.Create(ctx, ServerCASecret, secrets.NewValue(pem), nil)
	if errors.Is(err, secrets.ErrExists) {
		return LoadServerCA(ctx, store)
	}
	return ca, err
}

func load(ctx context.Context, store secrets.Store, name string) (*pki.CA, error) {
	s, err := store.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	ca, err := pki.ParseCA(s.Value.Reveal())
	if err != nil {
		return nil, fmt.Errorf("secret %s contains no CA that is valid now", name)
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
