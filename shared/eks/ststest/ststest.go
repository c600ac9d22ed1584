// Package ststest imitates AWS STS for tests. It verifies signatures as AWS does.
package ststest

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/clusterpass/clusterpass/shared/pki"
)

// The one caller of an STS, its region, and the endpoint of that region.
const (
	Role   = "arn:aws:sts::111122223333:assumed-role/dev/ann"
	Region = "eu-west-1"
	Host   = "sts." + Region + ".amazonaws.com"
)

// Key is the access key of that caller.
var Key = aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret", SessionToken: "session+/="}

// STS verifies the signature over the received headers, as AWS does. It is safe for concurrent use.
type STS struct {
	t      *testing.T
	ARN    atomic.Value                     // the caller's, a string; initially Role
	Asked  atomic.Int32                     // number of requests
	answer atomic.Pointer[http.HandlerFunc] // replaces the response, if set
	// Transport connects to this server for the host names of AWS.
	Transport *http.Transport
	ca        []byte // PEM
}

// New returns an STS that ends with the test.
func New(t *testing.T) *STS {
	t.Helper()
	s := &STS{t: t}
	s.ARN.Store(Role)
	dir := t.TempDir()
	ca, err := pki.LoadCA(dir, "ca")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Server(dir, "sts", []string{Host, "sts.amazonaws.com", "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(s)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	s.ca = ca.PEM()
	s.Transport = &http.Transport{
		DisableKeepAlives: true, // as in EKS: on kept connections net/http retries by itself
		TLSClientConfig:   &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
		},
	}
	t.Cleanup(s.Transport.CloseIdleConnections)
	return s
}

// Env returns the environment for programs that connect to this server: a proxy of this test, and its CA.
func (s *STS) Env(t *testing.T) map[string]string {
	t.Helper()
	trusted := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(trusted, s.ca, 0o600); err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(http.HandlerFunc(s.connect))
	t.Cleanup(proxy.Close)
	return map[string]string{"HTTPS_PROXY": proxy.URL, "SSL_CERT_FILE": trusted}
}

func (s *STS) connect(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect || r.Host != Host+":443" {
		http.Error(w, "want CONNECT "+Host+":443", http.StatusForbidden)
		return
	}
	up, err := s.Transport.DialContext(r.Context(), "tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = up.Close() }()
	down, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.t.Error(err)
		return
	}
	defer func() { _ = down.Close() }()
	_, _ = io.WriteString(down, "HTTP/1.1 200 Connection established\r\n\r\n") // the client sends nothing more before that
	go func() {
		_, _ = io.Copy(up, down)
		_ = up.Close()
	}()
	_, _ = io.Copy(down, up)
}

// Instead replaces all responses by those of h. nil restores them.
func (s *STS) Instead(h http.HandlerFunc) {
	if h == nil {
		s.answer.Store(nil)
		return
	}
	s.answer.Store(&h)
}

// ServeHTTP implements http.Handler.
func (s *STS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.Asked.Add(1)
	if h := s.answer.Load(); h != nil {
		(*h)(w, r)
		return
	}
	q := r.URL.Query()
	date, err := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
	if err != nil {
		s.t.Error(err)
	}
	if !strings.HasPrefix(r.UserAgent(), "clusterpass/") { // the caller may be another program, with another version
		s.t.Errorf("AWS is called with the User-Agent %q", r.UserAgent())
	}
	got := q.Get("X-Amz-Signature")
	for _, k := range []string{"X-Amz-Signature", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date",
		"X-Amz-SignedHeaders", "X-Amz-Security-Token"} {
		q.Del(k)
	}
	address := "https://" + r.Host + "/?" + q.Encode()
	again, _ := http.NewRequestWithContext(r.Context(), http.MethodGet, address, nil) //nolint:gosec // never sent
	again.Header.Set("x-k8s-aws-id", r.Header.Get("x-k8s-aws-id"))
	signed, _, err := v4.NewSigner().PresignHTTP(r.Context(), Key, again,
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "sts", "eu-west-1", date)
	if err != nil {
		s.t.Error(err)
	}
	u, _ := url.Parse(signed)
	if want := u.Query().Get("X-Amz-Signature"); got != want || r.Method != http.MethodGet ||
		r.Header.Get("Accept") != "application/json" {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"Error":{"Code":"SignatureDoesNotMatch"}}`))
		return
	}
	s.Identity(w)
}

// Identity responds as to a valid signature.
func (s *STS) Identity(w http.ResponseWriter) {
	_, _ = fmt.Fprintf(w,
		`{"GetCallerIdentityResponse":{"GetCallerIdentityResult":{"Account":"111122223333","Arn":%q,"UserId":"AROA:ann"},`+
			`"ResponseMetadata":{"RequestId":"1"}}}`,
		s.ARN.Load())
}
