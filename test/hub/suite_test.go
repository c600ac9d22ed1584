package hub

import (
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/objects"
	objectskubernetes "github.com/clusterpass/clusterpass/shared/objects/kubernetes"
	objectstest "github.com/clusterpass/clusterpass/shared/objects/storetest"
	"github.com/clusterpass/clusterpass/shared/secrets"
	secretskubernetes "github.com/clusterpass/clusterpass/shared/secrets/kubernetes"
	secretstest "github.com/clusterpass/clusterpass/shared/secrets/storetest"
	"github.com/clusterpass/clusterpass/shared/storesuite"
)

// TestSecrets runs the suite of every secret store, as a user with the rights of the gateway alone.
func TestSecrets(t *testing.T) {
	secretstest.Run(t, secretstest.Config{
		New: func(t *testing.T) func() secrets.Store {
			name, user := cached.namespace(t)
			return func() secrets.Store { return secretskubernetes.New(newClient(t, user, name)) }
		},
		Denied: func(t *testing.T) secrets.Store {
			name, user := cached.namespace(t)
			cached.revoke(t, name, user)
			return secretskubernetes.New(newClient(t, user, name))
		},
		Throttled: func(t *testing.T) (secrets.Store, func(int)) {
			client, throttle := cached.throttled(t)
			return secretskubernetes.New(client), throttle
		},
	})
}

// TestObjects runs the suite of every object store, as a user with the rights of the gateway alone. An API server that
// caches watches keeps more history than its etcd.
func TestObjects(t *testing.T) {
	for name, i := range map[string]*installation{"cached": cached, "uncached": uncached} {
		t.Run(name, func(t *testing.T) {
			c := objectstest.Config{Config: storesuite.Config[objects.Store]{
				New: func(t *testing.T) func() objects.Store {
					name, user := i.namespace(t)
					return func() objects.Store {
						// The other gateways of an installation announce at any time, too.
						return objectskubernetes.New(objectskubernetes.Config{
							Client: newClient(t, user, name), AnnounceEvery: 50 * time.Millisecond,
						})
					}
				},
				Denied: func(t *testing.T) objects.Store {
					name, user := i.namespace(t)
					i.revoke(t, name, user)
					return objectskubernetes.New(objectskubernetes.Config{Client: newClient(t, user, name)})
				},
				Throttled: func(t *testing.T) (objects.Store, func(int)) {
					client, throttle := i.throttled(t)
					return objectskubernetes.New(objectskubernetes.Config{Client: client}), throttle
				},
			}}
			if i == uncached {
				c.Compact = func(t *testing.T, _ objects.Store, to uint64) { i.compact(t, to) }
			}
			objectstest.Run(t, c)
		})
	}
}
