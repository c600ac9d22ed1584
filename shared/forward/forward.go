// Package forward forwards one request to one member cluster and copies the response back.
//
// Invariants:
//   - Path, query and bodies arrive unchanged. Bodies are streamed in both directions and never decompressed.
//   - A client's headers about identity or proxies never reach a member. The identity comes from the caller's User and
//     the cluster's identity mode. If it cannot be conveyed, the request is refused.
//   - A response that is cut off by the member is cut off for the client too (http.ErrAbortHandler).
//   - The gateway's credential is sent only to the member's own host.
package forward

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/status"
)

// Call is one request to one member. Renewer, Fallback and Observer are optional.
type Call struct {
	route.Request
	User   *identity.User // nil only for Bearer
	Member *cluster.Member
	// Bearer is the caller's own token. It is set only for a Member with identity passthrough.
	Bearer   string
	Renewer  Renewer
	Fallback Fallback
	Observer ResponseObserver
	// IsFleet means that the caller reads responses of several members together, and may cancel some of them.
	IsFleet bool
	Buffer  cluster.Buffer // only with IsFleet
}

// Renewer replaces credentials that a member refuses. cluster.Members implements it.
type Renewer interface {
	// Renew returns the Member with a newer credential than old's, or nil. sent is the header of the refused request.
	Renew(ctx context.Context, old *cluster.Member, sent http.Header) (*cluster.Member, error)
}

// ResponseObserver is called when a member's response headers have arrived, before the client receives anything.
type ResponseObserver interface {
	// An error of ObserveResponse replaces the response.
	ObserveResponse(code int) error
}

// Fallback serves a request in another form if the member does not switch protocols.
type Fallback interface {
	// ServeRefused serves the request, or returns false and no error. Then resp is sent to the client, so its body must be
	// unread. by is the Member that responded, possibly with a renewed credential.
	ServeRefused(resp *http.Response, by *cluster.Member) (done bool, err error)
}

// Do sends r to the member and writes its response to w. It returns an error only if nothing was written, and panics
// with http.ErrAbortHandler if the response breaks off later. Errors are *status.Error or, if the client has gone, the
// context's.
//
// A stream waits in the functions from here to copyBody, so their frames are the memory of an idle watch. Large
// variables are in functions that return before. Below 3,296 bytes in all, Go halves the stack of 16 KiB.
func Do(w http.ResponseWriter, r *http.Request, c *Call) error {
	protocol, err := checkUpgrade(r)
	if err != nil {
		return err
	}
	resp, c, err := open(r, c, protocol)
	if err != nil {
		return err
	}
	defer closeBody(resp)
	if protocol != "" {
		return upgrade(w, r, resp, c, protocol)
	}
	return answer(w, r, resp, c)
}

func closeBody(resp *http.Response) { _ = resp.Body.Close() }

// checkUpgrade returns the protocol that the client wants to switch to, or "".
func checkUpgrade(r *http.Request) (protocol string, err error) {
	if protocol, err = upgradeProtocol(r.Header); err == nil && protocol != "" && r.ContentLength != 0 {
		err = status.New(status.BadRequest, "",
			"the upgrade request has a body: upgrades cannot have one; send it without a body")
	}
	return protocol, err
}

// Open sends a request that is no upgrade and returns the member's response. The caller closes its body and follows no
// redirect. Errors are those of Do. The context of r also covers the reading of the body.
func Open(r *http.Request, c *Call) (*http.Response, error) {
	resp, _, err := open(r, c, "")
	return resp, err
}

// open also calls the Observer. It returns the Call that the response belongs to.
func open(r *http.Request, c *Call, protocol string) (*http.Response, *Call, error) {
	resp, c, err := sendOrRenew(r, c, protocol)
	if err == nil {
		err = impersonationRefused(resp, c)
	}
	if err == nil && c.Observer != nil {
		if err = c.Observer.ObserveResponse(resp.StatusCode); err != nil {
			_ = resp.Body.Close()
		}
	}
	if err != nil {
		return nil, c, err
	}
	return resp, c, nil
}

// sendOrRenew sends the request, twice if the member's credential was rotated.
func sendOrRenew(r *http.Request, c *Call, protocol string) (*http.Response, *Call, error) {
	r, err := bufferSmallBody(r)
	if err != nil {
		return nil, c, err
	}
	resp, err := send(r, c, protocol)
	if err != nil || !isCredentialRefused(resp, c) {
		return resp, c, err
	}
	if c.Renewer != nil && canRetry(r, c) {
		if m, err := c.Renewer.Renew(r.Context(), c.Member, resp.Request.Header); m != nil && err == nil {
			_ = resp.Body.Close()
			renewed := *c
			renewed.Member, c = m, &renewed
			if resp, err = sendAgain(r, c, protocol); err != nil || !isCredentialRefused(resp, c) {
				return resp, c, err
			}
		}
	}
	_ = resp.Body.Close()
	return nil, c, credentialRefused(c)
}

