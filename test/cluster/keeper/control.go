package keeper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/clusterpass/clusterpass/test/cluster/ownership"
)

const (
	faultKill    = "kill"
	faultPause   = "pause"
	faultResume  = "resume"
	faultRestart = "restart"
)

// The mode of the socket's directory excludes other users.
const controlSocket = "control.sock"

func (k *keeper) serve() (*http.Server, error) {
	var listener *net.UnixListener
	err := throughDir(k.run.Path, func(socket string) (err error) {
		listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: socket})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen on the control socket: %w", err)
	}
	listener.SetUnlinkOnClose(false) // throughDir's path is invalid by then, and the directory is removed
	mux := http.NewServeMux()
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(k.state()) // the client notices a truncated answer
	})
	mux.HandleFunc("POST /stop", func(http.ResponseWriter, *http.Request) { k.stop(errStopAsked) })
	mux.HandleFunc("POST /clusters/{name}/{fault}", k.fault)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // ends when closed
	return server, nil
}

// throughDir calls use with a short path of the socket in dir, because the length of a socket's path is limited.
func throughDir(dir string, use func(socket string) error) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return use(fmt.Sprintf("/proc/self/fd/%d/%s", f.Fd(), controlSocket))
}

func (k *keeper) fault(w http.ResponseWriter, r *http.Request) {
	for _, m := range k.members {
		if m.spec.Name != r.PathValue("name") {
			continue
		}
		ctx, cancel := context.WithTimeoutCause(r.Context(), startTimeout, fmt.Errorf("not ready after %s", startTimeout))
		defer cancel()
		if err := m.apply(ctx, r.PathValue("fault"), r.URL.Query()["component"]); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
		return
	}
	http.Error(w, fmt.Sprintf("no cluster %q runs here", r.PathValue("name")), http.StatusNotFound)
}

// A Client calls the keeper of one run. Its methods are safe for concurrent use.
type Client struct {
	dir  string
	http *http.Client
}

// NewClient returns a client of the keeper whose run directory is dir. It does not connect yet.
func NewClient(dir string) *Client {
	return &Client{dir: dir, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
			err = throughDir(dir, func(socket string) error {
				conn, err = new(net.Dialer).DialContext(ctx, "unix", socket)
				return err
			})
			return conn, err
		},
		DisableKeepAlives: true, // calls are rare, and nothing to close is nothing to leak
	}}}
}

// State returns the clusters that the keeper runs.
func (c *Client) State(ctx context.Context) (*State, error) {
	body, err := c.do(ctx, http.MethodGet, "/state")
	if err != nil {
		return nil, err
	}
	s := &State{}
	if err := json.Unmarshal(body, s); err != nil {
		return nil, fmt.Errorf("read the keeper's state: %w", err)
	}
	return s, nil
}

// Kill ends the named components of a cluster at once (SIGKILL); none named means all of them.
func (c *Client) Kill(ctx context.Context, cluster string, components ...string) error {
	return c.fault(ctx, cluster, faultKill, components)
}

// Pause suspends the components (SIGSTOP). Connections stay open without responses.
func (c *Client) Pause(ctx context.Context, cluster string, components ...string) error {
	return c.fault(ctx, cluster, faultPause, components)
}

// Resume continues paused components (SIGCONT).
func (c *Client) Resume(ctx context.Context, cluster string, components ...string) error {
	return c.fault(ctx, cluster, faultResume, components)
}

// Restart kills and starts components with the same addresses and data, and returns when the cluster is ready. Other
// killed components must be restarted in the same call or before.
func (c *Client) Restart(ctx context.Context, cluster string, components ...string) error {
	return c.fault(ctx, cluster, faultRestart, components)
}

func (c *Client) fault(ctx context.Context, cluster, fault string, components []string) error {
	query := url.Values{"component": components}
	_, err := c.do(ctx, http.MethodPost, "/clusters/"+url.PathEscape(cluster)+"/"+fault+"?"+query.Encode())
	return err
}

// Stop stops the keeper's clusters and waits until nothing of them is left.
func (c *Client) Stop(ctx context.Context) error {
	if _, err := c.do(ctx, http.MethodPost, "/stop"); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for {
		if _, err := os.Stat(c.dir); errors.Is(err, os.ErrNotExist) {
			return ownership.Sweep() // waits for the keeper to finish with the directory above, too
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s is gone: %w", c.dir, ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

func (c *Client) do(ctx context.Context, method, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://keeper"+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("call the keeper: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("call the keeper: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(string(bytes.TrimSpace(body)))
	}
	return body, nil
}
