// Package forward carries one request to one member cluster and its answer back.
//
// Invariants:
//   - What arrives is what was sent: path and query byte for byte, bodies streamed in both directions and never
//     decompressed, upstream errors unchanged.
//   - Nothing that a client writes into a header about identity or about proxies reaches a member. The identity comes from
//     the caller's User and the Cluster's mode; if it cannot be expressed, the call is refused.
//   - An answer that breaks off breaks off at the client too (http.ErrAbortHandler), never looking whole.
//   - The gateway's credential never leaves towards any host but the member's own.
package forward

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
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

// Call is one request to one member.
type Call struct {
	Route  route.Route
	Query  string         // raw, as sent
	User   *identity.User // nil only for Bearer
	Member *cluster.Member
	// Bearer is the caller's own token, for a Member of identity passthrough only; no other ever sees it.
	Bearer string
	// Renew returns the Member with a newer credential, or nil; see cluster.Members.
	Renew func(ctx context.Context, old *cluster.Member, sent http.Header) (*cluster.Member, error)
	// Refused, if not nil, is told when the member, which may be a renewed one, does not switch protocols, and may carry the call in
	// another way: then it returns true. Else resp is passed on, and its body must not have been read.
	Refused func(resp *http.Response, by *cluster.Member) (done bool, err error)
	// Begins, if not nil, is called when the member's answer begins. Its error ends the call in place of the answer.
	Begins func() error
	// Answered, if not nil, is called with the status code of each response of the member.
	Answered func(code int)
	// Carry, if not nil, answers in place of Do: a stream that is made of several members'. Member is nil then.
	Carry func(w http.ResponseWriter, r *http.Request) error
	// Reached, if not nil, is told of a call to several members whose object it reads, and whose it is about to change.
	Reached func(clusters ...string)
}

// Do answers r with the member's answer. An error is returned before anything was written; what breaks later
// panics with http.ErrAbortHandler. Errors are *status.Error or, when the client has gone, the context's.
func Do(w http.ResponseWriter, r *http.Request, c Call) error {
	protocol, err := upgradeProtocol(r.Header)
	if err != nil {
		return err
	}
	if protocol != "" && r.ContentLength != 0 {
		return status.New(status.BadRequest, "", "an upgrade has no body")
	}
	resp, c, err := open(r, c, protocol)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if c.Begins != nil {
		if err := c.Begins(); err != nil {
			return err
		}
	}
	if protocol != "" {
		return upgrade(w, r, resp, c, protocol)
	}
	return answer(w, r, resp, c)
}

// Open makes the call, which is no upgrade, and returns the member's answer as it came, for those who read it themselves: they close its
// body, and follow no redirect. Errors are those of Do. The context of r bounds the whole answer.
func Open(r *http.Request, c Call) (*http.Response, error) {
	resp, _, err := open(r, c, "")
	return resp, err
}

// open sends the call, twice where the member's credential was rotated. The Call is that which was answered.
func open(r *http.Request, c Call, protocol string) (*http.Response, Call, error) {
	r, err := replayable(r)
	if err != nil {
		return nil, c, err
	}
	resp, err := send(r, c, protocol)
	if err != nil || !refuses(r, resp, c) {
		return resp, c, err
	}
	if c.Renew != nil && repeatable(r, c.Route.Path) {
		// The credential may have been rotated since it was read.
		if m, err := c.Renew(r.Context(), c.Member, resp.Request.Header); m != nil && err == nil {
			_ = resp.Body.Close()
			c.Member = m
			if resp, err = sendAgain(r, c, protocol); err != nil || !refuses(r, resp, c) {
				return resp, c, err
			}
		}
	}
	_ = resp.Body.Close()
	return nil, c, refused(c)
}

// refuses reports whether the member refuses the gateway's credential. What is behind its proxy subresources may say 401 for reasons of
// its own; there it is taken for the API server's if it is worded like that, and is the caller's to hear otherwise.
func refuses(r *http.Request, resp *http.Response, c Call) bool {
	if resp.StatusCode != http.StatusUnauthorized || c.Bearer != "" {
		return false
	}
	if !passesOn(r.Method, c.Route.Path) {
		return true
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media != "application/json" || resp.ContentLength <= 0 || resp.ContentLength > smallStatus {
		return false
	}
	stalled := time.AfterFunc(stall, func() { _ = resp.Body.Close() })
	body, _ := io.ReadAll(resp.Body) // what breaks off breaks off again
	stalled.Stop()
	resp.Body = &struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), resp.Body), resp.Body}
	var st metav1.Status
	return kjson.UnmarshalCaseSensitivePreserveInts(body, &st) == nil && st.Kind == "Status" && st.APIVersion == "v1" &&
		st.Reason == metav1.StatusReasonUnauthorized
}

