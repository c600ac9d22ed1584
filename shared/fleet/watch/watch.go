package watch

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/clusterpass/clusterpass/shared/fleet/cursor"
	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/fleet/respond"
	"github.com/clusterpass/clusterpass/shared/fleet/selection"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// New returns a Remainder with the watch of the targets. It checks the parameters and calls no member.
func New(
	client *members.Client, req *request.Request, selector *selection.Selector, targets []members.Target,
) (*forward.Remainder, error) {
	req = withListPath(req)
	accept, err := req.AcceptJSON()
	if err != nil {
		return nil, err
	}
	s := &session{client: client, req: req, accept: accept, events: make(chan event)}
	w := newWatcher(s, targets)
	w.selector = selector
	w.allowsBookmarks = route.TruthyIn(req.Query(), "allowWatchBookmarks")
	w.sendsInitial = route.TruthyIn(req.Query(), "sendInitialEvents")
	if w.timeout, err = parseTimeout(req.Param("timeoutSeconds")); err != nil {
		return nil, err
	}
	if err := checkParameters(req); err != nil {
		return nil, err
	}
	if err := w.parseVersion(); err != nil {
		return nil, err
	}
	return &forward.Remainder{Watch: w}, nil
}

// withListPath sets the path of the list. The name in a legacy path /api/v1/watch/nodes/NAME becomes a field selector.
func withListPath(req *request.Request) *request.Request {
	if req.Resource.Name != "" {
		one := fields.OneTermEqualSelector("metadata.name", req.Resource.Name).String()
		if more := req.Param("fieldSelector"); more != "" {
			one += "," + more
		}
		query := req.Query()
		query.Set("fieldSelector", one)
		req = req.WithQuery(query)
	}
	return req.WithPath(req.ListPath())
}

func parseTimeout(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return 0, status.New(status.BadRequest, "",
			"the parameter timeoutSeconds is %q; want a number of seconds from 0 to 2147483647", s)
	}
	return time.Duration(n) * time.Second, nil
}

// checkParameters refuses parameters that a watch does not support.
func checkParameters(req *request.Request) error {
	const initial = "sendInitialEvents"
	switch match := req.Param("resourceVersionMatch"); {
	case req.HasParam(initial) && match != "NotOlderThan":
		return status.New(status.BadRequest, "",
			"a watch with sendInitialEvents needs resourceVersionMatch=NotOlderThan, not %.40q", match)
	case !req.HasParam(initial) && match != "":
		return status.New(status.BadRequest, "", "a watch supports resourceVersionMatch only with sendInitialEvents")
	case req.Param("continue") != "":
		return status.New(status.BadRequest, "", "a watch does not support continue")
	}
	return nil
}

func (w *watcher) parseVersion() error {
	v := w.req.Param("resourceVersion")
	switch {
	case w.sendsInitial || v == "" || v == "0": // the watch starts with the current objects, or after them
		w.skipsInitial = !w.sendsInitial && w.req.HasParam("sendInitialEvents")
		return nil
	case cursor.Composite(v):
		asked, err := cursor.ParseVersion(v)
		if err != nil {
			return status.New(status.BadRequest, "", "%w", err)
		}
		// A watch of one member sends the member's own resourceVersions, which are smaller numbers than composite ones. The
		// resourceVersions that a client receives must not decrease.
		if w.single {
			return status.New(status.Expired, "", "the watch cannot resume: its resourceVersion covers several clusters, "+
				"but the request covers one now; list again, and watch from that list's resourceVersion")
		}
		for id := range asked {
			if !slices.ContainsFunc(w.targets, func(t members.Target) bool { return t.ID == id }) {
				return notCovered()
			}
		}
		w.version = asked
		return nil
	case w.single && cursor.ValidOwn(v):
		w.version = cursor.Version{w.targets[0].ID: v}
		return nil
	}
	return request.ForeignVersion(v)
}

// ServeWatch answers the watch until the client, the gateway, timeoutSeconds or an error ends it.
func (w *watcher) ServeWatch(rw http.ResponseWriter, r *http.Request) error {
	w.client = w.client.WithRequest(r)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var followers []*follower
	for _, t := range w.targets {
		if _, known := w.version[t.ID]; !known {
			w.pending[t.ID] = true
			if w.skipsInitial {
				w.unlisted[t.ID] = true
			}
		}
		followers = append(followers, w.follow(ctx, t, 0))
	}
	failures, err := w.awaitStart(followers)
	if err != nil {
		return err
	}
	if len(failures) == len(w.targets) || len(failures) > 0 && w.req.Strict {
		return respond.Incomplete(w.req, failures)
	}
	members.Warn(rw.Header(), failures)
	respond.Stream(rw)
	flush := http.NewResponseController(rw).Flush
	if err := flush(); err != nil {
		return nil //nolint:nilerr // the client is gone
	}
	return w.deliver(ctx, rw, flush)
}

// awaitStart blocks until the first call of each follower has succeeded or failed, and returns the failures. It returns
// an error if a member lacks the version to resume from, or if the request has ended.
func (w *watcher) awaitStart(followers []*follower) ([]*members.Failure, error) {
	var failures, expired []*members.Failure
	for _, f := range followers {
		err := <-f.started
		var e *members.Failure
		switch {
		case err == nil:
			continue
		case errors.As(err, &e):
			failures = append(failures, e)
			// The bookmark after the initial events does not wait for this member. Its follower calls the member again.
			delete(w.pending, f.ID)
			if e.IsExpired() && w.version[f.ID] != "" {
				expired = append(expired, e)
			}
		default:
			return nil, err
		}
	}
	if len(expired) > 0 {
		return nil, members.ExpiredSummary(expired)
	}
	return failures, nil
}
