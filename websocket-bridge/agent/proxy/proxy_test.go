package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/websocket-bridge/agent/proxy"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// Only proxies can resolve this name. It is in the certificate of httptest.
const gateway = "example.com:443"

type world struct {
	*httptest.Server
	roots *x509.CertPool
}

func newWorld(t *testing.T) *world {
	srv := httptest.NewUnstartedServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the gateway") }))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	return &world{srv, roots}
}

func (w *world) get(ctx context.Context, env httpproxy.Config) (string, error) {
	d, err := proxy.New(&env)
	if err != nil {
		return "", err
	}
	d.TLS = &tls.Config{RootCAs: w.roots, MinVersion: tls.VersionTLS12}
	c := &http.Client{
		Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true, TLSClientConfig: d.TLS.Clone()},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+gateway, nil)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// squid connects to the gateway for any name. It requires authorization unless that is "".
func (w *world) squid(authorization string) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case authorization != "" && r.Header.Get("Proxy-Authorization") != authorization:
			rw.Header().Set("Proxy-Authenticate", `Negotiate, Basic realm="office"`)
			rw.WriteHeader(http.StatusProxyAuthRequired)
			return
		case r.Method != http.MethodConnect || r.Host != gateway:
			rw.WriteHeader(http.StatusForbidden)
			return
		}
		back, err := net.Dial("tcp", w.Listener.Addr().String())
		if err != nil {
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		conn, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			_ = back.Close()
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\nVia: office\r\n\r\n")
		var both sync.WaitGroup
		both.Go(func() { _, _ = io.Copy(back, conn); _ = back.Close() })
		both.Go(func() { _, _ = io.Copy(conn, back); _ = conn.Close() })
		both.Wait()
	})
}

// socks starts a SOCKS5 proxy (RFC 1928, 1929) and returns its address. It requires the user and password unless they
// are "".
func (w *world) socks(t *testing.T, user, password string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(time.Minute))
				if back := w.greet(conn, user, password); back != nil {
					var both sync.WaitGroup
					both.Go(func() { _, _ = io.Copy(back, conn); _ = back.Close() })
					both.Go(func() { _, _ = io.Copy(conn, back); _ = conn.Close() })
					both.Wait()
				}
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); all.Wait() })
	return ln.Addr().String()
}

// greet serves the handshake of SOCKS5. It returns a connection to the gateway, or nil.
func (w *world) greet(conn net.Conn, user, password string) net.Conn {
	read := func(n byte) []byte {
		b := make([]byte, n)
		_, _ = io.ReadFull(conn, b) // missing bytes are zero
		return b
	}
	methods := read(read(2)[1])
	if user == "" {
		_, _ = conn.Write([]byte{5, 0})
	} else {
		if !bytes.Contains(methods, []byte{2}) {
			_, _ = conn.Write([]byte{5, 0xff})
			return nil
		}
		_, _ = conn.Write([]byte{5, 2})
		u := string(read(read(2)[1]))
		if p := string(read(read(1)[0])); u != user || p != password {
			_, _ = conn.Write([]byte{1, 1})
			return nil
		}
		_, _ = conn.Write([]byte{1, 0})
	}
	connect := read(4)
	host := ""
	if connect[3] == 3 { // a host name
		host = string(read(read(1)[0]))
	}
	port := binary.BigEndian.Uint16(read(2))
	if connect[1] != 1 || net.JoinHostPort(host, fmt.Sprint(port)) != gateway {
		_, _ = conn.Write([]byte{5, 2, 0, 1, 0, 0, 0, 0, 0, 0})
		return nil
	}
	back, err := net.Dial("tcp", w.Listener.Addr().String())
	if err != nil {
		return nil
	}
	_, _ = conn.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	return back
}