// smallStatus is the size in bytes that no Status with which an API server says 401 exceeds.
const smallStatus = 4 << 10

// passesOn reports whether the member passes a call to path on to something behind it.
func passesOn(method, path string) bool {
	res := route.ParseResource(method, path, "")
	return res.Subresource == "proxy" || res.Verb == "proxy"
}

// refused is for a member that answers 401. The caller is identified; it is the gateway that the member does not know. A 401 would
// make clients throw away good credentials.
func refused(c Call) error {
	name := c.Member.Cluster.Name
	return status.New(status.CredentialRefused, name, "cluster %q refuses the gateway's credential; its administrator must register it anew", name)
}

// smallBody is the size in bytes up to which a body is held, so that it can be sent again.
const smallBody = 256 << 10

// replayable holds a small body of r in memory. A member that closes a connection in good order (GOAWAY, as kube-apiserver does
// now and then) says which calls it has not begun; net/http makes those again, and only those, if it has their bodies. So does Do,
// and Open, with a call that the member refused to begin, see repeatable.
func replayable(r *http.Request) (*http.Request, error) {
	if r.GetBody != nil || r.ContentLength <= 0 || r.ContentLength > smallBody {
		return r, nil
	}
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return nil, bodyError(err)
	}
	r = r.WithContext(r.Context()) // a copy: the original is not ours
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return r, nil
}

// ReceiveBody waits for the body of r if it is small, and keeps it in memory. With start it also waits for the first
// 256 KiB, or the end, of any other body. It returns a request with the same body, or a *status.Error if the body does
// not arrive. The caller must use the returned request.
func ReceiveBody(r *http.Request, start bool) (*http.Request, error) {
	r, err := replayable(r)
	if err != nil || !start || r.GetBody != nil || r.ContentLength == 0 {
		return r, err
	}
	received, err := io.ReadAll(io.LimitReader(r.Body, smallBody))
	if err != nil {
		return nil, bodyError(err)
	}
	r = r.WithContext(r.Context()) // a copy: the original is not ours
	r.Body = &struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(received), r.Body), r.Body}
	return r, nil
}

// bodyError is the error of a body that cannot be read.
func bodyError(err error) error {
	var late *status.Error
	if errors.As(err, &late) {
		return late
	}
	return status.New(status.BadRequest, "", "the body broke off before its end")
}

// repeatable reports whether a call to path that was answered 401 may be made again: its body is at hand, and it was not begun. An
// API server says 401 before it does anything, to a write too; what is behind its proxy subresources may do as it likes,
// so that only reads are repeated there.
func repeatable(r *http.Request, path string) bool {
	if r.ContentLength != 0 && r.GetBody == nil {
		return false
	}
	return r.Method == http.MethodGet || r.Method == http.MethodHead || !passesOn(r.Method, path)
}

// sendAgain is send for a call whose body is spent, and at hand.
func sendAgain(r *http.Request, c Call, protocol string) (*http.Response, error) {
	if r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		r = r.WithContext(r.Context()) // a copy: the original is not ours
		r.Body = body
	}
	return send(r, c, protocol)
}

// send makes the request to the member, as the caller, and returns the answer's head.
func send(r *http.Request, c Call, protocol string) (*http.Response, error) {
	header := requestHeader(r.Header)
	if err := setIdentity(r.Context(), header, c); err != nil {
		return nil, err
	}
	transport := c.Member.REST
	if protocol != "" {
		transport = c.Member.Upgrade
		header["Connection"], header["Upgrade"] = []string{"Upgrade"}, []string{protocol}
	} else if route.Streams(r.Method, c.Route.Path, c.Query, r.Header) {
		transport = c.Member.Streams
	}
	resp, err := transport.RoundTrip(outgoing(r, header, c))
	if err != nil {
		return nil, failure(r.Context(), c.Member, err)
	}
	if c.Answered != nil {
		c.Answered(resp.StatusCode)
	}
	if protocol == "" && resp.StatusCode < 200 {
		// Its body is the bare connection, which nobody ends any more, not the call's context either.
		_ = resp.Body.Close()
		name := c.Member.Cluster.Name
		return nil, status.New(status.Aborted, name, "cluster %q switched protocols, which nobody asked for", name)
	}
	return resp, nil
}

// outgoing makes the request to the member.
func outgoing(r *http.Request, header http.Header, c Call) *http.Request {
	u := *c.Member.Server
	path := c.Route.Path
	if base := c.Member.Server.EscapedPath(); base != "" {
		path = base + path
	}
	// Opaque is sent as it is; Path would be escaped anew. A path that begins with // would be read as a host there.
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
		out.Body, out.GetBody = http.NoBody, nil
	}
	return out.WithContext(r.Context())
}

