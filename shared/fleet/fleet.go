// Package fleet answers requests for many clusters as if they were one.
//
// Fleet.Do dispatches each request to the packages below this one:
//
//   - request parses the request, and selection decides which clusters it covers.
//   - list, watch, object, review and discovery answer it.
//   - members calls clusters on behalf of the caller, and reads Cluster and ResourceRegistry objects.
//
// Invariants:
//   - A caller without a grant for a cluster neither reaches it nor learns its name.
//   - A cluster that does not answer causes a Warning, an error or, in a review, an evaluationError. A 304 response
//     to an OpenAPI request omits the Warning. A watch that has begun calls the cluster again without notice. A page
//     omits remainingItemCount without notice if a cluster does not report its count.
//   - A truncated response of a member never looks complete to the client.
//   - A response for one caller is never reused for another.
//   - Members are not trusted. docs/explanation/security.md, section "A member cluster", has the measures.
package fleet

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"

	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/fleet/discovery"
	"github.com/clusterpass/clusterpass/shared/fleet/list"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/object"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/fleet/review"
	"github.com/clusterpass/clusterpass/shared/fleet/selection"
	"github.com/clusterpass/clusterpass/shared/fleet/watch"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/status"
)

// BareWrites selects which updates, patches, deletions and POST requests to subresources may omit the cluster if the
// fleet has several. See object.BareWrites.
type BareWrites = object.BareWrites

// BareNone permits a deletion or patch only if its body has a uid or resourceVersion as a precondition. It permits no
// other write. BareWhole also permits updates, POST requests to subresources, server-side apply patches, and patches of
// kubectl apply and diff. It permits kubectl cordon, drain, taint and uncordon, but not kubectl certificate. BareAll
// permits all. docs/reference/fleet.md has the details.
const (
	BareWhole = object.BareWhole
	BareNone  = object.BareNone
	BareAll   = object.BareAll
)

// Config is the configuration of a Fleet.
type Config struct {
	Objects members.Objects
	Members *cluster.Members
	Access  selection.Access
	// Freshness is the maximum age of clusters and registries while the store is up. 0 reads them for every request.
	Freshness    time.Duration
	ControlPlane string // name of the cluster that serves kinds without a ResourceRegistry; "" for none
	// Deadline limits one read of a cluster. For a list or watch, it limits only the wait for the response to begin. 0
	// means 10 s.
	Deadline time.Duration
	// DiscoveryTTL is the maximum age of cached discovery and OpenAPI. 0 means 5 s. OpenAPI v3 documents of group versions
	// do not expire: if a document changes, its URL in the cluster's index changes, too.
	DiscoveryTTL time.Duration
	// GracePeriod limits how long a read or review waits for other clusters once one response suffices. A review needs
	// one response that allows it. A read needs the object, or its kind, from the cluster that had it last. A request
	// waits at most half of GracePeriod for newer kinds of a member if it can use stale ones. 0 means 2 s.
	GracePeriod time.Duration
	BareWrites  BareWrites       // "" means BareWhole
	Now         func() time.Time // clock for the expiry of cached reviews and remembered timeouts; nil means time.Now
	Log         *slog.Logger     // nil means slog.Default()
}

const (
	defaultDeadline     = 10 * time.Second
	defaultGracePeriod  = 2 * time.Second
	defaultDiscoveryTTL = 5 * time.Second // short, so that clients find new kinds soon
)

// Fleet answers requests for the fleet. It is safe for concurrent use.
type Fleet struct {
	bareWrites BareWrites
	members    *members.Pool
	policy     selection.Policy
	discovery  *discovery.Caches
	reviews    *review.Cache
}

// New returns a Fleet.
func New(cfg Config) *Fleet {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	cfg.Deadline = cmp.Or(cfg.Deadline, defaultDeadline)
	cfg.GracePeriod = cmp.Or(cfg.GracePeriod, defaultGracePeriod)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Fleet{
		bareWrites: cfg.BareWrites, discovery: discovery.NewCaches(cmp.Or(cfg.DiscoveryTTL, defaultDiscoveryTTL)),
		reviews: review.NewCache(cfg.Now),
		policy:  selection.Policy{Access: cfg.Access, ControlPlane: cfg.ControlPlane},
		members: members.NewPool(members.Config{
			Objects: cfg.Objects, Members: cfg.Members, Freshness: cfg.Freshness, Deadline: cfg.Deadline,
			GracePeriod: cfg.GracePeriod, Now: cfg.Now, Log: cfg.Log,
		}),
	}
}

