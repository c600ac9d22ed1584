package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
)

// Kinds of resources are kept for a while: they are the same for every caller, and only decide which registry is meant. They hardly change:
// what a member said serves while it does not answer.
const (
	kindsMax      = 1024
	kindsTTL      = 30 * time.Second
	kindsStale    = time.Hour
	kindsPatience = time.Second
	kindsRetry    = 5 * time.Second
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

// newKinds returns a cache of the kinds of resources, by the member's name and API version.
func newKinds(f *Fleet) *cache.Cache[map[string]what] {
	return cache.New(cache.Config{
		Name: "kinds", Max: kindsMax, TTL: kindsTTL, Stale: kindsStale, Patience: kindsPatience, Retry: kindsRetry, Timeout: f.cfg.Deadline,
		Missing: func(error) bool { return false },
		Down:    func(error) bool { return true },
		Log:     f.cfg.Log,
	}, f.readKinds)
}

// readKinds asks a member, as the gateway itself, for the kinds of an API version. key is the member's name, a slash and the version.
func (f *Fleet) readKinds(ctx context.Context, key string) (map[string]what, error) {
	name, apiVersion, _ := strings.Cut(key, "/")
	m, err := f.cfg.Members.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	path := "/apis/" + apiVersion
	if !strings.Contains(apiVersion, "/") {
		path = "/api/" + apiVersion
	}
	kinds := map[string]what{}
	var list metav1.APIResourceList
	err = m.Call(ctx, "GET", path, nil, &list)
	var refused *cluster.CallError
	if errors.As(err, &refused) && refused.Code == 404 {
		return kinds, nil
	} else if err != nil {
		return nil, err
	}
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") {
			kinds[r.Name] = what{r.Kind, r.Namespaced}
		}
	}
	return kinds, nil
}

// words asks members what they say of a resource, each for itself, and waits for all of them, within the deadline.
func (f *Fleet) words(ctx context.Context, members []string, k registry.Kind) (map[string]word, error) {
	type answer struct {
		of string
		word
	}
	said := make(chan answer, len(members))
	for _, m := range members {
		go func() { // ends within the deadline
			defer f.guard(m, func(e *failure) { said <- answer{m, word{unknown: e}} })
			kinds, err := f.kinds.Get(ctx, m+"/"+k.APIVersion)
			if err != nil {
				said <- answer{m, word{unknown: &failure{cluster: m, code: http.StatusBadGateway, err: err,
					message: fmt.Sprintf("cluster %q does not say now what its %s of %s are", m, k.Resource, k.APIVersion)}}}
				return
			}
			said <- answer{m, word{what: kinds[k.Resource]}}
		}()
	}
	words := make(map[string]word, len(members))
	for range members {
		select {
		case a := <-said:
			words[a.of] = a.word
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return words, nil
}
