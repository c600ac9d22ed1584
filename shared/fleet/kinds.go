package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	kjson "sigs.k8s.io/json"

	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
	"github.com/clusterpass/clusterpass/shared/fleet/scan"
)

// Kinds of resources are kept for a while: they are the same for every caller, and only decide which registry is meant. They hardly change:
// what a member said serves while it does not answer. One that hangs, and has said nothing yet, is not waited for each time.
const (
	kindsMax      = 1024
	kindsTTL      = 30 * time.Second
	kindsStale    = time.Hour
	kindsPatience = time.Second
	kindsRetry    = 2 * reviewEvery
	kindsHung     = time.Minute
)

// What the kinds of one API version may be. No version of any API comes near these.
const (
	kindsValues  = 100_000  // in a document of 1 MiB, more than which is not read
	kindsSize    = 64 << 10 // bytes that are kept, of which kindOverhead for each beside its names
	kindOverhead = 64
)

// what a member says of a resource.
type what struct {
	kind       string // "" if it has no such resource
	namespaced bool
}

// word is what a member says, or why it says nothing.
type word struct {
	what
	unknown *failure
}

// newKinds returns a cache of the kinds of resources, by kindsKey.
func newKinds(f *Fleet) *cache.Cache[map[string]what] {
	return cache.New(cache.Config{
		Name: "kinds", Max: kindsMax, TTL: kindsTTL, Stale: kindsStale, Patience: kindsPatience, Retry: kindsRetry,
		Hung: kindsHung, Timeout: f.cfg.Deadline,
		Missing: func(error) bool { return false },
		Down:    func(error) bool { return true },
		Log:     f.cfg.Log,
	}, f.readKinds)
}

// kindsKey names the kinds of a member. One that is registered anew has another id: what was said before is not its word.
func kindsKey(m entry, apiVersion string) string {
	return fmt.Sprintf("%d/%s/%s", m.id, m.Name, apiVersion)
}

// readKinds asks a member, as the gateway itself, for the kinds of an API version. key is kindsKey's.
func (f *Fleet) readKinds(ctx context.Context, key string) (map[string]what, error) {
	_, key, _ = strings.Cut(key, "/")
	name, apiVersion, _ := strings.Cut(key, "/")
	m, err := f.cfg.Members.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	path := "/apis/" + apiVersion
	if !strings.Contains(apiVersion, "/") {
		path = "/api/" + apiVersion
	}
	var doc json.RawMessage
	err = m.Call(ctx, "GET", path, nil, &doc)
	var refused *cluster.CallError
	if errors.As(err, &refused) && refused.Code == 404 {
		return map[string]what{}, nil
	} else if err != nil {
		return nil, err
	}
	return kindsOf(doc)
}

// kindsOf reads a member's APIResourceList: the kinds of resources by their names, without subresources.
func kindsOf(doc []byte) (map[string]what, error) {
	if err := scan.Bounded(doc, kindsValues); err != nil {
		return nil, err
	}
	var list struct {
		Resources []struct {
			Name       string `json:"name"`
			Kind       string `json:"kind"`
			Namespaced bool   `json:"namespaced"`
		} `json:"resources"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(doc, &list); err != nil {
		return nil, err
	}
	kinds, size := map[string]what{}, 0
	for _, r := range list.Resources {
		if strings.Contains(r.Name, "/") {
			continue
		}
		if size += len(r.Name) + len(r.Kind) + kindOverhead; size > kindsSize {
			return nil, fmt.Errorf("its kinds are over %d KiB", kindsSize>>10)
		}
		kinds[r.Name] = what{r.Kind, r.Namespaced}
	}
	return kinds, nil
}

// words asks members what they say of a resource, each for itself, and waits for all of them, within the deadline. Once the member with the id
// enough says that it has the resource, the others are not waited for beyond grace; 0 is no member's.
func (f *Fleet) words(ctx context.Context, members []entry, k registry.Kind, enough uint64) (map[string]word, error) {
	type answer struct {
		of entry
		word
	}
	said := make(chan answer, len(members))
	unsaid := func(m entry, err error) word {
		return word{unknown: &failure{cluster: m.Name, code: http.StatusBadGateway, err: err,
			message: fmt.Sprintf("cluster %q does not say now what its %s of %s are", m.Name, k.Resource, k.APIVersion)}}
	}
	words := make(map[string]word, len(members))
	for _, m := range members {
		words[m.Name] = unsaid(m, errElsewhere)
		go func() { // ends within the deadline
			defer f.guard(m.Name, func(e *failure) { said <- answer{m, word{unknown: e}} })
			kinds, err := f.kinds.Get(ctx, kindsKey(m, k.APIVersion))
			if err == nil && kinds[k.Resource].kind == "" { // it may be new
				kinds, err = f.kinds.Refresh(ctx, kindsKey(m, k.APIVersion))
			}
			if err != nil {
				said <- answer{m, unsaid(m, err)}
				return
			}
			said <- answer{m, word{what: kinds[k.Resource]}}
		}()
	}
	var late <-chan time.Time
	for range members {
		select {
		case a := <-said:
			if words[a.of.Name] = a.word; a.of.id == enough && a.kind != "" {
				late = time.After(grace)
			}
		case <-late:
			return words, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return words, nil
}
