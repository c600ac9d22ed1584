// Package proxy connects an agent to the gateway, through the proxy that its surroundings name, or directly.
//
// Invariants:
//   - A proxy sees which host is asked for, and then TLS that runs through it.
//   - What it answers is bounded in size, and in time. The connection is the gateway's only after a 2xx answer.
//   - Errors say what to do, and show neither user nor password of the proxy.
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

// timeout bounds connecting, whatever the context: http.Transport gives none of its request's deadline on.
const timeout = 15 * time.Second

// Dialer connects. It is safe for concurrent use. Use New.
type Dialer struct {
	TLS *tls.Config // of proxies that are spoken to by TLS; nil means the system's authorities

	proxyFor func(*url.URL) (*url.URL, error)
}

// New returns a Dialer for what httpproxy.FromEnvironment has found, say. It refuses a proxy that cannot be understood: httpproxy would do
// without it.
func New(env *httpproxy.Config) (*Dialer, error) {
	d := &Dialer{proxyFor: env.ProxyFunc()}
	if env.HTTPSProxy == "" {
		return d, nil
	}
	all := *env
	all.NoProxy = ""
	via, err := all.ProxyFunc()(&url.URL{Scheme: "https", Host: "gateway.invalid"})
	if err != nil || via == nil || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, via.Scheme) {
		return nil, errors.New("HTTPS_PROXY: want a URL of kind http, https or socks5, such as http://proxy.example.com:3128") // the cause may show the password
	}
	return d, nil
}

// DialContext has the form of net.Dialer.DialContext. The context bounds it, and so does a timeout of its own.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	via, err := d.proxyFor(&url.URL{Scheme: "https", Host: address})
	if err != nil {
		return nil, err // for CGI alone
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

// connect has an HTTP proxy connect to an address.
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
		cfg := d.TLS.Clone() // of nil it is nil
		if cfg == nil {
			cfg = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		cfg.ServerName = via.Hostname()
		conn = tls.Client(conn, cfg)
	}
	if err := ask(ctx, conn, via, address); err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("the proxy %s, which HTTPS_PROXY names, does not answer: %w", via.Host, ctx.Err())
		}
		return nil, err
	}
	return conn, nil
}

// ask has a proxy connect. After an error the connection is of no use.
func ask(ctx context.Context, conn net.Conn, via *url.URL, address string) error {
	header := http.Header{}
	if via.User != nil {
		password, _ := via.User.Password()
		header.Set("Proxy-Authorization",
			"Basic "+base64.StdEncoding.EncodeToString([]byte(via.User.Username()+":"+password)))
	}
	refused := false
	err := tunnel.Ask(ctx, conn, address, header, func(resp *http.Response) error { // what a refusal says to people is not read
		refused = true
		return refusal(resp, via, address)
	})
	if err != nil && !refused {
		return fmt.Errorf("the proxy %s does not answer as one: %w", via.Host, err)
	}
	return err
}

// refusal says what an answer that is no connection asks for.
func refusal(resp *http.Response, via *url.URL, address string) error {
	switch {
	case resp.StatusCode != http.StatusProxyAuthRequired:
		return fmt.Errorf(
			"the proxy %s, which HTTPS_PROXY names, does not connect to %s: it answers %d; have it allow CONNECT to there, or "+
				"set NO_PROXY if the gateway is reached without it",
			via.Host, address, resp.StatusCode)
	case !offersBasic(resp.Header.Values("Proxy-Authenticate")):
		return fmt.Errorf(
			"the proxy %s, which HTTPS_PROXY names, answers 407 and does not take a user with a password (Basic), which is "+
				"all that an agent can show; have it let the agents' addresses through",
			via.Host)
	case via.User == nil:
		return fmt.Errorf(
			"the proxy %s, which HTTPS_PROXY names, answers 407: it wants a user with a password; name them: "+
				"HTTPS_PROXY=http://USER:PASSWORD@%s", via.Host, via.Host)
	}
	return fmt.Errorf(
		"the proxy %s answers 407: it does not take the user and password that HTTPS_PROXY names; correct them", via.Host)
}

// offersBasic reports whether Basic is among the schemes that a proxy takes; one that names none may take it.
func offersBasic(challenges []string) bool {
	all := strings.ToLower(strings.Join(challenges, ", "))
	return all == "" || strings.Contains(all, "basic")
}
