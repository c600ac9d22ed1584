package forward

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/shared/status"
)

// Protocols that a connection may switch to.
const (
	WebSocket = "websocket"
	SPDY      = "SPDY/3.1"
)

// Switcher is implemented by hijacked connections that inspect the traffic after the switch. Switch returns the
// connection to use in place of client.
type Switcher interface {
	Switch(protocol string, client net.Conn) net.Conn
}

// upgradeProtocol returns WebSocket, SPDY, or "" for none. Others, such as h2c, are refused, since they would open a
// connection that the gateway cannot inspect.
func upgradeProtocol(h http.Header) (string, error) {
	if len(h["Upgrade"]) == 0 {
		return "", nil
	}
	asked := false
	for _, line := range h["Connection"] {
		for token := range strings.SplitSeq(line, ",") {
			asked = asked || strings.EqualFold(strings.TrimSpace(token), "Upgrade")
		}
	}
	for _, known := range []string{WebSocket, SPDY} {
		if len(h["Upgrade"]) == 1 && strings.EqualFold(h["Upgrade"][0], known) && asked {
			return known, nil
		}
	}
	return "",
		status.New(status.BadRequest, "",
			"upgrade to %q is not supported; use websocket or SPDY/3.1 with Connection: Upgrade",
			strings.Join(h["Upgrade"], ", "))
}

// Dial asks the member to switch to protocol, regardless of the headers of r. It returns a 101 with a body that is an
// io.ReadWriteCloser, or another response that is no redirect. The returned Call may have a renewed Member.
func Dial(r *http.Request, c *Call, protocol string) (*http.Response, *Call, error) {
	resp, c, err := open(r, c, protocol)
	if err == nil {
		if err = checkSwitch(resp, c, protocol); err != nil {
			_ = resp.Body.Close()
		}
	}
	if err != nil {
		return nil, c, err
	}
	return resp, c, nil
}

// Answer writes a member's response other than 101 to the client, as Do does.
func Answer(w http.ResponseWriter, r *http.Request, resp *http.Response, c *Call) error {
	return answer(w, r, resp, c)
}

func checkSwitch(resp *http.Response, c *Call, protocol string) error {
	name := c.Member.Cluster.Name
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		return status.New(status.BadRedirect, name, "cluster %q redirects an upgrade; the gateway does not follow", name)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		if _, ok := resp.Body.(io.ReadWriteCloser); !ok || !strings.EqualFold(resp.Header.Get("Upgrade"), protocol) {
			return status.New(status.Aborted, name, "cluster %q switched to another protocol than asked", name)
		}
	}
	return nil
}

// upgrade returns after both directions have ended.
func upgrade(w http.ResponseWriter, r *http.Request, resp *http.Response, c *Call, protocol string) error {
	if err := checkSwitch(resp, c, protocol); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		if c.Fallback != nil {
			if done, err := c.Fallback.ServeRefused(resp, c.Member); done || err != nil {
				return err
			}
		}
		return answer(w, r, resp, c)
	}
	member := resp.Body.(io.ReadWriteCloser) // verified by checkSwitch
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return &status.Error{
			Reason: status.Internal, Message: "this endpoint cannot switch protocols; call the URL under /bridge", Err: err,
		}
	}
	defer func() { _ = client.Close() }()
	_ = client.SetDeadline(time.Time{}) // the server's deadlines for the request end here
	header := w.Header().Clone()        // the caller may use w's for another handshake
	addHeader(header, responseHeader(resp.Header))
	header["Connection"], header["Upgrade"] = []string{"Upgrade"}, []string{protocol}
	head := &http.Response{StatusCode: http.StatusSwitchingProtocols, ProtoMajor: 1, ProtoMinor: 1, Header: header}
	if err := head.Write(client); err != nil {
		return nil //nolint:nilerr // the client is gone
	}
	var clientConn net.Conn = newBufferedConn(client, buffered.Reader)
	if s, ok := client.(Switcher); ok {
		clientConn = s.Switch(protocol, clientConn)
	}
	pipe(r.Context(), clientConn, member)
	return nil
}

type bufferedConn struct {
	net.Conn
	r io.Reader
}

// newBufferedConn copies the bytes out of ahead. Reading through ahead would cancel the request's context at the
// client's half-close, and so end the other direction.
func newBufferedConn(c net.Conn, ahead *bufio.Reader) *bufferedConn {
	first, _ := ahead.Peek(ahead.Buffered()) // cannot fail for buffered bytes
	return &bufferedConn{c, io.MultiReader(bytes.NewReader(first), c)}
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.r.Read(p) }

func (c *bufferedConn) CloseWrite() error { return CloseWrite(c.Conn) }

// clientLinger is how long the client's direction stays open after the member has ended.
const clientLinger = 30 * time.Second

// pipe copies in both directions. The end of one direction becomes a half-close, so that bytes in the other direction
// still arrive. An error, or the end of ctx, closes both sides. If the member accepts no more input, the rest of it is
// discarded, because output such as an exit code may follow.
func pipe(ctx context.Context, client net.Conn, member io.ReadWriteCloser) {
	closeBoth := func() { _ = client.Close(); _ = member.Close() }
	stop := context.AfterFunc(ctx, closeBoth)
	defer stop()
	defer closeBoth()
	clientDone := make(chan struct{})
	go func() {
		defer close(clientDone)
		delivered, err := copyHalf(member, client)
		if !delivered {
			_, err = io.Copy(io.Discard, client)
		}
		if err != nil {
			closeBoth()
		}
	}()
	if delivered, err := copyHalf(client, member); !delivered || err != nil {
		closeBoth()
	}
	late := time.AfterFunc(clientLinger, closeBoth) // also ends a member that does not read
	defer late.Stop()
	<-clientDone
}

// copyHalf copies src to dst until src ends, then closes dst for writing. delivered reports whether dst accepted
// everything. err is the error of reading.
func copyHalf(dst io.Writer, src io.Reader) (delivered bool, err error) {
	buf := newBuffer()
	defer buf.release()
	for {
		n, err := src.Read(buf.space())
		if n > 0 {
			if _, werr := dst.Write(buf.space()[:n]); werr != nil {
				return false, nil
			}
		}
		if err == io.EOF {
			return CloseWrite(dst) == nil, nil
		}
		if err != nil {
			return true, err
		}
		buf.recordRead(n)
	}
}

// CloseWrite closes the writing half of w, if w has halves.
func CloseWrite(w any) error {
	if cw, ok := w.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return nil
}
