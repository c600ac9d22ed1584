package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/shared/cache"
	"github.com/clusterpass/clusterpass/shared/forward"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/status"
)

const (
	// defaultDiscoveryTimeout exceeds the time in which a loaded API server answers. kubectl itself waits for 32 s, and
	// sends up to six requests one after the other.
	defaultDiscoveryTimeout = 10 * time.Second
	maxSilent               = 1024
	silentTTL               = 10 * time.Second
)

// readsText reports whether the sender of a request shows no Status of an error, because it is client-go's discovery or
// alike. Clients that accept any type, such as curl, get a Status.
func readsText(r *http.Request, path string) bool {
	if r.Method != http.MethodGet || !isDiscovery(path) && !strings.HasPrefix(path, "/openapi/") {
		return false
	}
	accept := r.Header.Get("Accept")
	return strings.Contains(accept, "application/json") || strings.Contains(accept, "proto-openapi")
}

// isDiscovery reports whether path has one small document, which no member computes for long.
func isDiscovery(path string) bool { return path == "/api" || path == "/apis" || path == "/version" }

// discovery bounds how long callers wait for discovery of a member that accepts connections and does not answer. It is
// safe for concurrent use.
type discovery struct {
	timeout time.Duration
	silent  *cache.Expiring[string, error] // timeouts by silentKey
}

func newDiscovery(timeout time.Duration) *discovery {
	return &discovery{timeout: timeout, silent: cache.NewExpiring[string, error](maxSilent, nil)}
}

// forward works like forward.Do, but waits at most d.timeout for the beginning of the response. After a timeout, it
// fails the discovery of the same user in the same cluster at once, for silentTTL. kubectl sends several such requests
// one after the other.
func (d *discovery) forward(w http.ResponseWriter, r *http.Request, c *forward.Call) error {
	name, key := c.Member.Cluster.Name, silentKey(c)
	if err, ok := d.silent.Get(key); ok {
		return err
	}
	late := &status.Error{
		Reason: status.Timeout, Cluster: name, Err: context.DeadlineExceeded,
		Message: fmt.Sprintf("cluster %q did not begin to answer within %s; try again later, or ask its administrator",
			name, d.timeout),
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	deadline := time.AfterFunc(d.timeout, func() { cancel(late) })
	defer deadline.Stop()
	observed := *c
	observed.Observer = &firstByteObserver{next: c.Observer, begin: func() error {
		if !deadline.Stop() {
			return late
		}
		return nil
	}}
	err := forward.Do(w, r.WithContext(ctx), &observed)
	if err != nil && status.From(err).Reason == status.Timeout {
		d.silent.Add(key, err, time.Now().Add(silentTTL))
	}
	return err
}

// silentKey contains the caller: one caller's slow paths must not fail the discovery of others.
func silentKey(c *forward.Call) string {
	user := ""
	if c.User != nil {
		user = c.User.Name
	}
	return c.Member.Cluster.Name + " " + identity.CallerKey(user, c.Bearer)
}
