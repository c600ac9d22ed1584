package selection

import (
	"context"
	"net/http"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Grant is a cluster that the caller may call. Verbs are those on clusters/proxy that the caller has, at least one.
type Grant struct {
	members.Entry
	Verbs []string
}

// For returns a Selector for another request of the same caller.
func (s *Selector) For(req *request.Request) *Selector {
	return &Selector{s.policy, s.client, req, s.inventory}
}

// Grants returns the selected clusters in which the fleet serves any kind and on which the caller has any verb, by
// name. It fails for a cluster that the request names and the caller may not call.
func (s *Selector) Grants(ctx context.Context) ([]Grant, error) {
	for _, name := range s.req.Clusters {
		verbs, err := s.verbs(ctx, name)
		switch {
		case err != nil:
			return nil, err
		case len(verbs) == 0:
			return nil, s.policy.authorize(ctx, s.req, name)
		case !s.inventory.Has(name):
			return nil, unknownCluster(name)
		}
	}
	var out []Grant
	for _, c := range s.inventory.Clusters {
		isServed := s.CoversAll(c) || registry.SelectsCluster(s.inventory.Registries, c.Cluster)
		if !isServed || !s.req.Selects(c.Name, c.Labels) {
			continue
		}
		verbs, err := s.verbs(ctx, c.Name)
		if err != nil {
			return nil, err
		}
		if len(verbs) > 0 {
			out = append(out, Grant{c, verbs})
		}
	}
	return out, nil
}

// verbs returns the verbs on clusters/proxy that the caller has. It fails if access is not known.
func (s *Selector) verbs(ctx context.Context, cluster string) (verbs []string, err error) {
	for _, method := range []string{
		http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	} {
		a := access.Cluster(cluster, method, nil)
		if err := s.policy.Access.Authorize(ctx, s.req.User, a); err == nil {
			verbs = append(verbs, a.Verb)
		} else if status.From(err).Reason != status.Forbidden {
			return nil, err
		}
	}
	return verbs, nil
}
