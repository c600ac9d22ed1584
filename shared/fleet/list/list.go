// Package list unites the lists of several clusters into one response. Read Serve first.
//
// With a limit, all objects of a member precede those of the next. Without one, the list alternates between the
// first maxActive members; when one has sent its last object, the next member joins. See later.go for the others.
//
// Invariants:
//   - A member that fails before the response begins is left out with a warning. A strict request, or one for a later
//     page, fails instead. So does any request if all members fail, or if one lacks the requested resourceVersion.
//   - A member that fails later ends the response.
//   - All pages of a list of several members show each member at its resourceVersion of the first page.
//   - An error after the response began aborts the connection, so that no client reads the list as complete.
//   - The memory of a list does not grow with the number of its objects.
package list

import (
	"context"
	"maps"
	"net/http"
	"time"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/naming"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
	"github.com/clusterpass/clusterpass/shared/fleet/respond"
	"github.com/clusterpass/clusterpass/shared/fleet/selection"
	"github.com/clusterpass/clusterpass/shared/status"
)

// mergedReadSize is the size in bytes of one read from a member in lists of over members.Many members. Reads of a
// longer object are larger.
const mergedReadSize = 16 << 10

// maxDuration exceeds what a client needs that reads gigabytes. A slower one would occupy a slot for others.
const maxDuration = 15 * time.Minute

// Serve writes the lists of all targets as one. If Serve has written a member's Status, it also returns an error, which
// is only for the log. With any other error, it has written nothing. It panics with http.ErrAbortHandler if the list
// breaks off.
func Serve(
	w http.ResponseWriter, client *members.Client, req *request.Request, selector *selection.Selector,
	targets []members.Target,
) error {
	if prunesEveryCluster(req) && selector.IsBare() {
		return refusePrune(req.Resource.Resource)
	}
	accept, err := req.AcceptJSON()
	if err != nil {
		return err
	}
	p, err := newPage(client, req, targets)
	if err != nil {
		return err
	}
	release, err := members.AcquireListSlot(client, len(p.targets))
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(client.Context(), maxDuration)
	defer cancel()
	sources, calls := make([]*merge.Source, len(p.targets)), make([]members.Call, len(p.targets))
	answers := client.Each(p.targets, func(i int, t members.Target) *members.Answer {
		call, err := p.call(t, accept)
		if err != nil {
			return &members.Answer{Target: t, Err: err}
		}
		if calls[i] = call; isLater(p, i) {
			call.Query = maps.Clone(call.Query)
			limitToFirst(call.Query)
		}
		a, source := open(ctx, client, t, call)
		sources[i] = source
		return a
	})
	good, failures, err := members.Split(answers)
	if err != nil {
		return err
	}
	defer members.CloseAll(good)
	var parts []*part
	for i, a := range answers {
		if a.Err != nil {
			continue
		}
		one := p.newPart(a, sources[i])
		if isLater(p, i) {
			a.Close()
			one.request = newRequest(ctx, client, a.Target, calls[i])
		}
		parts = append(parts, one)
	}
	parts, failures = dropOtherForms(parts, failures)
	parts, failures = p.dropUnversioned(parts, failures)
	if isFinal, err := p.check(w, parts, failures); isFinal {
		return err
	}
	members.PassWarnings(w.Header(), good)
	members.Warn(w.Header(), failures)
	return p.respond(w, parts, cancel)
}

// check reports whether failures make the request fail, and returns the error. It may have written a member's Status.
func (p *page) check(w http.ResponseWriter, parts []*part, failures []*members.Failure) (isFinal bool, err error) {
	switch expired := p.expiredFailures(failures); {
	case p.single && len(failures) == 1 && failures[0].IsExpired() && canPass(failures[0]):
		// The Status may have a continue token for the rest of the list, or retryAfterSeconds.
		return true, respond.Failure(w, failures[0], respond.NewAnswer(p.client, p.req, failures[0].Cluster))
	case len(expired) > 0: // the client must list again, whatever else failed
		return true, members.ExpiredSummary(expired)
	case len(parts) == 0, len(failures) > 0 && (p.req.Strict || p.token != nil):
		return true, respond.Incomplete(p.req, failures)
	}
	return false, nil
}

// respond writes the list. stop ends all calls.
func (p *page) respond(w http.ResponseWriter, parts []*part, stop func()) error {
	return serveCompressed(w, p.client.Request(), func(w http.ResponseWriter) error { return p.stream(w, parts, stop) })
}

func (p *page) stream(w http.ResponseWriter, parts []*part, stop func()) error {
	respond.Stream(w)
	if err := (&writer{page: p, out: newSink(w), stop: stop}).write(parts); err != nil {
		if p.client.Context().Err() == nil {
			p.client.Log().Warn("a list of the fleet broke off", "path", p.req.Route.Path, "error", err.Error())
		}
		panic(http.ErrAbortHandler) // after a return, the response would look complete
	}
	return nil
}

// prunesEveryCluster reports whether kubectl apply --prune sent the list without a selection of clusters. kubectl would
// then prune in every cluster. Without --prune, kubectl apply sends no lists.
func prunesEveryCluster(req *request.Request) bool {
	return req.Command() == request.CommandApply && req.Clusters == nil && req.Labels.Empty()
}

func refusePrune(resource string) error {
	return status.New(status.NoPlacement, "", "listing %s is refused: kubectl apply --prune would delete from every "+
		"cluster; call /clusters/NAME, or use -l %s=CLUSTER and set that label in the manifests. If all kinds are "+
		"namespaced, -n NAMESPACE@CLUSTER with --prune-allowlist works, too", resource, naming.ClusterLabel)
}
