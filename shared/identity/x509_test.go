package identity

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/pki"
)

func client(t *testing.T, ca *pki.CA, user string, groups ...string) *x509.Certificate {
	t.Helper()
	cert, key, err := ca.Client(user, groups)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

func TestX509(t *testing.T) {
	ours, err := pki.LoadCA(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := pki.LoadCA(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	server, err := ours.Server(t.TempDir(), "server", []string{"localhost"})
	if err != nil {
		t.Fatal(err)
	}
	alice := client(t, ours, "alice", "dev", "ops")
	tests := []struct {
		name    string
		chain   []*x509.Certificate
		at      time.Time
		want    string // user; "" if the certificate is ignored
		wantErr string
	}{
		{"ours", []*x509.Certificate{alice}, time.Now(), "alice", ""},
		{"with its CA", []*x509.Certificate{alice, ours.Cert}, time.Now(), "alice", ""},
		{"none", nil, time.Now(), "", ""},
		{"a stranger's", []*x509.Certificate{client(t, theirs, "alice")}, time.Now(), "",
			"not one that the gateway's CA signed"},
		{"a stranger's with our CA", []*x509.Certificate{client(t, theirs, "alice"), ours.Cert}, time.Now(), "",
			"not one that the gateway's CA signed"},
		{"a server's", []*x509.Certificate{server.Leaf}, time.Now(), "", "not one that the gateway's CA signed"},
		{"the CA itself", []*x509.Certificate{ours.Cert}, time.Now(), "", "not one that the gateway's CA signed"},
		{"expired", []*x509.Certificate{alice}, time.Now().Add(365 * 24 * time.Hour), "", "has expired"},
		{"not valid yet", []*x509.Certificate{alice}, time.Now().Add(-time.Hour), "", "not valid yet"},
		{"without a name", []*x509.Certificate{client(t, ours, "")}, time.Now(), "", "no common name"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			// The result is the same over TLS and through a balancer's header.
			viaHeader := httptest.NewRequest("GET", "/", nil)
			if tt.chain != nil {
				viaHeader.Header.Set(string(ALBHeader), FormatALBHeader(tt.chain))
			}
			viaTLS := httptest.NewRequest("GET", "/", nil)
			viaTLS.TLS = &tls.ConnectionState{PeerCertificates: tt.chain}
			for peer, r := range map[string]*http.Request{"tls": viaTLS, "alb": viaHeader} {
				a := X509{CA: NewClientCA(ours.Pool(), func() time.Time { return tt.at }), Peer: TLSPeer}
				if peer == "alb" {
					a.Peer = ALBPeer(ALBHeader, func(*http.Request) bool { return true })
				}
				u, err := a.Authenticate(r)
				if tt.wantErr != "" {
					if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
						t.Errorf("%s: %+v, %v", peer, u, err)
					}
					continue
				}
				if err != nil || (u == nil) != (tt.want == "") {
					t.Errorf("%s: %+v, %v", peer, u, err)
				} else if u != nil && (u.Name != tt.want || !slices.Equal(u.Groups, []string{"dev", "ops"}) || u.Expires.IsZero()) {
					t.Errorf("%s: %+v", peer, u)
				}
			}
		})
	}
	t.Run("a header that is not trusted", func(t *testing.T) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(string(ALBHeader), FormatALBHeader([]*x509.Certificate{alice}))
		if u, err := (X509{CA: NewClientCA(ours.Pool(), nil),
			Peer: ALBPeer(ALBHeader, func(*http.Request) bool { return false })}).Authenticate(r); u != nil || err != nil {
			t.Errorf("%+v, %v", u, err)
		}
	})
	t.Run("two headers", func(t *testing.T) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header[string(ALBHeader)] = []string{FormatALBHeader([]*x509.Certificate{alice}),
			FormatALBHeader([]*x509.Certificate{alice})}
		if u, err := (X509{CA: NewClientCA(ours.Pool(), nil),
			Peer: ALBPeer(ALBHeader, func(*http.Request) bool { return true })}).Authenticate(r); err == nil {
			t.Errorf("%+v", u)
		}
	})
}

func TestPeerHeader(t *testing.T) {
	for v, want := range map[string]PeerHeader{
		"": "", "x-amzn-mtls-clientcert": ALBHeader, "X-Amzn-Mtls-Clientcert-Leaf": "X-Amzn-Mtls-Clientcert-Leaf",
		"x-clusterpass-5e1f-77": "X-Clusterpass-5e1f-77", "a0b1c2d3e4f5g6h7i8j9": "X-Clusterpass-A0b1c2d3e4f5g6h7i8j9",
	} {
		var h PeerHeader
		if err := h.Decode(v); err != nil || h != want {
			t.Errorf("%q is %q, %v", v, h, err)
		}
	}
	var h PeerHeader
	for _, v := range []string{"X-Client-Cert", "cookie", "x-forwarded-client-certificate"} {
		if err := h.Decode(v); err == nil {
			t.Errorf("%q, which goes on to members, was taken", v)
		}
	}
	// The header that the balancer does not set is ignored.
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set(string(ALBHeader), "-----BEGIN")
	for _, header := range []PeerHeader{"", "X-Amzn-Mtls-Clientcert-Leaf", "X-Clusterpass-5e1f-77"} {
		if chain, err := ALBPeer(header, func(*http.Request) bool { return true })(r); chain != nil || err != nil {
			t.Errorf("%q: %v, %v", header, chain, err)
		}
	}
}

func FuzzALBHeader(f *testing.F) {
	f.Add("-----BEGIN%20CERTIFICATE-----%0AMIIB+/=%0A-----END%20CERTIFICATE-----%0A")
	f.Add("%zz")
	f.Fuzz(func(t *testing.T, v string) {
		chain, err := parseALBHeader(v)
		if (err == nil) != (len(chain) > 0) {
			t.Fatalf("%d certificates, %v", len(chain), err)
		}
		if err == nil {
			again, err := parseALBHeader(FormatALBHeader(chain))
			if err != nil || len(again) != len(chain) {
				t.Fatalf("formatted and parsed: %d certificates, %v", len(again), err)
			}
		}
	})
}