// isCredentialRefused reports whether the member rejected the gateway's credential. An application behind a proxy
// subresource may return a 401 of its own, which the client must see. There, only a metav1.Status counts.
func isCredentialRefused(resp *http.Response, c *Call) bool {
	if resp.StatusCode != http.StatusUnauthorized || c.Bearer != "" {
		return false
	}
	if !isProxied(c.Resource) {
		return true
	}
	st := peekStatus(resp)
	return st != nil && st.Reason == metav1.StatusReasonUnauthorized
}

// peekStatus returns the Status of a small response in JSON, or nil. The body of resp stays complete.
func peekStatus(resp *http.Response) *metav1.Status {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media != "application/json" || resp.ContentLength <= 0 || resp.ContentLength > smallStatus {
		return nil
	}
	stalled := time.AfterFunc(stallTimeout, func() { _ = resp.Body.Close() })
	body, _ := io.ReadAll(resp.Body) // a body that breaks off here breaks off for the client, too
	stalled.Stop()
	resp.Body = &struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), resp.Body), resp.Body}
	var st metav1.Status
	if kjson.UnmarshalCaseSensitivePreserveInts(body, &st) != nil || st.Kind != "Status" || st.APIVersion != "v1" {
		return nil
	}
	return &st
}

const smallStatus = 4 << 10

func isProxied(res route.Resource) bool {
	return res.Subresource == "proxy" || res.Verb == "proxy"
}

// credentialRefused is no 401, because that would make clients discard their own credentials, which are valid.
func credentialRefused(c *Call) error {
	name := c.Member.Cluster.Name
	if c.Member.Credential.Plugin != nil {
		return status.New(status.CredentialRefused, name,
			"cluster %q refuses the credential of its plugin, also after another run; sign in again as for kubectl", name)
	}
	return status.New(status.CredentialRefused, name,
		"cluster %q refuses the gateway's credential; its administrator must register it again", name)
}

const smallBody = 256 << 10

// bufferSmallBody buffers a small body and sets GetBody. net/http then repeats a request that the member provably did
// not begin, as after kube-apiserver's GOAWAY. Do and Open repeat requests that canRetry allows.
func bufferSmallBody(r *http.Request) (*http.Request, error) {
	if r.GetBody != nil || r.ContentLength <= 0 || r.ContentLength > smallBody {
		return r, nil
	}
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return nil, bodyError(err)
	}
	r = r.WithContext(r.Context()) // a copy, since the caller owns the original
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return r, nil
}

// ReceiveBody waits for the body of r if it is small, and keeps it in memory. With start it also waits for the first
// 256 KiB of any other body. The caller must use the returned request. Errors are *status.Error.
func ReceiveBody(r *http.Request, start bool) (*http.Request, error) {
	r, err := bufferSmallBody(r)
	if err != nil || !start || r.GetBody != nil || r.ContentLength == 0 {
		return r, err
	}
	received, err := io.ReadAll(io.LimitReader(r.Body, smallBody))
	if err != nil {
		return nil, bodyError(err)
	}
	r = r.WithContext(r.Context()) // a copy, since the caller owns the original
	r.Body = &struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(received), r.Body), r.Body}
	return r, nil
}

func bodyError(err error) error {
	var late *status.Error
	if errors.As(err, &late) {
		return late
	}
	return status.New(status.BadRequest, "", "the body broke off before its end")
}

// canRetry reports whether a request that failed with 401 may be repeated. An API server authenticates before it does
// anything. An application behind a proxy subresource might not, so only reads are repeated there.
func canRetry(r *http.Request, c *Call) bool {
	if r.ContentLength != 0 && r.GetBody == nil {
		return false
	}
	return route.IsRead(r.Method) || !isProxied(c.Resource)
}

func sendAgain(r *http.Request, c *Call, protocol string) (*http.Response, error) {
	if r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		r = r.WithContext(r.Context()) // a copy, since the caller owns the original
		r.Body = body
	}
	return send(r, c, protocol)
}

func send(r *http.Request, c *Call, protocol string) (*http.Response, error) {
	header := requestHeader(r.Header)
	if err := setIdentity(r.Context(), header, c); err != nil {
		return nil, err
	}
	if protocol != "" {
		header["Connection"], header["Upgrade"] = []string{"Upgrade"}, []string{protocol}
	}
	resp, err := selectTransport(c, protocol).RoundTrip(outgoing(r, header, c))
	if err != nil {
		return nil, upstreamError(r.Context(), c.Member, err)
	}
	if protocol == "" && resp.StatusCode < 200 {
		// The body is the bare connection, which no context would close.
		_ = resp.Body.Close()
		name := c.Member.Cluster.Name
		return nil, status.New(status.Aborted, name, "cluster %q switched protocols, which was not requested", name)
	}
	return resp, nil
}

