// Package tunnel connects to the API servers of private clusters: by HTTP CONNECT at the bridge's tunnel port, which a cluster's proxyURL
// names, and through the tunnel that an agent of the cluster keeps to the bridge.
//
// Invariants:
//   - The port is believed only with a certificate that the gateway's own keys signed. So a proxyURL can lead nowhere else, and needs no
//     trust of its own.
//   - It sees a token that is good for one cluster and a minute, and then TLS that runs from here to the member's API server: no
//     credential.
package tunnel

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/status"
)

// timeout bounds a connection's making, whatever the caller's own deadline.
const timeout = 20 * time.Second

// maxAnswer is the size in bytes of what is read of a refusal.
const maxAnswer = 16 << 10

// Dialer connects through the tunnel port. It is safe for concurrent use.
type Dialer struct{ Keys *passes.Verifier }

// Prepare reads the keys that Dial needs, unless they are known.
func (d *Dialer) Prepare(ctx context.Context) { d.Keys.Prepare(ctx) }

// Dial connects to the API server of a cluster, address in its kubeconfig, through the port at proxy, which dial reaches. Its errors are
// *status.Error, or the context's.
func (d *Dialer) Dial(ctx context.Context, cluster, address string, proxy *url.URL,
	dial func(ctx context.Context, network, address string) (net.Conn, error)) (net.Conn, error) {
	return d.connect(ctx, cluster, WayTo(cluster, address, proxy), proxy, http.Header{}, dial)
}

// Hop is Dial for a bridge that passes a CONNECT on: it is passed on no further.
func (d *Dialer) Hop(ctx context.Context, way Way, port string) (net.Conn, error) {
	return d.connect(ctx, way.Cluster, way, &url.URL{Scheme: "https", Host: port}, http.Header{HopHeader: {"1"}},
		(&net.Dialer{}).DialContext)
}

const (
	// HopHeader marks a CONNECT that another bridge has passed on.
	HopHeader = "Clusterpass-Hop"
	// ServiceHeader of a CONNECT names what Way.Service is.
	ServiceHeader = "Clusterpass-Service"
	// NoneHeader of an answer says what ErrNone does.
	NoneHeader = "Clusterpass-None"
)

// Why a CONNECT fails that was answered.
var (
	ErrNone    = errors.New("no agent is connected")
	ErrRefused = errors.New("CONNECT was refused")
)

// Way is what a CONNECT asks for.
type Way struct {
	Cluster string // whose agents connect
	Service string // host:port that those must list; "" for their cluster's API server
}

// WayTo is how a cluster is reached whose spec.proxyURL is proxy and whose API server is at address: by agents of its own; or, where the
// path of proxy names another cluster, by that one's, for which its API server is a service.
func WayTo(cluster, address string, proxy *url.URL) Way {
	if proxy != nil && strings.Trim(proxy.Path, "/") != "" {
		return Way{strings.Trim(proxy.Path, "/"), address}
	}
	return Way{Cluster: cluster}
}