func TestProxy(t *testing.T) {
	w := newWorld(t)
	open, byTLS := httptest.NewServer(w.squid("")), httptest.NewTLSServer(w.squid(""))
	closed := httptest.NewServer(w.squid("Basic YWdlbnQ6aHVudGVyMg==")) // agent:hunter2
	for _, srv := range []*httptest.Server{open, byTLS, closed} {
		t.Cleanup(srv.Close)
	}
	socks, closedSocks := w.socks(t, "", ""), w.socks(t, "agent", "hunter2")
	as := func(who string) string { return "http://" + who + "@" + closed.Listener.Addr().String() }
	for _, tt := range []struct {
		name string
		env  httpproxy.Config
		want string // part of the error, or ""
	}{
		{name: "a proxy", env: httpproxy.Config{HTTPSProxy: open.URL}},
		{name: "a proxy by TLS", env: httpproxy.Config{HTTPSProxy: byTLS.URL}},
		{name: "user and password", env: httpproxy.Config{HTTPSProxy: as("agent:hunter2")}},
		{
			name: "none named", env: httpproxy.Config{HTTPSProxy: closed.URL},
			want: "it requires a user with a password; set HTTPS_PROXY=http://USER:PASSWORD@",
		},
		{
			name: "the wrong one", env: httpproxy.Config{HTTPSProxy: as("agent:hunter3")},
			want: "does not accept the user and password",
		},
		{
			name: "a user alone", env: httpproxy.Config{HTTPSProxy: as("hunter2")},
			want: "does not accept the user and password",
		},
		{
			name: "no proxy is there", env: httpproxy.Config{HTTPSProxy: "http://agent:hunter2@127.0.0.1:1"},
			want: "connect to the proxy that HTTPS_PROXY names",
		},
		{name: "SOCKS5", env: httpproxy.Config{HTTPSProxy: "socks5://" + socks}},
		{name: "SOCKS5, user and password", env: httpproxy.Config{HTTPSProxy: "socks5://agent:hunter2@" + closedSocks}},
		{
			name: "SOCKS5, none named", env: httpproxy.Config{HTTPSProxy: "socks5://" + closedSocks},
			want: "which HTTPS_PROXY names",
		},
		{
			name: "SOCKS5, the wrong one", env: httpproxy.Config{HTTPSProxy: "socks5://agent:hunter3@" + closedSocks},
			want: "which HTTPS_PROXY names",
		},
		{name: "not a URL", env: httpproxy.Config{HTTPSProxy: "http://agent:hunter2@%zz"}, want: "HTTPS_PROXY: want a URL"},
		{
			name: "another kind", env: httpproxy.Config{HTTPSProxy: "ftp://agent:hunter2@127.0.0.1:1"},
			want: "HTTPS_PROXY: want a URL",
		},
		{name: "not for the gateway", env: httpproxy.Config{HTTPSProxy: open.URL, NoProxy: "example.com:444,.other.com"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := w.get(t.Context(), tt.env)
			switch {
			case tt.want == "" && (err != nil || got != "the gateway"):
				t.Errorf("%q, %v", got, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want one with %q", err, tt.want)
			case err != nil && strings.Contains(err.Error(), "hunter"):
				t.Errorf("the password is shown: %v", err)
			}
		})
	}
}

func TestNoProxy(t *testing.T) {
	asked := false
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer srv.Close()
	d, err := proxy.New(&httpproxy.Config{HTTPSProxy: srv.URL, NoProxy: ".invalid"})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := d.DialContext(t.Context(), "tcp", "gateway.invalid:443") // cannot be resolved
	if err == nil {
		_ = conn.Close()
	}
	if err == nil || asked {
		t.Errorf("error %v, proxy asked: %v", err, asked)
	}
}

// TestAnswers: for every response of a proxy, the agent returns a helpful error in time.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct{ name, answer, want string }{
		{
			"refused", "HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\n\r\nno way",
			"does not connect to " + gateway + ": it answers 403; have it allow CONNECT",
		},
		{"no reason", "HTTP/1.1 503\r\n\r\n", "it answers 503"},
		{
			"only Negotiate", "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Negotiate\r\n\r\n",
			"does not accept a user with a password (Basic)",
		},
		{"407 and nothing else", "HTTP/1.1 407\r\n\r\n", "it requires a user with a password"},
		{"unexpected data", "HTTP/1.1 200 OK\r\n\r\nhello", "unexpected data"},
		{"another protocol", "SSH-2.0-OpenSSH_9.9\r\n", "does not answer as one"},
		{
			"no end", "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\r\n", 200),
			"does not answer as one",
		},
		{"nothing at all", "", "does not answer as one"},
		{"silence", "-", "does not answer: context canceled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
					return
				}
				if tt.answer == "-" {
					cancel() // a response that never comes
				} else {
					_, _ = io.WriteString(conn, tt.answer)
					_ = conn.(*net.TCPConn).CloseWrite()
				}
				_, _ = io.Copy(io.Discard, conn) // until the agent gives up
			}()
			d, err := proxy.New(&httpproxy.Config{HTTPSProxy: "http://" + ln.Addr().String()})
			if err != nil {
				t.Fatal(err)
			}
			conn, err := d.DialContext(ctx, "tcp", gateway)
			if err == nil {
				_ = conn.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
			_ = ln.Close()
			<-ended
		})
	}
}
