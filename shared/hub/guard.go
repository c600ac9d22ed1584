package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/clusterpass/clusterpass/shared/route"
)

// StoreGroup is the API group of the gateway's objects in a hub.
const StoreGroup = "store.clusterpass.io"

// KeysPath is where an API server publishes the keys that sign its service accounts. Every service account may read it.
const KeysPath = "/openid/v1/jwks"

const maxKeys = 1 << 20

// Guard recognizes requests to the stores, and the hub cluster by whatever address. The keys of its service accounts
// identify a cluster: no other one has them, unless it was copied. It is safe for concurrent use.
type Guard struct {
	client  *Client
	flights singleflight.Group
}

// NewGuard returns a Guard of the stores of a client. It sends no request.
func NewGuard(client *Client) *Guard { return &Guard{client: client} }

// Namespace returns the namespace of the stores.
func (g *Guard) Namespace() string { return g.client.Namespace() }

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
	case r.APIGroup == "apiextensions.k8s.io" && r.Resource == "customresourcedefinitions",
		r.APIGroup == "apiregistration.k8s.io" && r.Resource == "apiservices":
		isWrite := r.Verb != "get" && r.Verb != "list" && r.Verb != "watch"
		return isWrite && (r.Name == "" && r.Verb == "deletecollection" || strings.HasSuffix(r.Name, "."+StoreGroup))
	}
	return false
}

// IsHub reports whether the keys of a cluster are those of the hub. It reads the hub's keys, which may have changed
// since an earlier call. Concurrent calls share a read. Errors are those of the hub, or the cause of ctx.
func (g *Guard) IsHub(ctx context.Context, keys Keys) (bool, error) {
	own, err := g.hubKeys(ctx, time.Now())
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

type readResult struct {
	keys  Keys
	start time.Time
}

// hubKeys returns keys that were read after since. So it may wait for a read that started earlier, and then for
// another.
func (g *Guard) hubKeys(ctx context.Context, since time.Time) (Keys, error) {
	for {
		flight := g.flights.DoChan("", func() (any, error) {
			start := time.Now()
			var text json.RawMessage
			err := g.client.Do(context.WithoutCancel(ctx), Request{Method: http.MethodGet, Path: KeysPath, Accept: "*/*"}, &text)
			if err != nil {
				return nil, err
			}
			keys, err := ReadKeys(bytes.NewReader(text))
			return readResult{keys, start}, err
		})
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case done := <-flight:
			if done.Err != nil {
				return nil, done.Err
			}
			if read, ok := done.Val.(readResult); ok && !read.start.Before(since) {
				return read.keys, nil
			}
		}
	}
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
