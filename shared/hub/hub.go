// Package hub sends the requests of the stores to the API server of a hub cluster, over net/http.
//
//   - Every call of [Client.Do] ends within [CallTimeout].
//   - A read is repeated after any failure of the network. A write is repeated only if the API server did not begin it.
//   - [FaultOf] classifies the errors.
package hub

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterpass/clusterpass/shared/version"
)

const (
	// CallTimeout is the deadline of one operation of a store with all attempts.
	CallTimeout = 10 * time.Second
	// attemptTimeout is short, since a connection may be dead without notice.
	attemptTimeout = 4 * time.Second
	attempts       = 6
	firstPause     = 50 * time.Millisecond
	maxPause       = time.Second
	// maxWait limits the sum of the pauses in one call. A longer Retry-After is left to the caller.
	maxWait = 3 * time.Second
	// maxBody exceeds a page of 100 records of the largest size.
	maxBody = 96 << 20
	// maxError bounds the part of an error response that is read.
	maxError = 64 << 10
)

// Client sends requests to one API server. It is safe for concurrent use.
type Client struct {
	cfg Config
}

// Config configures a Client.
type Config struct {
	// Transport adds the credential.
	Transport http.RoundTripper
	// Server is the base URL of the API server.
	Server *url.URL
	// Namespace is that of the stores.
	Namespace string
	// Store is the address of the stores in messages. Empty means kubernetes: and the namespace.
	Store string
}

// New returns a Client. It sends no request.
func New(cfg Config) *Client { return &Client{cfg} }

// Namespace returns the namespace of the stores.
func (c *Client) Namespace() string { return c.cfg.Namespace }

// Request is one request. Body is encoded as JSON, unless it is nil.
type Request struct {
	Method, Path string
	Query        url.Values
	Body         any
	ContentType  string // of Body; empty means application/json
	Accept       string // empty means application/json
	// IsIdempotent means that the request may be repeated although the API server may have completed it. Reads are
	// idempotent without it.
	IsIdempotent bool
}

// Error is an error response of the API server.
type Error struct {
	metav1.Status

	after time.Duration // Retry-After
}

func (e *Error) Error() string {
	if e.Message != "" {
		return e.Message
	}
	return fmt.Sprintf("the API server answers %d %s", e.Code, http.StatusText(int(e.Code)))
}

// Do sends r, reads the response into out, unless that is nil, and repeats the request if possible.
func (c *Client) Do(ctx context.Context, r Request, out any) error {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	return c.repeat(ctx, r, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		body, err := c.send(ctx, r)
		if err != nil {
			return err
		}
		defer func() { _ = body.Close() }()
		text, err := io.ReadAll(io.LimitReader(body, maxBody+1))
		if err == nil && len(text) > maxBody {
			err = fmt.Errorf("the response of the API server has more than %d bytes", maxBody)
		}
		if err == nil && out != nil {
			err = json.Unmarshal(text, out)
		}
		return err
	})
}

// Stream sends a GET request whose response does not end by itself. The caller must close the body. The end of ctx
// breaks it off.
func (c *Client) Stream(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	r := Request{Method: http.MethodGet, Path: path, Query: query}
	var body io.ReadCloser
	deadline, stop := context.WithTimeout(ctx, CallTimeout)
	defer stop()
	err := c.repeat(deadline, r, func(deadline context.Context) error {
		// The deadline must not end the stream, so only a timer ends an attempt.
		attempt, cancel := context.WithCancel(ctx)
		end, _ := deadline.Deadline()
		timer := time.AfterFunc(min(attemptTimeout, time.Until(end)), cancel)
		b, err := c.send(attempt, r)
		if !timer.Stop() && !errors.Is(ctx.Err(), context.Canceled) { // the transport may return Canceled
			if err == nil {
				_ = b.Close()
			}
			err = context.DeadlineExceeded
		}
		if err != nil {
			cancel()
			return err
		}
		body = &stream{b, cancel}
		return nil
	})
	return body, err
}

type stream struct {
	io.ReadCloser
	cancel func()
}

func (s *stream) Close() error {
	s.cancel()
	return s.ReadCloser.Close()
}

func (c *Client) repeat(ctx context.Context, r Request, try func(context.Context) error) error {
	var waited time.Duration
	for n := 1; ; n++ {
		err := try(ctx)
		if err == nil || n == attempts || !canRepeat(r, err) || ctx.Err() != nil {
			return callError(ctx, err)
		}
		pause := Pause(n)
		var e *Error
		if errors.As(err, &e) {
			pause = max(pause, e.after)
		}
		if waited += pause; waited > maxWait || Sleep(ctx, pause) != nil {
			return callError(ctx, err)
		}
	}
}

// callError returns context.Canceled if the caller is gone.
func callError(ctx context.Context, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return err
}

func canRepeat(r Request, err error) bool {
	switch FaultOf(err) {
	case Throttled:
		return true
	case Unavailable:
		var dial *net.OpError
		return r.Method == http.MethodGet || r.IsIdempotent || errors.As(err, &dial) && dial.Op == "dial"
	}
	return false
}

// send returns the body of a successful response.
func (c *Client) send(ctx context.Context, r Request) (io.ReadCloser, error) {
	u := c.cfg.Server.JoinPath(r.Path)
	u.RawQuery = r.Query.Encode()
	var body io.Reader
	if r.Body != nil {
		text, err := json.Marshal(r.Body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, u.String(), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", cmp.Or(r.Accept, "application/json"))
	req.Header.Set("User-Agent", version.UserAgent())
	if body != nil {
		req.Header.Set("Content-Type", cmp.Or(r.ContentType, "application/json"))
	}
	resp, err := c.cfg.Transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp.Body, nil
	}
	defer func() { _ = resp.Body.Close() }()
	return nil, readError(resp)
}

func readError(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxError))
	if err != nil {
		return err
	}
	e := &Error{}
	if json.Unmarshal(text, &e.Status) != nil || e.Kind != "Status" {
		e.Status = metav1.Status{} // such as the text of a path that does not exist, or of a load balancer
	}
	e.Code = int32(resp.StatusCode)
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		e.after = min(time.Duration(s)*time.Second, time.Minute)
	}
	return e
}

// Pause returns the pause after attempt n. The first attempt is 1.
func Pause(n int) time.Duration {
	limit := min(firstPause<<min(n, 10), maxPause)
	return rand.N(limit) + limit/8 //nolint:gosec // no secret depends on it
}

// Sleep waits for d, or returns the error of ctx if it ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// DeleteRequest returns the request that deletes the object at path, if it still has a UID and a resourceVersion.
func DeleteRequest(path, uid, resourceVersion string) Request {
	return Request{Method: http.MethodDelete, Path: path, Body: metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: &metav1.Preconditions{UID: (*types.UID)(&uid), ResourceVersion: &resourceVersion},
	}}
}

// Path returns the path of a collection in the namespace of the stores, or of the object name in it. group is the group
// and version, such as api/v1.
func (c *Client) Path(group, resource string, name ...string) string {
	return strings.Join(append([]string{group, "namespaces", c.cfg.Namespace, resource}, name...), "/")
}
