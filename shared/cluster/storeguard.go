package cluster

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/clusterpass/clusterpass/shared/hub"
	"github.com/clusterpass/clusterpass/shared/status"
)

const (
	hubCheckTimeout = 5 * time.Second
	// notHubFor is how long a member that is not the hub is not checked again. Its address may lead to another cluster.
	notHubFor = 10 * time.Minute
)

// storeGuard refuses requests to the gateway's stores, if the member is the cluster of the stores. All connections of a
// member share it. It fails closed: a member that cannot be distinguished from the hub is refused the same requests.
type storeGuard struct {
	guard   *hub.Guard
	cluster string
	server  *url.URL

	mu      sync.Mutex
	isHub   bool
	checked time.Time // zero before the first check that succeeded
}

type sendFunc func(*http.Request) (*http.Response, error)

// check returns a *status.Error if r must not be sent. It uses the credential in r, without its impersonation.
func (g *storeGuard) check(r *http.Request, send sendFunc) error {
	if g == nil {
		return nil
	}
	if !g.guard.Concerns(r.Method, g.pathOf(r.URL), r.URL.RawQuery) {
		return nil
	}
	isHub, err := g.isMemberHub(r, send)
	switch {
	case err != nil:
		return &status.Error{Reason: status.Forbidden, Cluster: g.cluster, Err: err, Message: fmt.Sprintf(
			"cluster %q may have the gateway's stores, which cannot be called: the gateway cannot read %s there; "+
				"let its account read that path, by the ClusterRole system:service-account-issuer-discovery",
			g.cluster, hub.KeysPath)}
	case isHub:
		return status.New(status.Forbidden, g.cluster,
			"cluster %q has the gateway's stores, which cannot be called through the gateway; "+
				"call another namespace, or a single one for secrets, or the cluster itself", g.cluster)
	}
	return nil
}

// pathOf returns the escaped path below the member's server. Package forward sends paths byte for byte, as Opaque,
// which may begin with the host.
func (g *storeGuard) pathOf(u *url.URL) string {
	path := u.EscapedPath()
	if u.Opaque != "" {
		path = strings.TrimPrefix(u.Opaque, "//"+u.Host)
	}
	return strings.TrimPrefix(path, g.server.EscapedPath())
}

func (g *storeGuard) isMemberHub(r *http.Request, send sendFunc) (bool, error) {
	g.mu.Lock()
	isHub, checked := g.isHub, g.checked
	g.mu.Unlock()
	if isHub || !checked.IsZero() && time.Since(checked) < notHubFor {
		return isHub, nil
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), hubCheckTimeout)
	defer cancel()
	keys, err := g.readKeys(ctx, r, send)
	if err == nil {
		isHub, err = g.guard.IsHub(ctx, keys)
	}
	if err != nil {
		return false, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isHub, g.checked = g.isHub || isHub, start
	return g.isHub, nil
}

func (g *storeGuard) readKeys(ctx context.Context, r *http.Request, send sendFunc) (hub.Keys, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.server.JoinPath(hub.KeysPath).String(), nil)
	if err != nil {
		return nil, err
	}
	if a := r.Header.Get("Authorization"); a != "" {
		req.Header.Set("Authorization", a)
	}
	resp, err := send(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %d", hub.KeysPath, resp.StatusCode)
	}
	return hub.ReadKeys(resp.Body)
}
