// Package webhook posts audit events to a webhook, as kube-apiserver does with --audit-webhook-config-file.
package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/version"
)

const (
	dialTimeout = 5 * time.Second
	idleTimeout = 90 * time.Second
	maxIdle     = 8
	maxAnswer   = 4 << 10 // bytes of a response that are read, so that its connection can be used again
)

// Config configures the connection to a webhook.
type Config struct {
	URL      *url.URL    // https
	TLS      *tls.Config // verifies the server, and may have a client certificate; nil means the system's roots
	ProxyURL *url.URL    // nil for none
	// Token is a bearer token; "" for none.
	Token string
	// Username and Password are for basic authentication; "" for none.
	Username, Password string
}

// Sink is an audit.Sink. It is safe for concurrent use. Close it when done.
type Sink struct {
	cfg    Config
	client *http.Client
}

// New returns a Sink. It does not connect.
func New(cfg Config) *Sink {
	transport := &http.Transport{
		TLSClientConfig: cfg.TLS, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: idleTimeout, MaxIdleConnsPerHost: maxIdle,
		ForceAttemptHTTP2: true,
	}
	if cfg.ProxyURL != nil {
		transport.Proxy = http.ProxyURL(cfg.ProxyURL)
	}
	return &Sink{cfg: cfg, client: &http.Client{
		Transport: transport,
		// Do not follow redirects: they would send the events to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

var _ audit.Sink = (*Sink)(nil)

// Deliver implements audit.Sink. It accepts all events or none. ctx must have a deadline.
func (s *Sink) Deliver(ctx context.Context, events [][]byte) (accepted int, err error) {
	body := eventList(events)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.cfg.URL.String(), bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("deliver audit events: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", version.UserAgent())
	// Not sent, but net/http repeats the request on another connection if an idle one has died.
	req.Header["X-Idempotency-Key"] = nil
	switch {
	case s.cfg.Token != "":
		req.Header.Set("Authorization", "Bearer "+s.cfg.Token)
	case s.cfg.Username != "":
		req.SetBasicAuth(s.cfg.Username, s.cfg.Password)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("deliver audit events: %w", err)
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)
	_ = resp.Body.Close()
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode <= 299:
		return len(events), nil
	case isRejection(resp.StatusCode):
		err = audit.ErrRejected
	default:
		err = errNotAcknowledged
	}
	return 0, fmt.Errorf("deliver %d audit events in %d bytes: %w: the webhook answered %s",
		len(events), len(body), err, resp.Status)
}

// Close closes idle connections.
func (s *Sink) Close() error {
	s.client.CloseIdleConnections()
	return nil
}

var errNotAcknowledged = errors.New("the events are not acknowledged")

// isRejection reports whether code rejects the events themselves. An operator can end other failures, such as 401.
func isRejection(code int) bool {
	return code == http.StatusBadRequest || code == http.StatusRequestEntityTooLarge ||
		code == http.StatusUnprocessableEntity
}

func eventList(events [][]byte) []byte {
	const begin, end = `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[`, "]}"
	size := len(begin) + len(end)
	for _, e := range events {
		size += len(e)
	}
	body := append(make([]byte, 0, size), begin...)
	for i, e := range events {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, bytes.TrimSuffix(e, []byte("\n"))...)
	}
	return append(body, end...)
}
