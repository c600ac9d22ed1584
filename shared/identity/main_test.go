package identity

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/status"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// patience bounds the response of a provider in the same process, on a machine that is very slow.
const patience = 5 * time.Minute

func serve(t *testing.T, h http.Handler) (*httptest.Server, *x509.CertPool) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return s, pool
}

func wantRefused(t *testing.T, u *User, err error, message string) {
	t.Helper()
	wantError(t, u, err, status.Unauthenticated, http.StatusUnauthorized, message)
}

// wantDown wants a 503, because the token may be valid.
func wantDown(t *testing.T, u *User, err error, message string) {
	t.Helper()
	wantError(t, u, err, status.IssuerUnavailable, http.StatusServiceUnavailable, message)
	if status.From(err).RetryAfter == 0 {
		t.Error("it does not say when to try again")
	}
}

func wantError(t *testing.T, u *User, err error, reason status.Reason, code int, message string) {
	t.Helper()
	if err == nil {
		t.Fatalf("accepted as %+v, want: %s", u, message)
	}
	if u != nil {
		t.Errorf("a user with an error: %+v", u)
	}
	e := status.From(err)
	if e.Reason != reason || e.Code() != code || e.Message != message {
		t.Errorf("got  %d %s: %s (%v)\nwant %s", e.Code(), e.Reason, e.Message, e.Err, message)
	}
}