func selectTransport(c *Call, protocol string) http.RoundTripper {
	switch {
	case protocol != "":
		return c.Member.Upgrade
	case c.IsStream:
		return c.Member.Streams
	case c.IsFleet:
		return c.Member.ForFleet(c.Buffer)
	}
	return c.Member.Single
}

func outgoing(r *http.Request, header http.Header, c *Call) *http.Request {
	u := *c.Member.Server
	path := c.Route.Path
	if base := c.Member.Server.EscapedPath(); base != "" {
		path = base + path
	}
	// Opaque is sent unchanged, while Path would be escaped again. But an Opaque that starts with "//" would be read as a
	// host.
	if strings.HasPrefix(path, "//") {
		u.Path, _ = url.PathUnescape(path)
		u.RawPath = path
	} else {
		u.Path, u.RawPath, u.Opaque = "", "", path
	}
	u.RawQuery, u.ForceQuery = c.Query, strings.HasSuffix(r.RequestURI, "?")
	out := &http.Request{
		Method: r.Method, URL: &u, Host: u.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: r.Body, GetBody: r.GetBody, ContentLength: r.ContentLength,
	}
	if r.ContentLength == 0 {
		out.Body, out.GetBody = nil, nil
	}
	return out.WithContext(r.Context())
}

func answer(w http.ResponseWriter, r *http.Request, resp *http.Response, c *Call) error {
	if err := writeHead(w, resp, c); err != nil || r.Method == http.MethodHead {
		return err
	}
	if c.IsStream {
		copyStream(r.Context(), w, resp.Body)
	} else {
		copyResponse(r.Context(), w, resp.Body)
	}
	return nil
}

// copyStream flushes first, so that a client knows that its watch began. The server detects clients that do not read.
func copyStream(ctx context.Context, w http.ResponseWriter, body io.Reader) {
	flush := http.NewResponseController(w).Flush
	if flush() == nil { // otherwise the client is gone
		copyBody(ctx, w, body, func() {}, flush)
	}
}

// copyResponse closes a body that sends nothing for stallTimeout.
func copyResponse(ctx context.Context, w http.ResponseWriter, body io.ReadCloser) {
	stalled := time.AfterFunc(stallTimeout, func() { _ = body.Close() })
	defer stalled.Stop()
	alive := func() { stalled.Reset(stallTimeout) }
	copyBody(ctx, w, body, alive, func() error { return nil })
}

// writeHead writes the status code and the header of a member's response.
func writeHead(w http.ResponseWriter, resp *http.Response, c *Call) error {
	header := responseHeader(resp.Header)
	if resp.StatusCode >= 300 && resp.StatusCode < 400 && len(resp.Header["Location"]) > 0 {
		name := c.Member.Cluster.Name
		location, err := rewriteLocation(resp.Header["Location"], c.Route, c.Member.Server)
		if err != nil {
			return status.New(status.BadRedirect, name, "cluster %q redirects %w; the gateway does not follow", name, err)
		}
		header["Location"] = []string{location}
	}
	addHeader(w.Header(), header)
	w.WriteHeader(resp.StatusCode)
	return nil
}

// stallTimeout is how long a member may send nothing of an ordinary response.
const stallTimeout = time.Minute

// addHeader adds a member's header to own, which the gateway has set. The gateway's values stay, and get the member's
// warnings beside them.
func addHeader(own, member http.Header) {
	for k, v := range member {
		switch set, ok := own[k]; {
		case !ok:
			own[k] = v
		case k == "Warning":
			own[k] = slices.Concat(set, v)
		}
	}
}

// ErrFinished as the cause of a request's context ends the response as if the member had ended it.
var ErrFinished = errors.New("the answer is complete")

var buffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// copyBody panics with http.ErrAbortHandler if body breaks off, and returns if the client is gone.
func copyBody(ctx context.Context, w io.Writer, body io.Reader, alive func(), flush func() error) {
	buf := newBuffer()
	defer buf.release()
	for {
		alive()
		n, err := body.Read(buf.space())
		if n > 0 {
			alive() // a slow client is not the member's fault
			if _, werr := w.Write(buf.space()[:n]); werr != nil {
				return
			}
			if flush() != nil {
				return
			}
		}
		buf.recordRead(n)
		if err == io.EOF {
			return
		}
		if errors.Is(context.Cause(ctx), ErrFinished) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // even if the client may be gone: returning would make a cut response look complete
		}
	}
}

func upstreamError(ctx context.Context, m *cluster.Member, err error) error {
	var ended *status.Error
	if ctxErr := context.Cause(ctx); errors.Is(ctxErr, context.Canceled) || errors.As(ctxErr, &ended) {
		return ctxErr // the client is gone, or the call was ended for a reason
	}
	return cluster.CallFailure(m.Cluster.Name, m.Server.Host, err)
}