func (d *Dialer) connect(ctx context.Context, cluster string, way Way, proxy *url.URL, header http.Header,
	dial func(ctx context.Context, network, address string) (net.Conn, error)) (net.Conn, error) {
	if proxy == nil || proxy.Scheme != "https" || proxy.Port() == "" {
		return nil,
			status.New(status.Misconfigured, cluster,
				"cluster %q is private, and its spec.proxyURL is none of a tunnel port, such as https://bridge.internal:8444",
				cluster)
	}
	token, err := d.Keys.TunnelToken(ctx, way.Cluster)
	if err != nil {
		return nil, unreachable(ctx, cluster, proxy.Host, err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	raw, err := dial(ctx, "tcp", proxy.Host)
	if err != nil {
		return nil, unreachable(ctx, cluster, proxy.Host, err)
	}
	conn := tls.Client(raw, &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"},
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it, by the gateway's own keys
		VerifyConnection: func(cs tls.ConnectionState) error {
			return d.Keys.VerifyTunnelCertificate(ctx, cs.PeerCertificates[0])
		},
	})
	if err = conn.HandshakeContext(ctx); err == nil {
		header.Set("Proxy-Authorization", "Bearer "+string(token.Reveal()))
		err = Connect(ctx, conn, way, header)
	}
	if err != nil {
		_ = conn.Close()
		return nil, unreachable(ctx, cluster, proxy.Host, err)
	}
	return conn, nil
}

// unreachable is for a tunnel port that does not answer as it should.
func unreachable(ctx context.Context, cluster, host string, err error) error {
	var known *status.Error
	var timed net.Error
	switch {
	case errors.As(err, &known) && (known.Reason == status.Unreachable || passed(known.Reason)):
		known.Cluster = cluster // which may be reached by another one's agents
		return known
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case ctx.Err() != nil || errors.As(err, &timed) && timed.Timeout():
		return &status.Error{Reason: status.Timeout, Cluster: cluster, Err: err,
			Message: fmt.Sprintf("cluster %q is private, and the bridge's tunnel port at %s does not answer in time; try again",
				cluster, host)}
	}
	return &status.Error{Reason: status.Unreachable, Cluster: cluster, Err: err,
		Message: fmt.Sprintf("cluster %q is private, and the bridge's tunnel port at %s cannot be reached", cluster, host)}
}

// Target is what a CONNECT for a cluster names.
func Target(cluster string) string { return cluster + ":443" }

// Connect asks for a way at the other end of conn, which is that connection then. A refusal is returned as the *status.Error that the
// other end made.
func Connect(ctx context.Context, conn net.Conn, way Way, header http.Header) error {
	if way.Service != "" {
		header.Set(ServiceHeader, way.Service)
	}
	return Ask(ctx, conn, Target(way.Cluster), header, func(resp *http.Response) error {
		return refusal(way.Cluster, resp)
	})
}

// Ask sends CONNECT to address, host:port, and reads the answer. Where that is no connection, refused makes it an error. After an error
// conn is of no use.
func Ask(ctx context.Context, conn net.Conn, address string, header http.Header,
	refused func(*http.Response) error) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: header}
	if err := req.Write(conn); err != nil {
		return err
	}
	br := bufio.NewReaderSize(io.LimitReader(conn, 2*maxAnswer), 1<<10) // of a header, too
	resp, err := http.ReadResponse(br, req)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		defer func() { _ = resp.Body.Close() }()
		return refused(resp)
	} // else conn goes on behind the header, whatever that says of a body: to close one would wait for it
	if br.Buffered() > 0 {
		return errors.New("more than an answer came, and servers of TLS do not speak first")
	}
	if !stop() {
		return ctx.Err() // the deadline is set, or will be
	}
	return nil
}

// refusal reads the Status of an answer that is no connection.
func refusal(cluster string, resp *http.Response) error {
	var st metav1.Status
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil {
		err = json.Unmarshal(data, &st)
	}
	if err != nil || st.Message == "" || st.Details == nil || len(st.Details.Causes) == 0 {
		return fmt.Errorf("CONNECT was answered %s", resp.Status)
	}
	reason := status.Reason(st.Details.Causes[0].Type)
	st.Message = bounded(st.Message)
	why := fmt.Errorf("%w: %s, %s", ErrRefused, resp.Status, reason)
	if resp.Header.Get(NoneHeader) != "" {
		why = ErrNone
	}
	if !passed(reason) {
		reason = status.Unreachable // whatever else is wrong there: to the caller, the member cannot be reached
	}
	return &status.Error{Reason: reason, Cluster: cluster, Message: st.Message, Err: why}
}

// passed reports whether a caller is told this reason: what is wrong with the gateway's own keys says nothing of theirs.
func passed(reason status.Reason) bool {
	return reason == status.Timeout || reason == status.StoreUnavailable
}

// bounded is a message that is fit to be passed on, whoever made it: an agent is no part of the gateway.
func bounded(message string) string {
	message = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, message)
	return fmt.Sprintf("%.500s", message)
}
