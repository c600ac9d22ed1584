// Package fleet answers for many clusters as if they were one.
//
// What a ResourceRegistry makes global is asked of every cluster that it chooses and that the caller may call, in parallel, as the
// caller: the members' own RBAC decides what is seen. Lists are merged as they come in (package merge); what concerns one object goes
// to the cluster that has it, or that name@cluster names (package naming).
//
// Invariants:
//   - A cluster without a grant is never asked, and never named to who has none.
//   - What a cluster did not answer is never passed over in silence: the answer has a Warning, or is an error.
//   - An answer that breaks off breaks off at the client too.
//   - Nothing that was answered to one caller is kept for another.
//
// Threat model: a member may be hostile, and say anything of itself. What it says decides what goes to that member, never what goes to others:
// each takes part by its own word of what its resource is, and against the control-plane cluster's word none can claim what is that one's. Where
// one answer is made of all, as in discovery, the word of most counts, and of as many that of those that are registered longest. What it sends
// is bounded in size and in time, and passed on as its own: who decodes it must expect anything there.
package fleet

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Access is what a Fleet needs of an access.Authorizer.
type Access interface {
	Authorize(ctx context.Context, u *identity.User, a access.Attributes) error
}

// Config is what a Fleet is made of.
type Config struct {
	Objects members.Objects
	Members *cluster.Members
	Access  Access
	// Freshness bounds how old what is known of clusters and registries may be; 0 reads them for every call.
	Freshness time.Duration
	// ControlPlane names the cluster that answers for kinds which no registry takes in; "" for none.
	ControlPlane string
	// Deadline is how long one member may take until its answer has begun; 0 means 10 s.
	Deadline time.Duration
	// BareWrites selects the writes that may name no cluster; "" means BareWhole.
	BareWrites BareWrites
	Log        *slog.Logger // nil means slog.Default()
}

// deadline is the default of Config.Deadline.
const deadline = 10 * time.Second

// Fleet answers calls to the fleet. It is safe for concurrent use and has no goroutine but those of calls.
type Fleet struct {
	cfg Config
	m   *members.Pool
	// discovered holds unions by all that they depend on.
	discovered *unions
	schemas    *schemas
}

// New returns a Fleet.
func New(cfg Config) *Fleet {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Deadline == 0 {
		cfg.Deadline = deadline
	}
	return &Fleet{
		cfg: cfg, discovered: newUnions(), schemas: newSchemas(),
		m: members.NewPool(members.Config{
			Objects: cfg.Objects, Members: cfg.Members, Freshness: cfg.Freshness, Deadline: cfg.Deadline, Log: cfg.Log,
		}),
	}
}

// Stats counts for each cache by its name: "fleet", of clusters and registries, and "kinds", of what members have.
func (f *Fleet) Stats() map[string]cache.Stats {
	return f.m.Stats()
}

// Do answers r, or returns the call to one cluster as which it goes on; it is an implementation of gateway.Fleet. An error is returned
// before anything was written; what breaks later panics with http.ErrAbortHandler. Errors are *status.Error or, when the client has
// gone, the context's.
func (f *Fleet) Do(w http.ResponseWriter, r *http.Request, c forward.Call) (*forward.Call, error) {
	q, err := f.begin(r, c)
	if err != nil {
		return nil, err
	}
	if !q.res.IsResource {
		return nil, q.nonResource(w)
	}
	targets, err := q.targets()
	if err != nil {
		return nil, err
	}
	if targets == nil {
		return q.next(f.cfg.ControlPlane), nil
	}
	targets = q.told(w, targets)
	switch verb := q.res.Verb; {
	case verb == "proxy", q.res.Subresource != "" && streaming[q.res.Subresource]:
		return q.pass(w, targets)
	case verb == "watch" && q.res.Name != "" && !strings.Contains(q.route.Path, "/watch/"):
		q.query.Del("watch") // of one object kube-apiserver knows no watch but the older form
		return nil, q.get(w, targets)
	case verb == "watch":
		return q.watch(targets)
	case verb == "list":
		return nil, q.list(w, targets)
	case verb == "deletecollection":
		return nil, q.deleteCollection(w, targets)
	case verb == "create" && q.res.Name == "":
		return nil, q.create(w, targets)
	case verb == "get":
		return nil, q.get(w, targets)
	case verb == "update", verb == "patch", verb == "delete", verb == "create":
		return nil, q.write(w, targets)
	default:
		return nil, status.New(status.NotAllowed, "", "the fleet does not answer %s; ask one cluster at /clusters/NAME%s", r.Method, q.route.Path)
	}
}

// streaming are the subresources whose answer is no object: it passes as it is.
var streaming = map[string]bool{"log": true, "exec": true, "attach": true, "portforward": true, "proxy": true}
