package selection

import (
	"context"
	"errors"
	"fmt"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/status"
)

// ErrNoClusters is within the error of Allowed if no cluster is registered, and the caller might call any.
var ErrNoClusters = errors.New("the gateway has no clusters yet; register one with: clusterpass cluster add")

// Allowed returns the clusters that the caller selects and may call, by name. It fails if there is none.
func (s *Selector) Allowed(ctx context.Context) ([]members.Entry, error) {
	for _, name := range s.req.Clusters {
		if err := s.policy.authorize(ctx, s.req, name); err != nil {
			return nil, err
		}
		if !s.inventory.Has(name) {
			return nil, unknownCluster(name)
		}
	}
	var out []members.Entry
	var refused error
	for _, c := range s.inventory.Clusters {
		if !s.req.Selects(c.Name, c.Labels) {
			continue
		}
		if err := s.policy.authorize(ctx, s.req, c.Name); err == nil {
			out = append(out, c)
		} else if e := status.From(err); e.Reason != status.Forbidden {
			return nil, err // access is not known, so that the answer could lack this cluster
		} else {
			refused = s.refused(err)
		}
	}
	switch {
	case len(out) > 0:
		return out, nil
	case refused != nil:
		return nil, refused
	case len(s.inventory.Clusters) == 0:
		return nil, s.noCluster(ctx, "%w", ErrNoClusters)
	default:
		return nil, s.noCluster(ctx, "no cluster matches the request (%s, %s)", request.ClustersParam,
			request.ClusterSelectorParam)
	}
}

func (s *Selector) refused(err error) error {
	return &status.Error{Reason: status.Forbidden, Err: err,
		Message: fmt.Sprintf("User %q may call no cluster of the fleet that is asked for: "+
			"that needs the verb %s on clusters/proxy in cluster.karmada.io",
			s.req.User.Name, access.Verb(s.req.Method, len(s.req.Header["Upgrade"]) > 0))}
}

// noCluster gives a caller who may call no cluster the same error as if clusters existed.
func (s *Selector) noCluster(ctx context.Context, format string, args ...any) error {
	if err := s.policy.authorize(ctx, s.req, "*"); err != nil && status.From(err).Reason == status.Forbidden {
		return s.refused(err)
	} else if err != nil {
		return err
	}
	return status.New(status.UnknownCluster, "", format, args...)
}

func unknownCluster(name string) error {
	return status.New(status.UnknownCluster, name, "there is no cluster %q", name)
}
