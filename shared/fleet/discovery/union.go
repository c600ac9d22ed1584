package discovery

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	discoveryv2 "k8s.io/api/apidiscovery/v2"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
)

const maxDiscovery = 4 << 20 // bytes of one member's /api or /apis

// union returns the global kinds of all clusters. Even a result with failures is cached: kubectl asks twice in a row.
func (h *Handler) union(allowed []members.Entry) (
	union discoveryv2.APIGroupDiscoveryList, failures []*members.Failure, err error,
) {
	key, strict, cached := h.key(allowed), h.Request.Strict, h.Caches.unions
	one, err := cached.getOrBuild(fmt.Sprintf("%x %t", key, strict), func() (*cachedUnion, bool) {
		one, ok := cached.Get(key)
		return one, ok && (len(one.failures) == 0 || !strict)
	}, func() (*cachedUnion, error) {
		one, err := h.withoutCancel().readUnion(allowed)
		if err == nil {
			cached.Add(key, one, time.Now().Add(h.Caches.ttl))
		}
		return one, err
	})
	if err != nil {
		return union, nil, err
	}
	if len(one.failures) > 0 && strict {
		return union, nil, members.Summary(one.failures)
	}
	return one.union, one.failures, nil
}

// addOnce adds those of failed whose cluster is not yet in failures, which stays unchanged.
func addOnce(failures []*members.Failure, failed ...*members.Failure) []*members.Failure {
	all := slices.Clone(failures)
	for _, e := range failed {
		if !slices.ContainsFunc(all, func(o *members.Failure) bool { return o.Cluster == e.Cluster }) {
			all = append(all, e)
		}
	}
	return all
}

// key returns a digest of everything that a union depends on.
func (h *Handler) key(allowed []members.Entry) members.Digest {
	names := make([]string, len(allowed))
	for i, c := range allowed {
		names[i] = fmt.Sprintf("%s %d", c.Name, c.ID)
	}
	return members.DigestOf(h.Request.CallerDigest(), names, h.Selector.InventoryDigest(), h.Request.Route.AllClusters,
		h.Selector.ControlPlane())
}

type memberDocuments struct {
	bodies [][]byte
	good   []int // indexes of members that sent one
	failed []*members.Failure
	err    error
}

const aggregatedAccept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList," +
	"application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"

func (h *Handler) readUnion(allowed []members.Entry) (*cachedUnion, error) {
	u := newUniter()
	var answers [2]memberDocuments
	var both sync.WaitGroup
	for i, path := range []string{"/api", "/apis"} {
		both.Go(func() {
			d := memberDocuments{bodies: make([][]byte, len(allowed))}
			call := members.Call{Path: path, Header: http.Header{"Accept": {aggregatedAccept}}}
			d.good, d.failed, d.err = h.documents(allowed, d.bodies, maxDiscovery, call)
			answers[i] = d
		})
	}
	both.Wait()
	var failures []*members.Failure
	fail := func(e *members.Failure) { failures = addOnce(failures, e) }
	for _, d := range answers {
		if d.err != nil {
			return nil, d.err
		}
		if len(d.good) == 0 {
			return nil, members.Summary(d.failed)
		}
		for _, e := range d.failed {
			fail(e)
		}
	}
	parse := parseOnce(parseDiscovery)
	for i, c := range allowed {
		votes := 1
		if c.Name == h.Selector.ControlPlane() {
			votes = len(allowed)
		}
		for _, d := range answers { // a member votes once, although a group may be in both of its documents
			if !slices.Contains(d.good, i) {
				continue
			}
			groups, err := parse(d.bodies[i])
			if err != nil {
				fail(members.NewFailure(c.Name, http.StatusBadGateway, err, "cluster %q %v", c.Name, err))
				continue
			}
			for _, g := range groups {
				u.add(i, votes, g, h.isGlobal(c))
			}
		}
	}
	for _, e := range failures {
		e.Raw = nil // unions show messages alone; the size of failures must not evict others
	}
	return &cachedUnion{union: u.union(), failures: failures}, nil
}

// Where registries cover only some namespaces, isGlobal includes the resource namespaces.
func (h *Handler) isGlobal(c members.Entry) func(apiVersion string, r *discoveryv2.APIResourceDiscovery) bool {
	return func(apiVersion string, r *discoveryv2.APIResourceDiscovery) bool {
		if h.Selector.CoversAll(c) {
			return true
		}
		s := h.Selector.Scope(c, registry.Kind{APIVersion: apiVersion, Resource: r.Resource, Kind: r.ResponseKind.Kind})
		isInNamespace := r.Scope == discoveryv2.ScopeNamespace || apiVersion == "v1" && r.Resource == "namespaces"
		return s.All || s.Covers("") && isInNamespace
	}
}
