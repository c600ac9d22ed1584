package members

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/fleet/registry"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Target is a cluster that a request covers.
type Target struct {
	Entry
	Scope       registry.Scope
	Unavailable *Failure // if not nil, each call fails with it, because the coverage is not known
}

// Names returns the names of targets.
func Names(targets []Target) []string {
	out := make([]string, len(targets))
	for i, t := range targets {
		out[i] = t.Name
	}
	return out
}

// Call is one request to one member.
type Call struct {
	Method, Path string
	Query        url.Values
	Header       http.Header // replaces headers of the caller; an empty value removes one
	Body         []byte
	Write        bool           // the deadline is writeDeadline
	Buffer       cluster.Buffer // smaller if the body is read together with many others
}

// writeDeadline exceeds the minute after which kube-apiserver ends a request, so that the client gets its response.
const writeDeadline = 75 * time.Second

// Caller is the client on whose behalf a Client calls members.
type Caller struct {
	Request *http.Request // cloned for each call; its context ends all calls
	User    *identity.User
	Route   route.Route
}

// Client calls members on behalf of one caller. It is safe for concurrent use.
type Client struct {
	*Pool
	caller Caller
}

// Client returns a Client for a caller.
func (p *Pool) Client(c Caller) *Client { return &Client{p, c} }

// WithRequest returns a Client for the same caller, whose calls clone another request.
func (c *Client) WithRequest(r *http.Request) *Client {
	caller := c.caller
	caller.Request = r
	return &Client{c.Pool, caller}
}

// WithoutCancel returns a Client whose calls continue after the caller has gone, for results that others wait for.
func (c *Client) WithoutCancel() *Client {
	return c.WithRequest(c.caller.Request.WithContext(context.WithoutCancel(c.Context())))
}

// Request returns the caller's request.
func (c *Client) Request() *http.Request { return c.caller.Request }

// Context returns the context of the caller's request.
func (c *Client) Context() context.Context { return c.caller.Request.Context() }

// RouteTo returns the route of the caller's request to one cluster, with another path.
func (c *Client) RouteTo(cluster, path string) route.Route {
	r := c.caller.Route
	r.Kind, r.Cluster, r.AllClusters, r.Qualified, r.Path = route.Cluster, cluster, false, false, path
	return r
}

// Do calls one member and waits for the head of its response until the deadline. ready, if not nil, reads a successful
// response, or its beginning, within the same deadline. A response without a code of success is a Failure. If
// Answer.Err is nil, the caller must call CloseAll. ctx must be derived from c.Context().
func (c *Client) Do(ctx context.Context, t Target, call Call, ready func(a *Answer) error) (a *Answer) {
	if t.Unavailable != nil {
		return &Answer{Target: t, Err: t.Unavailable}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	deadline := c.cfg.Deadline
	if call.Write {
		deadline = writeDeadline
	}
	late := &deadlineError{deadline, call.Write}
	timer := time.AfterFunc(deadline, func() { cancel(late) })
	a = &Answer{Target: t, Stop: func() { cancel(context.Canceled) }}
	defer func() {
		if !timer.Stop() && a.Err == nil {
			a.Err = late
		}
		if a.Err != nil {
			a.Close()
			a.Err = c.Fail(ctx, t.Name, a.Err)
		}
	}()
	m, err := c.cfg.Members.Get(ctx, t.Name)
	if err != nil {
		a.Err = err
		return a
	}
	req := c.request(ctx, call)
	a.Response, a.Err = forward.Open(req, &forward.Call{ //nolint:bodyclose // the reader or the code above closes it
		Request: route.NewRequest(req.Method, c.RouteTo(t.Name, call.Path), call.Query.Encode(), req.Header),
		User:    c.caller.User, Member: m, Renewer: c.cfg.Members, IsFleet: true, Buffer: call.Buffer,
	})
	if a.Err != nil {
		return a
	}
	if a.Body, a.Err = decompress(a.Response); a.Err != nil {
		return a
	}
	if !a.Succeeded() {
		a.Err = refusal(t.Name, a)
		return a
	}
	if ready != nil {
		a.Err = ready(a)
	}
	return a
}

func (c *Client) request(ctx context.Context, call Call) *http.Request {
	req := c.caller.Request.Clone(ctx)
	req.Method, req.RequestURI = call.Method, ""
	req.Body, req.ContentLength = http.NoBody, 0
	for k, v := range call.Header {
		if req.Header[k] = v; len(v) == 0 {
			delete(req.Header, k)
		}
	}
	if len(call.Body) > 0 {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(call.Body)), int64(len(call.Body))
	}
	return req
}

// Fail returns the Failure for an error of a call whose context is ctx. If the caller has gone, it returns the cause.
func (c *Client) Fail(ctx context.Context, cluster string, err error) error {
	if c.Context().Err() != nil {
		return context.Cause(c.Context())
	}
	var e *Failure
	var own *status.Error
	var late *deadlineError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(context.Cause(ctx), &late):
		return NewFailure(cluster, http.StatusGatewayTimeout, fmt.Errorf("%w: %w", late, err), "cluster %q %v", cluster, late)
	case errors.Is(context.Cause(ctx), ErrFoundElsewhere):
		return NewFailure(cluster, http.StatusGatewayTimeout, err,
			"cluster %q did not respond within %v after the object was found in the cluster that had it last", cluster,
			c.GracePeriod())
	case errors.As(err, &own):
		return &Failure{Cluster: cluster, Code: own.Code(), Message: own.Message, Err: err}
	default:
		return NewFailure(cluster, http.StatusBadGateway, err, "cluster %q: %v", cluster, err)
	}
}

// MetadataListAccept is the Accept header of a list without the contents of objects.
const MetadataListAccept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json"

// ListMetadata returns the metadata of a list and the number of its objects. The answer is closed.
func (c *Client) ListMetadata(ctx context.Context, t Target, call Call) (m merge.Metadata, n int, a *Answer) {
	a = c.Do(ctx, t, call, func(a *Answer) error {
		s, err := merge.Open(t.Name, a.Body)
		if err == nil {
			err = s.Drain()
		}
		if err == nil {
			m, n = *s.Metadata(), s.Read
		}
		return err
	})
	a.Close()
	return m, n, a
}

// IsSingle reports whether a request covers one cluster alone. The response then has that cluster's own
// resourceVersions. Clusters that are down count, because resourceVersions must not change their form when one returns.
func IsSingle(targets []Target) bool { return len(targets) == 1 }
