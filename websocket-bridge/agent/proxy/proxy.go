// Package proxy connects an agent to the gateway, directly or through the proxy in its environment.
//
// Invariants:
//   - A proxy receives only the gateway's host name and encrypted TLS traffic.
//   - The size and the time of a proxy's response are limited. Only a 2xx response makes the connection usable.
//   - Errors contain instructions, but never the user or password of the proxy.
package proxy

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"
	"golang.org/x/net/proxy"

	"github.com/clusterpass/clusterpass/shared/tunnel"
)

// timeout bounds connecting, because http.Transport does not pass on the deadline of its request.
const timeout = 15 * time.Second

// Dialer connects to the gateway. It is safe for concurrent use. Create it with New.
type Dialer struct {
	TLS *tls.Config // for proxies with TLS; nil means the system's CAs

	proxyFor func(*url.URL) (*url.URL, error)
}

// New returns a Dialer for env. It returns an error for an invalid proxy, which httpproxy would ignore.
func New(env *httpproxy.Config) (*Dialer, error) {
	d := &Dialer{proxyFor: env.ProxyFunc()}
	if env.HTTPSProxy == "" {
		return d, nil
	}
	all := *env
	all.NoProxy = ""
	via, err := all.ProxyFunc()(&url.URL{Scheme: "https", Host: "gateway.invalid"})
	if err != nil || via == nil || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, via.Scheme) {
		// The cause may contain the password.
		return nil, errors.New("HTTPS_PROXY: want a URL of kind http, https or socks5, such as " +
			"http://proxy.example.com:3128")
	}
	return d, nil
}

// DialContext works like net.Dialer.DialContext. It has its own deadline in addition to ctx.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	via, err := d.proxyFor(&url.URL{Scheme: "https", Host: address})
	if err != nil {
		return nil, err // only possible for CGI
	}
	if via == nil {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	if strings.HasPrefix(via.Scheme, "http") {
		return d.connect(ctx, via, address)
	}
	socks, err := proxy.FromURL(via, &net.Dialer{})
	if err != nil {
		return nil, err
	}
	conn, err := socks.(proxy.ContextDialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("by the proxy %s, which HTTPS_PROXY names: %w", via.Host, err)
	}
	return conn, nil
}

func (d *Dialer) connect(ctx context.Context, via *url.URL, address string) (net.Conn, error) {
	port := via.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[via.Scheme]
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(via.Hostname(), port))
	if err != nil {
		return nil, fmt.Errorf("connect to the proxy that HTTPS_PROXY names: %w", err)
	}
	if via.Scheme == "https" {
		cfg := d.TLS.Clone() // the clone of nil is nil
		if cfg == nil {
			cfg = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		cfg.ServerName = via.Hostname()
		conn = tls.Client(conn, cfg)
	}
	if err := sendConnect(ctx, conn, via, address); err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("the proxy %s, which HTTPS_PROXY names, does not answer: %w", via.Host, ctx.Err())
		}
		return nil, err
	}
	return conn, nil
}

// sendConnect sends CONNECT to a proxy. After an error the connection is unusable.
func sendConnect(ctx context.Context, conn net.Conn, via *url.URL, address string) error {
	header := http.Header{}
	if via.User != nil {
		password, _ := via.User.Password()
		header.Set("Proxy-Authorization",
			"Basic "+base64.StdEncoding.EncodeToString([]byte(via.User.Username()+":"+password)))
	}
	refused := false
	err := tunnel.Ask(ctx, conn, address, header, func(resp *http.Response) error { // the body of a refusal is ignored
		refused = true
		return refusal(resp, via, address)
	})
	if err != nil && !refused {
		return fmt.Errorf("the proxy %s does not answer as one: %w", via.Host, err)
	}
	return err
}

func refusal(resp *http.Response, via *url.URL, address string) error {
	switch {
	case resp.StatusCode != http.StatusProxyAuthRequired:
		return fmt.Errorf(
			"the proxy %s, which HTTPS_PROXY names, does not connect to %s: it answers %d; have it allow CONNECT to there, or "+
				"set NO_PROXY if the gateway is reached without it",
			via.Host, address, resp.StatusCode)
	case !offersBasic(resp.Header.Values("Proxy-Authenticate")):
		return fmt.Errorf(
			"the proxy %s, which HTTPS_PROXY names, answers 407 and does not accept a user with a password (Basic), the "+
				"only method that agents support; allow the agents' addresses there",
			via.Host)
	case via.User == nil:
		return fmt.Errorf(
			"the proxy %s, which HTTPS_PROXY names, answers 407: it requires a user with a password; set "+
				"HTTPS_PROXY=http://USER:PASSWORD@%s", via.Host, via.Host)
	}
	return fmt.Errorf(
		"the proxy %s answers 407: it does not accept the user and password in HTTPS_PROXY; correct them", via.Host)
}

// offersBasic reports whether a proxy may accept Basic authentication. A proxy without challenges may.
func offersBasic(challenges []string) bool {
	all := strings.ToLower(strings.Join(challenges, ", "))
	return all == "" || strings.Contains(all, "basic")
}
