package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/clusterpass/clusterpass/shared/hub"
	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/version"
)

const (
	hubCheckTimeout = 5 * time.Second
	// notHubFor is how long a member that is not the hub is not checked again. Its address may lead to another cluster.
	notHubFor = 10 * time.Minute
	maxCheck  = 1 << 20 // bytes of a response
)

// storeGuard refuses requests to the gateway's stores, if the member is the cluster of the stores. All connections of a
// member share it. It fails closed: a member that cannot be distinguished from the hub is refused the same requests.
type storeGuard struct {
	guard         *hub.Guard
	cluster       string
	server        *url.URL
	isPassthrough bool
	flights       singleflight.Group // by credential

	mu      sync.Mutex
	isHub   bool
	checked time.Time // zero before the first check that succeeded
}

type sendFunc func(*http.Request) (*http.Response, error)

// check returns nil and nil if r may be sent. Otherwise it returns an error, or the member's own response if the member
// refuses the credential or is overloaded. It uses the credential in r, without its impersonation.
func (g *storeGuard) check(r *http.Request, send sendFunc) (*http.Response, error) {
	if g == nil || !g.concerns(r) {
		return nil, nil
	}
	isHub, err := g.isMemberHub(r, send)
	var refused *refusedCheckError
	switch {
	case errors.As(err, &refused) && refused.isTemporary():
		return refused.response(r), nil
	case err != nil:
		return nil, g.explain(err)
	case isHub:
		return nil, status.New(status.Forbidden, g.cluster,
			"cluster %q has the gateway's stores, which cannot be called through the gateway; "+
				"name a namespace other than %q, or call the cluster directly", g.cluster, g.guard.Namespace())
	}
	return nil, nil
}

// explain returns the errors of connections unchanged.
func (g *storeGuard) explain(err error) error {
	var (
		refused *refusedCheckError
		noKeys  *noKeysError
		ofHub   *hubError
	)
	what := fmt.Sprintf("cluster %q may have the gateway's stores, which cannot be called: ", g.cluster)
	switch {
	case errors.As(err, &ofHub):
		return &status.Error{
			Reason: status.StoreUnavailable, Cluster: g.cluster, Err: err, RetryAfter: max(time.Second, hub.RetryAfter(err)),
			Message: what + fmt.Sprintf("the gateway cannot read %s of the cluster of its stores now; try again, "+
				"or let its account there read that path", hub.KeysPath),
		}
	case errors.As(err, &refused) && refused.code == http.StatusForbidden && g.isPassthrough:
		what += fmt.Sprintf("your own token may not read %s there; have the ClusterRole "+
			"system:service-account-issuer-discovery bound to you, or name another namespace", hub.KeysPath)
	case errors.As(err, &refused) && refused.code == http.StatusForbidden:
		what += fmt.Sprintf("the gateway may not read %s there; let its account read that path, by the ClusterRole "+
			"system:service-account-issuer-discovery", hub.KeysPath)
	case errors.As(err, &refused), errors.As(err, &noKeys):
		what += fmt.Sprintf("%s there has no keys of service accounts; name a namespace other than %q, "+
			"or call the cluster directly", hub.KeysPath, g.guard.Namespace())
	default:
		return err
	}
	return &status.Error{Reason: status.Forbidden, Cluster: g.cluster, Err: err, Message: what}
}

// hubError is a failure to read the keys of the hub itself.
type hubError struct{ error }

func (e *hubError) Unwrap() error { return e.error }

// noKeysError is a response of the member that has no keys.
type noKeysError struct{ error }

// refusedCheckError is an unsuccessful response of the member.
type refusedCheckError struct {
	code   int
	header http.Header
	body   []byte
}

func (e *refusedCheckError) Error() string { return fmt.Sprintf("%s answers %d", hub.KeysPath, e.code) }

// isTemporary reports whether the response has nothing to do with the path.
func (e *refusedCheckError) isTemporary() bool {
	return e.code == http.StatusUnauthorized || e.code == http.StatusTooManyRequests ||
		e.code >= http.StatusInternalServerError
}

// response returns the response as that to r. Each caller needs a body of its own.
func (e *refusedCheckError) response(r *http.Request) *http.Response {
	header := e.header.Clone()
	header.Set("Content-Length", strconv.Itoa(len(e.body)))
	return &http.Response{
		StatusCode: e.code, Status: fmt.Sprintf("%d %s", e.code, http.StatusText(e.code)), Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Body: io.NopCloser(bytes.NewReader(e.body)), ContentLength: int64(len(e.body)),
	}
}

// concerns also looks at the whole path, since the path of a member's server may lead into the stores. Package forward
// sends paths byte for byte, as Opaque, which may begin with the host.
func (g *storeGuard) concerns(r *http.Request) bool {
	path := r.URL.EscapedPath()
	if r.URL.Opaque != "" {
		path = strings.TrimPrefix(r.URL.Opaque, "//"+r.URL.Host)
	}
	return g.guard.Concerns(r.Method, strings.TrimPrefix(path, g.server.EscapedPath()), r.URL.RawQuery) ||
		g.guard.Concerns(r.Method, path, r.URL.RawQuery)
}

func (g *storeGuard) isMemberHub(r *http.Request, send sendFunc) (bool, error) {
	g.mu.Lock()
	isHub, checked := g.isHub, g.checked
	g.mu.Unlock()
	if isHub || !checked.IsZero() && time.Since(checked) < notHubFor {
		return isHub, nil
	}
	// Callers with one credential share a check, and the caller that began it may leave.
	flight := g.flights.DoChan(r.Header.Get("Authorization"), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), hubCheckTimeout)
		defer cancel()
		return nil, g.read(ctx, r.Header.Get("Authorization"), send)
	})
	select {
	case <-r.Context().Done():
		return false, context.Cause(r.Context())
	case done := <-flight:
		if done.Err != nil {
			return false, done.Err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.isHub, nil
}

// read checks the member. An error of a connection has the type that send returned.
func (g *storeGuard) read(ctx context.Context, authorization string, send sendFunc) error {
	start := time.Now()
	keys, err := g.readKeys(ctx, authorization, send)
	if err != nil {
		return err
	}
	isHub, err := g.guard.IsHub(ctx, keys)
	if err != nil {
		return &hubError{err}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isHub, g.checked = g.isHub || isHub, start
	return nil
}

func (g *storeGuard) readKeys(ctx context.Context, authorization string, send sendFunc) (hub.Keys, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.server.JoinPath(hub.KeysPath).String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", version.UserAgent())
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	resp, err := send(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	refused := &refusedCheckError{code: resp.StatusCode, header: resp.Header}
	if resp.StatusCode != http.StatusOK && !refused.isTemporary() {
		return nil, refused // such as a switched protocol, whose body is the bare connection
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxCheck))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		refused.body = text
		return nil, refused
	}
	keys, err := hub.ReadKeys(bytes.NewReader(text))
	if err != nil {
		return nil, &noKeysError{err}
	}
	return keys, nil
}