// answer copies the member's response to the client.
func answer(w http.ResponseWriter, r *http.Request, resp *http.Response, c Call) error {
	header := responseHeader(resp.Header)
	if resp.StatusCode >= 300 && resp.StatusCode < 400 && len(resp.Header["Location"]) > 0 {
		name := c.Member.Cluster.Name
		location, err := rewriteLocation(resp.Header["Location"], c.Route, c.Member.Server)
		if err != nil {
			return status.New(status.BadRedirect, name, "cluster %q redirects %w; the gateway does not follow", name, err)
		}
		header["Location"] = []string{location}
	}
	copyHeader(w.Header(), header)
	w.WriteHeader(resp.StatusCode)
	if r.Method == http.MethodHead {
		return nil
	}
	flush := func() error { return nil }
	streams := route.Streams(r.Method, c.Route.Path, c.Query, r.Header)
	if streams {
		flush = http.NewResponseController(w).Flush
		if err := flush(); err != nil { // the headers tell a watcher that it has begun
			return nil //nolint:nilerr // the client is gone
		}
	}
	alive := func() {}
	if !streams {
		// A stream's idleness is its carrier's business; a plain answer that stands still has died. (That its client takes nothing is the
		// gateway's to notice.)
		stalled := time.AfterFunc(stall, func() { _ = resp.Body.Close() })
		defer stalled.Stop()
		alive = func() { stalled.Reset(stall) }
	}
	copyBody(r.Context(), w, resp.Body, alive, flush)
	return nil
}

// stall is how long a member may send nothing of a plain answer.
const stall = time.Minute

func copyHeader(dst, src http.Header) {
	for k, v := range src {
		dst[k] = v
	}
}

// ErrFinished as the cause of a request's context, ends an answer as if the member had ended it.
var ErrFinished = errors.New("the answer is whole as it is")

var buffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// copyBody copies until the member's end. It panics with http.ErrAbortHandler when the member's body breaks off,
// and returns when the client is gone.
func copyBody(ctx context.Context, w io.Writer, body io.Reader, alive func(), flush func() error) {
	buf := newBuffer()
	defer buf.release()
	for {
		alive()
		n, err := body.Read(buf.space())
		if n > 0 {
			alive() // how long the client takes is not the member's fault
			if _, werr := w.Write(buf.space()[:n]); werr != nil {
				return
			}
			if flush() != nil {
				return
			}
		}
		buf.took(n)
		if err == io.EOF {
			return
		}
		if errors.Is(context.Cause(ctx), ErrFinished) {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // also where the client may be gone: to return would make a cut answer whole
		}
	}
}

// failure says why a member gave no answer.
func failure(ctx context.Context, m *cluster.Member, err error) error {
	var ended *status.Error
	if ctxErr := context.Cause(ctx); errors.Is(ctxErr, context.Canceled) || errors.As(ctxErr, &ended) {
		return ctxErr // the client is gone, or the call was ended for a reason
	}
	name, host := m.Cluster.Name, m.Server.Host
	fail := func(reason status.Reason, format string, args ...any) error {
		return &status.Error{Reason: reason, Cluster: name, Err: err,
			Message: fmt.Sprintf("cluster %q ", name) + fmt.Sprintf(format, args...)}
	}
	var (
		known     *status.Error
		forbidden *cluster.ForbiddenAddressError
		dns       *net.DNSError
		untrusted *tls.CertificateVerificationError
		alert     tls.AlertError
		timeout   net.Error
		op        *net.OpError
	)
	switch {
	case errors.As(err, &known):
		return known // of the tunnel to a private cluster
	case errors.As(err, &forbidden):
		return fail(status.Misconfigured, "cannot be used: %v", forbidden)
	case errors.As(err, &untrusted):
		return fail(status.Unreachable, "at %s shows a certificate that is not trusted: %v", host, untrusted.Err)
	case errors.As(err, &alert):
		return fail(status.CredentialRefused, "at %s refuses the gateway's TLS connection: %v", host, alert)
	case errors.As(err, &dns):
		return fail(status.Unreachable, "is unreachable: no address for %s", dns.Name)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fail(status.Timeout, "at %s did not answer in time; try again, or ask for less", host)
	case errors.As(err, &op) && op.Op == "dial":
		return fail(status.Unreachable, "is unreachable at %s: %v", host, op.Err)
	default:
		return fail(status.Unreachable, "at %s broke the connection before it answered", host)
	}
}
