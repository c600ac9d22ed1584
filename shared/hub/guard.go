package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/clusterpass/clusterpass/shared/route"
)

// StoreGroup is the API group of the gateway's objects in a hub.
const StoreGroup = "store.clusterpass.io"

// KeysPath is where an API server publishes the keys that sign its service accounts. Every service account may read it.
const KeysPath = "/openid/v1/jwks"

const (
	maxKeys = 1 << 20
	keysAge = 10 * time.Minute
)

// Guard recognizes requests to the stores, and the hub cluster by whatever address. The keys of its service accounts
// identify a cluster: no other one has them, unless it was copied. It is safe for concurrent use.
type Guard struct {
	client *Client

	mu   sync.Mutex
	keys Keys
	read time.Time // start of the read of keys
}

// NewGuard returns a Guard of the stores of a client. It sends no request.
func NewGuard(client *Client) *Guard { return &Guard{client: client} }

// Concerns reports whether a request would reach the stores, if it was sent to the hub. p is the escaped path below the
// server's. Requests through proxies of an API server are not recognized.
func (g *Guard) Concerns(method, p, rawQuery string) bool {
	// A proxy in front of an API server may clean the path.
	clean := p
	if u, err := url.PathUnescape(p); err == nil {
		clean = (&url.URL{Path: path.Clean("/" + u)}).EscapedPath()
	}
	return g.concerns(route.ParseResource(method, p, rawQuery)) ||
		g.concerns(route.ParseResource(method, clean, rawQuery))
}

func (g *Guard) concerns(r route.Resource) bool {
	switch {
	case !r.IsResource:
		return false
	case r.APIGroup == StoreGroup, r.Namespace == g.client.Namespace():
		return true
	case r.APIGroup == "" && r.Resource == "secrets":
		return r.Namespace == "" // all namespaces
	case r.APIGroup == "" && r.Resource == "namespaces":
		return r.Name == "" && r.Verb == "deletecollection"
	case r.APIGroup == "apiextensions.k8s.io" && r.Resource == "customresourcedefinitions":
		isWrite := r.Verb != "get" && r.Verb != "list" && r.Verb != "watch"
		return isWrite && (r.Name == "" && r.Verb == "deletecollection" || strings.HasSuffix(r.Name, "."+StoreGroup))
	}
	return false
}

// IsHub reports whether the keys of a cluster are those of the hub.
func (g *Guard) IsHub(ctx context.Context, keys Keys) (bool, error) {
	own, err := g.hubKeys(ctx)
	if err != nil {
		return false, fmt.Errorf("read the keys of the hub: %w", err)
	}
	for key := range keys {
		if own[key] {
			return true, nil
		}
	}
	return false, nil
}

func (g *Guard) hubKeys(ctx context.Context) (Keys, error) {
	g.mu.Lock()
	keys, age := g.keys, time.Since(g.read)
	g.mu.Unlock()
	if keys != nil && age < keysAge {
		return keys, nil
	}
	start := time.Now()
	var text json.RawMessage
	err := g.client.Do(ctx, Request{Method: http.MethodGet, Path: KeysPath, Accept: "*/*"}, &text)
	if err == nil {
		keys, err = ReadKeys(strings.NewReader(string(text)))
	}
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keys, g.read = keys, start
	return keys, nil
}

// Keys are the public keys that sign the service accounts of a cluster.
type Keys map[string]bool

// ReadKeys reads a JSON Web Key Set, which must not be empty.
func ReadKeys(r io.Reader) (Keys, error) {
	var set struct {
		Keys []struct{ Kty, N, E, Crv, X, Y string }
	}
	if err := json.NewDecoder(io.LimitReader(r, maxKeys)).Decode(&set); err != nil {
		return nil, fmt.Errorf("the keys of service accounts are no JSON Web Key Set: %w", err)
	}
	keys := Keys{}
	for _, k := range set.Keys {
		if k.N != "" || k.X != "" {
			keys[strings.Join([]string{k.Kty, k.N, k.E, k.Crv, k.X, k.Y}, " ")] = true
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("the cluster publishes no keys of service accounts")
	}
	return keys, nil
}
