package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Kinds of resources are kept for a while: they are the same for every caller, and only decide which registry is meant.
const (
	kindsMax   = 1024
	kindsTTL   = 30 * time.Second
	kindsRetry = 5 * time.Second
)

// what a member says of a resource.
type what struct {
	kind       string // "" if it has no such resource
	namespaced bool
}

// newKinds returns a cache of the kinds of resources, by the member's name and API version.
func newKinds(f *Fleet) *cache.Cache[map[string]what] {
	return cache.New(cache.Config{
		Name: "kinds", Max: kindsMax, TTL: kindsTTL, Negative: kindsRetry, Retry: kindsRetry, Timeout: f.cfg.Deadline,
		Missing: func(err error) bool { // so that a member that does not answer is not asked again at once
			return !errors.Is(err, context.Canceled)
		},
		Down: func(error) bool { return false },
		Log:  f.cfg.Log,
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

// kindOf asks the members for the kind of a resource and returns what the first says that has it; nothing if none has it. If none of those that
// answer has it, and not all do, that is an error: a call must not go elsewhere because a member that knows better is down.
func (f *Fleet) kindOf(ctx context.Context, members []string, k registry.Kind) (what, error) {
	type answer struct {
		what
		err error
	}
	found := make(chan answer, len(members))
	for _, m := range members {
		go func() { // ends within the deadline
			defer f.guard(m, func(e *failure) { found <- answer{err: e} })
			kinds, err := f.kinds.Get(ctx, m+"/"+k.APIVersion)
			if err != nil {
				err = fmt.Errorf("cluster %q: %w", m, err)
			}
			found <- answer{kinds[k.Resource], err}
		}()
	}
	var unknown error
	for range members {
		select {
		case a := <-found:
			if a.kind != "" {
				return a.what, nil
			}
			unknown = errors.Join(unknown, a.err)
		case <-ctx.Done():
			return what{}, context.Cause(ctx)
		}
	}
	if unknown != nil {
		return what{}, &status.Error{Reason: status.MembersFailed, Err: unknown,
			Message: fmt.Sprintf("whether %s of %s are global is not known now, since not every cluster answers; ask one cluster at /clusters/NAME", k.Resource, k.APIVersion)}
	}
	return what{}, nil
}
