// Package tunnel connects to the API servers of private clusters. It sends HTTP CONNECT to the bridge's tunnel port,
// the cluster's proxyURL, and the bridge connects through the tunnel of an agent in the cluster.
//
//   - The port's certificate must be signed by the gateway's own keys. So a wrong proxyURL receives nothing.
//   - The port receives a token for one cluster, valid for a minute. The traffic is TLS to the member's API server.
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
	"github.com/clusterpass/clusterpass/shared/version"
)

const timeout = 20 * time.Second

const maxAnswer = 16 << 10

// Dialer connects through the tunnel port. It is safe for concurrent use.
type Dialer struct{ Verifier *passes.Verifier }

// Prepare reads the keys that Dial needs, unless they are cached.
func (d *Dialer) Prepare(ctx context.Context) { d.Verifier.Prepare(ctx) }

// Dial connects to a cluster's API server through the tunnel port at proxy, which dial connects to. address is that in
// its kubeconfig. Errors are *status.Error or the context's.
func (d *Dialer) Dial(ctx context.Context, cluster, address string, proxy *url.URL,
	dial func(ctx context.Context, network, address string) (net.Conn, error)) (net.Conn, error) {
	return d.connect(ctx, cluster, DestinationOf(cluster, address, proxy), proxy, http.Header{}, dial)
}

// Hop is like Dial for a bridge that forwards a CONNECT to a peer. The peer does not forward it again.
func (d *Dialer) Hop(ctx context.Context, to Destination, port string) (net.Conn, error) {
	return d.connect(ctx, to.Cluster, to, &url.URL{Scheme: "https", Host: port}, http.Header{HopHeader: {"1"}},
		(&net.Dialer{}).DialContext)
}

const (
	// HopHeader marks a CONNECT that another bridge has forwarded.
	HopHeader = "Clusterpass-Hop"
	// ServiceHeader of a CONNECT contains Destination.Service.
	ServiceHeader = "Clusterpass-Service"
	// NoneHeader of a response means ErrNone.
	NoneHeader = "Clusterpass-None"
)

// Errors of a CONNECT that was refused.
var (
	ErrNone    = errors.New("no agent is connected")
	ErrRefused = errors.New("CONNECT was refused")
)

// Destination is the API server or service that a CONNECT connects to.
type Destination struct {
	Cluster string // the cluster whose agents connect
	Service string // host:port, which these agents must list; "" for their cluster's API server
}

// DestinationOf returns the destination for a cluster with an API server at address. If the path of proxy names another
// cluster, the agents of that cluster connect, and address is a service for them.
func DestinationOf(cluster, address string, proxy *url.URL) Destination {
	if proxy != nil && strings.Trim(proxy.Path, "/") != "" {
		return Destination{strings.Trim(proxy.Path, "/"), address}
	}
	return Destination{Cluster: cluster}
}

func (d *Dialer) connect(ctx context.Context, cluster string, to Destination, proxy *url.URL, header http.Header,
	dial func(ctx context.Context, network, address string) (net.Conn, error)) (net.Conn, error) {
	if proxy == nil || proxy.Scheme != "https" || proxy.Port() == "" {
		return nil,
			status.New(status.Misconfigured, cluster,
				"cluster %q is private, but its spec.proxyURL is not the URL of a tunnel port, such as "+
					"https://bridge.internal:8444",
				cluster)
	}
	token, err := d.Verifier.TunnelToken(ctx, to.Cluster)
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
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it, with the gateway's own keys
		VerifyConnection: func(cs tls.ConnectionState) error {
			return d.Verifier.VerifyTunnelCertificate(ctx, cs.PeerCertificates[0])
		},
	})
	if err = conn.HandshakeContext(ctx); err == nil {
		header.Set("Proxy-Authorization", "Bearer "+string(token.Reveal()))
		err = Connect(ctx, conn, to, header)
	}
	if err != nil {
		_ = conn.Close()
		return nil, unreachable(ctx, cluster, proxy.Host, err)
	}
	return conn, nil
}

func unreachable(ctx context.Context, cluster, host string, err error) error {
	var known *status.Error
	var timed net.Error
	switch {
	case errors.As(err, &known) && (known.Reason == status.Unreachable || passed(known.Reason)):
		known.Cluster = cluster // not another cluster, whose agents connect
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

// ConnectHost returns the host of a CONNECT for a cluster.
func ConnectHost(cluster string) string { return cluster + ":443" }

// Connect sends a CONNECT for target to conn. A refusal is the *status.Error of the other end.
func Connect(ctx context.Context, conn net.Conn, target Destination, header http.Header) error {
	if target.Service != "" {
		header.Set(ServiceHeader, target.Service)
	}
	return Ask(ctx, conn, ConnectHost(target.Cluster), header, func(resp *http.Response) error {
		return refusal(target.Cluster, resp)
	})
}

// Ask sends CONNECT to address, which is host:port. It adds a User-Agent to header. refused converts a refusal. After
// an error conn is unusable.
func Ask(ctx context.Context, conn net.Conn, address string, header http.Header,
	refused func(*http.Response) error) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	header.Set("User-Agent", version.UserAgent())
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: header}
	if err := req.Write(conn); err != nil {
		return err
	}
	br := bufio.NewReaderSize(io.LimitReader(conn, 2*maxAnswer), 1<<10) // also limits the header
	resp, err := http.ReadResponse(br, req)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		defer func() { _ = resp.Body.Close() }()
		return refused(resp)
	} // the connection starts after the header; closing a body would wait for it
	if br.Buffered() > 0 {
		return errors.New("unexpected data follows the response to CONNECT")
	}
	if !stop() {
		return ctx.Err() // the deadline is set, or will be
	}
	return nil
}

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
		reason = status.Unreachable // the caller cannot act on any other reason
	}
	return &status.Error{Reason: reason, Cluster: cluster, Message: st.Message, Err: why}
}

// passed reports whether the reason is useful for a caller. Errors about the gateway's own keys are not.
func passed(reason status.Reason) bool {
	return reason == status.Timeout || reason == status.StoreUnavailable
}

// bounded returns a printable message of limited length. An untrusted agent may have made it.
func bounded(message string) string {
	message = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, message)
	return fmt.Sprintf("%.500s", message)
}
