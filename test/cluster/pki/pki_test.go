package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"slices"
	"testing"
)

func TestIssue(t *testing.T) {
	ca, err := NewCA("test-ca")
	if err != nil {
		t.Fatal(err)
	}
	if ca, err = LoadCA(ca.Pair); err != nil { // like users of the package
		t.Fatal(err)
	}
	other, err := NewCA("test-ca")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		subject    Subject
		roots      *CA
		usage      x509.ExtKeyUsage
		host       string
		wantRefuse bool
	}{
		"client": {Subject{Name: "ann", Groups: []string{"dev"}}, ca, x509.ExtKeyUsageClientAuth, "", false},
		"server by name": {
			Subject{Name: "s", DNS: []string{"localhost"}}, ca, x509.ExtKeyUsageServerAuth, "localhost", false,
		},
		"server by address": {
			Subject{Name: "s", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}, ca, x509.ExtKeyUsageServerAuth, "127.0.0.1", false,
		},
		"client as a server": {Subject{Name: "ann"}, ca, x509.ExtKeyUsageServerAuth, "", true},
		"server as a client": {Subject{Name: "s", DNS: []string{"localhost"}}, ca, x509.ExtKeyUsageClientAuth, "", true},
		"server of other name": {
			Subject{Name: "s", DNS: []string{"localhost"}}, ca, x509.ExtKeyUsageServerAuth, "example.test", true,
		},
		"another CA, same name": {Subject{Name: "ann"}, other, x509.ExtKeyUsageClientAuth, "", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pair, err := ca.Issue(test.subject)
			if err != nil {
				t.Fatal(err)
			}
			loaded, err := tls.X509KeyPair(pair.Cert, pair.Key)
			if err != nil {
				t.Fatal(err)
			}
			if s := loaded.Leaf.Subject; s.CommonName != test.subject.Name ||
				!slices.Equal(s.Organization, test.subject.Groups) {
				t.Errorf("the subject is %v, want %+v", s, test.subject)
			}
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(test.roots.Cert)
			_, err = loaded.Leaf.Verify(x509.VerifyOptions{
				Roots: roots, DNSName: test.host, KeyUsages: []x509.ExtKeyUsage{test.usage},
			})
			if refused := err != nil; refused != test.wantRefuse {
				t.Errorf("verified: %v, want refused %v", err, test.wantRefuse)
			}
		})
	}
}
