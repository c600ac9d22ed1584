package identity

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clusterpass/clusterpass/shared/pki"
)

var remoteHeader = http.Header{
	"X-Remote-User": {"ann"}, "X-Remote-Uid": {"u-1"}, "X-Remote-Group": {"dev", "system:authenticated"},
	"X-Remote-Extra-Example.com%2fscope": {"a", "b"},
}

func withRemoteHeader(name string, values ...string) http.Header {
	h := remoteHeader.Clone()
	h[name] = values
	return h
}

func TestFrontProxy(t *testing.T) {
	front, err := pki.LoadCA(t.TempDir(), "front")
	if err != nil {
		t.Fatal(err)
	}
	ours, err := pki.LoadCA(t.TempDir(), "ours")
	if err != nil {
		t.Fatal(err)
	}
	server, err := front.Server(t.TempDir(), "server", []string{"aggregator"})
	if err != nil {
		t.Fatal(err)
	}
	aggregator := client(t, front, "aggregator")
	soon := time.Now().Add(time.Minute)
	ann, with := remoteHeader, withRemoteHeader
	user := &User{
		Name: "ann", UID: "u-1", Groups: []string{"dev", "system:authenticated"},
		Extra:  map[string][]string{"example.com/scope": {"a", "b"}},
		Method: "front-proxy", Expires: aggregator.NotAfter,
	}
	tests := []struct {
		name    string
		cert    *x509.Certificate
		at      time.Time
		header  http.Header
		want    *User  // nil without wantErr: ignored by this authenticator
		wantErr string // message of a 401
	}{
		{"a front proxy", aggregator, soon, ann, user, ""},
		{"no certificate", nil, soon, ann, nil, ""},
		{"the gateway's CA", client(t, ours, "aggregator"), soon, ann, nil, ""},
		{"a server's certificate", server.Leaf, soon, ann, nil, ""},
		{"the CA itself", front.Cert, soon, ann, nil, ""},
		{"expired", aggregator, soon.Add(365 * 24 * time.Hour), ann, nil, ""},
		{"another name", client(t, front, "kubelet"), soon, ann, nil, `"kubelet" is not the certificate of a front proxy`},
		{"no name", client(t, front, ""), soon, ann, nil, `"" is not the certificate of a front proxy`},
		{"nobody", aggregator, soon, nil, nil, "the front proxy does not send the user: want one header X-Remote-User"},
		{"an empty user", aggregator, soon, with("X-Remote-User", ""), nil,
			"the front proxy does not send the user: want one header X-Remote-User"},
		{"two users", aggregator, soon, with("X-Remote-User", "ann", "root"), nil,
			"the front proxy does not send the user: want one header X-Remote-User"},
		{"the anonymous user", aggregator, soon, with("X-Remote-User", "system:anonymous"), nil,
			"the front proxy sends an anonymous user; the gateway accepts only authenticated users"},
		{"the unauthenticated group", aggregator, soon, with("X-Remote-Group", "dev", "system:unauthenticated"), nil,
			"the front proxy sends an anonymous user; the gateway accepts only authenticated users"},
		{"two uids", aggregator, soon, with("X-Remote-Uid", "1", "2"), nil, "the front proxy sends several uids"},
		{"the gateway's own extra", aggregator, soon, with("X-Remote-Extra-Clusterpass.io%2foriginal-User", "root"), nil,
			"the front proxy's header X-Remote-Extra-Clusterpass.io%2foriginal-User cannot be understood"},
		{"the gateway's own extra, escaped", aggregator, soon,
			with("X-Remote-Extra-%43lusterpass.io%2foriginal-User", "root"), nil,
			"the front proxy's header X-Remote-Extra-%43lusterpass.io%2foriginal-User cannot be understood"},
		{"an extra without a key", aggregator, soon, with("X-Remote-Extra-", "x"), nil,
			"the front proxy's header X-Remote-Extra- cannot be understood"},
		{"an extra that is not escaped", aggregator, soon, with("X-Remote-Extra-%zz", "x"), nil,
			"the front proxy's header X-Remote-Extra-%zz cannot be understood"},
		{"other spellings", aggregator, soon, http.Header{"X_remote_user": {"root"}, "X-Remote-User": {"ann"},
			"X_remote_group": {"system:masters"}}, &User{Name: "ann", Method: "front-proxy", Expires: aggregator.NotAfter}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil)
			if tt.header != nil {
				r.Header = tt.header
			}
			if tt.cert != nil {
				r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{tt.cert}}
			}
			a := FrontProxy{
				CA:    NewClientCA(front.Pool(), func() time.Time { return tt.at }),
				Names: []string{"aggregator"}, Peer: TLSPeer,
			}
			u, err := a.Authenticate(r)
			if tt.wantErr != "" {
				wantRefused(t, u, err, tt.wantErr)
				return
			}
			if diff := cmp.Diff(tt.want, u); diff != "" || err != nil {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}
