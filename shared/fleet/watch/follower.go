package watch

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/fleet/members"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/request"
)

type session struct {
	client *members.Client
	req    *request.Request
	accept string
	events chan event
}

type event struct {
	from    *follower
	typ     string
	object  merge.Object
	columns []merge.Column // columns of the rows, in a table
	isRow   bool
	version string          // the member's own; "" if more events of the same moment follow
	kind    metav1.TypeMeta // of objects; empty if it is not known yet
	err     error           // the cause of a failed event
}

// follower reads the events of one member.
type follower struct {
	members.Target
	*session
	version     string // from which it resumes; "" lists first
	skipInitial bool   // without a version, it starts with later events instead of a list
	single      bool   // it was the only member when it began
	started     chan error
	hasStarted  bool          // started has its value
	delay       time.Duration // before the first call; 0 for members that the watch began with
	cancel      context.CancelFunc
}

// reportStart sends the outcome of the first call to started, once. It reports whether it did.
func (f *follower) reportStart(err error) bool {
	if f.hasStarted {
		return false
	}
	f.hasStarted = true
	f.started <- err
	return true
}

func (f *follower) call(params url.Values) members.Call {
	client, query := f.req.Query(), url.Values{}
	for _, key := range []string{"labelSelector", "fieldSelector", "includeObject"} {
		if v, ok := client[key]; ok {
			query[key] = v
		}
	}
	maps.Copy(query, params)
	path := f.req.Route.Path
	if !f.Scope.All && f.req.Resource.Namespace == "" && len(f.Scope.Namespaces) == 1 {
		path = request.PathInNamespace(path, f.Scope.Namespaces[0])
	}
	if f.namespaces() != nil && query.Get("includeObject") == "None" {
		query.Set("includeObject", "Metadata") // it has the namespace of a row
	}
	return members.Call{
		Method: http.MethodGet, Path: path, Query: query,
		Header: http.Header{"Accept": {f.accept}, "Accept-Encoding": {"identity"}},
	}
}

// namespaces returns the namespaces whose events the client gets; nil for all.
func (f *follower) namespaces() []string {
	if !f.Scope.All && f.req.Resource.Namespace == "" && len(f.Scope.Namespaces) > 1 {
		return f.Scope.Namespaces
	}
	return nil
}

// covers reports whether the namespace of o is one of f.namespaces. isRow means that o is a row of a Table.
func (f *follower) covers(o merge.Object, isRow bool) bool {
	only := f.namespaces()
	if only == nil {
		return true
	}
	return slices.Contains(only, metadataText(o, isRow, "namespace"))
}

func (f *follower) send(ctx context.Context, e event) bool {
	select {
	case f.events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}