// Stats returns the statistics of two caches: "fleet" has the clusters and registries, "kinds" the kinds of resources.
func (f *Fleet) Stats() map[string]cache.Stats { return f.members.Stats() }

// Do serves r, or returns a Remainder for the gateway to serve. Errors are *status.Error or, if the client has gone,
// the cause of r's context. If Do has written a member's Status, it also returns an error, which is only for the log.
// With any other error, it has written nothing. Do panics with http.ErrAbortHandler if it cannot complete a response.
func (f *Fleet) Do(w http.ResponseWriter, r *http.Request, c forward.FleetCall) (*forward.Remainder, error) {
	d, err := f.newDispatcher(r, c)
	if err != nil {
		return nil, err
	}
	if !d.req.Resource.IsResource {
		h := discovery.Handler{Caches: f.discovery, Client: d.client, Request: d.req, Selector: d.selector}
		return nil, h.Serve(w)
	}
	if of, ok := request.SelfReviewOf(d.req.Resource); ok {
		h := review.Handler{
			Cache: f.reviews, Client: d.client, Request: d.req, Selector: d.selector, Body: r.Body, Names: d.object.Names,
			Recorder: c.Recorder,
		}
		return nil, h.Serve(w, of)
	}
	targets, err := d.selector.Targets(r.Context())
	if err != nil {
		return nil, err
	}
	if targets == nil { // the request is for the control-plane cluster alone
		return d.object.ForwardTo(f.policy.ControlPlane), nil
	}
	targets = d.selector.SkipUnidentifiable(w.Header(), targets)
	return d.dispatch(w, targets)
}

type dispatcher struct {
	req      *request.Request
	client   *members.Client
	selector *selection.Selector
	object   *object.Handler
}

func (f *Fleet) newDispatcher(r *http.Request, c forward.FleetCall) (*dispatcher, error) {
	req, err := request.Parse(r, c)
	if err != nil {
		return nil, err
	}
	inventory, err := f.members.Inventory(r.Context())
	if err != nil {
		return nil, err
	}
	names := f.policy.Names(r.Context(), req, inventory)
	if req, err = req.SplitNames(names); err != nil {
		return nil, err
	}
	client := f.members.Client(members.Caller{Request: r, User: c.User, Route: c.Route})
	selector := f.policy.Selector(client, req, inventory)
	return &dispatcher{
		req: req, client: client, selector: selector,
		object: &object.Handler{
			Client: client, Request: req, Selector: selector, Body: r.Body, Names: names, BareWrites: f.bareWrites,
			Recorder: c.Recorder,
		},
	}, nil
}

// rawSubresources have responses that are no Kubernetes objects. Do returns their requests in Remainder.ToCluster.
var rawSubresources = map[string]bool{"log": true, "exec": true, "attach": true, "portforward": true, "proxy": true}

func (d *dispatcher) dispatch(w http.ResponseWriter, targets []members.Target) (*forward.Remainder, error) {
	res := d.req.Resource
	switch {
	case res.Verb == "proxy", res.Subresource != "" && rawSubresources[res.Subresource]:
		return d.object.Forward(w, targets)
	case res.Verb == "watch" && res.Name != "" && !res.HasLegacyPrefix:
		// kube-apiserver ignores the parameter watch in a GET of one object.
		query := d.req.Query()
		query.Del("watch")
		d.object.Request = d.req.WithQuery(query)
		return nil, d.object.Get(w, targets)
	case res.Verb == "watch":
		return watch.New(d.client, d.req, d.selector, targets)
	case res.Verb == "list":
		return nil, list.Serve(w, d.client, d.req, d.selector, targets)
	case res.Verb == "deletecollection":
		return nil, d.object.DeleteCollection(w, targets)
	case res.Verb == "create" && res.Name == "":
		return nil, d.object.Create(w, targets)
	case res.Verb == "get":
		return nil, d.object.Get(w, targets)
	case res.Verb == "update", res.Verb == "patch", res.Verb == "delete", res.Verb == "create":
		return nil, d.object.Write(w, targets)
	}
	return nil, status.New(status.NotAllowed, "", "the fleet does not support the method %s; send the request to one "+
		"cluster at /clusters/NAME%s",
		d.req.Method, d.req.Route.Path)
}
