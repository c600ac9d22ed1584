// Package target connects the gateway only to the API server of the agent's own cluster and to configured services.
package target

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/clusterpass/clusterpass/shared/status"
	"github.com/clusterpass/clusterpass/shared/tunnel"
	"github.com/clusterpass/clusterpass/websocket-bridge/mux"
)

// The bridge waits a second longer.
const dialTimeout = 4 * time.Second

// APIServer serves CONNECT to CLUSTER:443 with a connection to the cluster's API server, or to one of Services.
type APIServer struct {
	Cluster  string
	Address  string   // host:port
	Services []string // host:port, as in the request
}

// ServeHTTP implements http.Handler. The connection must have CloseWrite.
func (a *APIServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect || r.Host != tunnel.ConnectHost(a.Cluster) {
		status.Write(w,
			status.New(status.Forbidden, a.Cluster, "the agent of cluster %q connects to its API server only", a.Cluster))
		return
	}
	what, address := "its API server", a.Address
	if service := r.Header.Get(tunnel.ServiceHeader); service != "" {
		if !slices.Contains(a.Services, service) {
			status.Write(w,
				status.New(status.Forbidden, a.Cluster,
					"the agent of cluster %q connects to services that it lists only; add %.300q to its CLUSTERPASS_SERVICES",
					a.Cluster, service))
			return
		}
		what, address = "the service", service
	}
	ctx, cancel := context.WithTimeout(r.Context(), dialTimeout)
	defer cancel()
	api, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		status.Write(w, a.unreachable(err, what, address))
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = api.Close()
		status.Write(w, err)
		return
	}
	_, err = conn.Write([]byte("HTTP/1.1 200 OK\r\n\r\n"))
	if err != nil || buffered.Reader.Buffered() > 0 { // a client must wait for the response
		_, _ = api.Close(), conn.Close()
		return
	}
	mux.Pipe(conn, api)
}

func (a *APIServer) unreachable(err error, what, address string) error {
	reason, how := status.Unreachable, "cannot connect to"
	if timed := net.Error(nil); errors.As(err, &timed) && timed.Timeout() {
		reason, how = status.Timeout, "gets no answer from"
	}
	return &status.Error{
		Reason: reason, Cluster: a.Cluster, Err: err,
		Message: fmt.Sprintf("cluster %q is private, and its agent %s %s at %s", a.Cluster, how, what, address),
	}
}
