package gateway_test

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

const token = `{token: members-token}`

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

func TestWhatArrives(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	identityHeaders := http.Header{
		"Authorization": {"Bearer members-token"}, "Impersonate-User": {"alice"}, "Impersonate-Group": {"dev"},
	}
	with := func(extra http.Header) http.Header {
		out := identityHeaders.Clone()
		for k, v := range extra {
			out[k] = v
		}
		return out
	}
	tests := []struct {
		name, request string
		want          clustertest.Request
	}{
		{
			"path and query byte for byte",
			"GET /clusters/m/api/v1/namespaces/a%2Fb%3Ac/x|y/?a=1&a=2&b=%20+&;c&d HTTP/1.1\nHost: x\n\n",
			clustertest.Request{Method: "GET", URI: "/api/v1/namespaces/a%2Fb%3Ac/x|y/?a=1&a=2&b=%20+&;c&d", Header: with(nil)},
		},
		{
			"trailing question mark", "GET /clusters/m/version? HTTP/1.1\nHost: x\n\n",
			clustertest.Request{Method: "GET", URI: "/version?", Header: with(nil)},
		},
		{
			"no path", "GET /clusters/m HTTP/1.1\nHost: x\n\n",
			clustertest.Request{Method: "GET", URI: "/", Header: with(nil)},
		},
		{
			"karmada's form", "GET /apis/cluster.karmada.io/v1alpha1/clusters/m/proxy/api/v1/nodes HTTP/1.1\nHost: x\n\n",
			clustertest.Request{Method: "GET", URI: "/api/v1/nodes", Header: with(nil)},
		},
		{
			"karpor's form", "GET /apis/cluster.karpor.io/v1beta1/clusters/m/proxy/api/v1/nodes HTTP/1.1\nHost: x\n\n",
			clustertest.Request{Method: "GET", URI: "/api/v1/nodes", Header: with(nil)},
		},
		{
			"karpor's page", "GET /apis/kusionstack.io/Cluster/m/proxy/api/v1/pods HTTP/1.1\nHost: x\n\n",
			clustertest.Request{Method: "GET", URI: "/api/v1/pods", Header: with(nil)},
		},
		{
			"the addon's form", "GET /m/api/v1/pods HTTP/1.1\nHost: x\n\n",
			clustertest.Request{Method: "GET", URI: "/api/v1/pods", Header: with(nil)},
		},
		{
			"the bridge's form", "GET /bridge/m/api/v1/pods HTTP/1.1\nHost: x\n\n",
			clustertest.Request{Method: "GET", URI: "/api/v1/pods", Header: with(nil)},
		},
		{
			"body and its headers",
			"POST /clusters/m/api/v1/pods HTTP/1.1\nHost: x\nContent-Type: application/json\nContent-Length: 4\nAccept: a\nAccept: b, c\nUser-Agent: kubectl\n\n{\"a\"",
			clustertest.Request{Method: "POST", URI: "/api/v1/pods", Body: `{"a"`, Header: with(http.Header{
				"Content-Type": {"application/json"}, "Content-Length": {"4"}, "Accept": {"a", "b, c"}, "User-Agent": {"kubectl"},
			})},
		},
		{
			"chunked body without its trailer",
			"POST /clusters/m/api/v1/pods HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\nTrailer: Impersonate-User\n\n3\nabc\n0\nImpersonate-User: root\n\n",
			clustertest.Request{Method: "POST", URI: "/api/v1/pods", Body: "abc", Header: with(nil)},
		},
		{
			"what a client says about identity, proxies and connections",
			"GET /clusters/m/version HTTP/1.1\nHost: x\nauthorization: Bearer mine\nX-Remote-User: root\nx-remote-group: system:masters\nX-Remote-Extra-A: b\n" +
				"X_Remote_User: root\nX-Forwarded-For: 1.2.3.4\nX-Forwarded-Proto: http\nForwarded: for=1.2.3.4\nX-Real-IP: 1.2.3.4\nX-Amzn-Mtls-Clientcert: x\nX-Original-Url: /\n" +
				"Cookie: a=b\nIdempotency-Key: x\nX-Idempotency-Key: x\nTransfer_Encoding: chunked\nConnection: close, X-Drop\nX-Drop: 1\nKeep-Alive: 5\nProxy-Authorization: Basic x\nTE: trailers\nX-Keep: 1\n\n",
			clustertest.Request{Method: "GET", URI: "/version", Header: with(http.Header{"X-Keep": {"1"}})},
		},
		{
			"a Connection header cannot remove the identity",
			"GET /clusters/m/version HTTP/1.1\nHost: x\nConnection: Impersonate-User, Authorization, Impersonate-Group\n\n",
			clustertest.Request{Method: "GET", URI: "/version", Header: with(nil)},
		},
		{
			"an encoding that the client did not ask for is not added",
			"GET /clusters/m/version HTTP/1.1\nHost: x\nAccept-Encoding: identity\n\n",
			clustertest.Request{Method: "GET", URI: "/version", Header: with(http.Header{"Accept-Encoding": {"identity"}})},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := len(m.Requests())
			if resp := h.SendRaw(tt.request); resp.StatusCode != http.StatusOK {
				body, _ := io.ReadAll(resp.Body)
				t.Fatalf("answer %s: %s", resp.Status, body)
			}
			arrived := m.Requests()
			if len(arrived) != before+1 {
				t.Fatalf("%d requests arrived", len(arrived)-before)
			}
			got := arrived[before]
			tt.want.Proto = "HTTP/2.0"
			got.Header.Del("Audit-Id") // TestAuditIDIsTheGateways checks it
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("arrived %+v\nwant    %+v", got, tt.want)
			}
		})
	}
}

func TestAnswersPassUnchanged(t *testing.T) {
	m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			zw := gzip.NewWriter(w)
			_, _ = io.WriteString(zw, "zipped")
			_ = zw.Close()
		case "/404":
			w.Header().Add("Warning", `299 - "a"`)
			w.Header().Add("Warning", `299 - "b"`)
			w.Header().Set("Set-Cookie", "a=b")
			http.Error(w, "no such thing", http.StatusNotFound)
		case "/204":
			w.WriteHeader(http.StatusNoContent)
		case "/binary":
			_, _ = w.Write([]byte{0, 255, 1, 254})
		}
	})
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))

	resp := h.Do("GET", "/clusters/m/gzip", http.Header{"Accept-Encoding": {"gzip"}}, "")
	zr, err := gzip.NewReader(resp.Body)
	if err != nil || resp.Header.Get("Content-Encoding") != "gzip" {
		t.Fatalf("gzip: %v, %v", err, resp.Header)
	}
	if b, _ := io.ReadAll(zr); string(b) != "zipped" {
		t.Errorf("gzip: %q", b)
	}
	resp = h.Do("GET", "/clusters/m/404", nil, "")
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 404 || string(b) != "no such thing\n" || len(resp.Header["Warning"]) != 2 || resp.Header.Get("Set-Cookie") != "" {
		t.Errorf("404: %d %v %q", resp.StatusCode, resp.Header, b)
	}
	resp = h.Do("GET", "/clusters/m/204", nil, "")
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 204 || len(b) != 0 {
		t.Errorf("204: %d %q", resp.StatusCode, b)
	}
	resp = h.Do("GET", "/clusters/m/binary", nil, "")
	if b, _ := io.ReadAll(resp.Body); string(b) != "\x00\xff\x01\xfe" {
		t.Errorf("binary: %q", b)
	}
	resp = h.Do("HEAD", "/clusters/m/binary", nil, "")
	if resp.StatusCode != 200 || resp.ContentLength != 4 {
		t.Errorf("HEAD: %d, length %d", resp.StatusCode, resp.ContentLength)
	}
}

func TestRefusals(t *testing.T) {
	m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/401":
			w.WriteHeader(http.StatusUnauthorized)
		case "/inside":
			http.Redirect(w, r, "/api/v1/x%2Fy?z=1", http.StatusFound)
		case "/outside":
			http.Redirect(w, r, "https://evil.example/api", http.StatusTemporaryRedirect)
		case "/twice":
			w.Header()["Location"] = []string{"", "https://evil.example/steal"}
			w.WriteHeader(http.StatusFound)
		case "/climb":
			w.Header()["Location"] = []string{"/%2e%2e/prod/api"}
			w.WriteHeader(http.StatusTemporaryRedirect)
		case "/slow":
			<-r.Context().Done()
		case "/broken":
			panic(http.ErrAbortHandler)
		default:
			ok(w, r)
		}
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.Certificate().Raw})
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	h.AddCluster("gone", clustertest.Kubeconfig("https://127.0.0.1:1", ca, token))
	h.AddCluster("nowhere", clustertest.Kubeconfig("https://nowhere.invalid", ca, token))
	h.AddCluster("metadata", clustertest.Kubeconfig("https://169.254.169.254", ca, token))
	h.AddCluster("exec", m.Kubeconfig(`{exec: {command: steal, apiVersion: client.authentication.k8s.io/v1}}`))
	h.AddCluster("no-secret", nil)
	h.AddCluster("others", m.Kubeconfig(token), func(s *v1alpha1.ClusterSpec) {
		s.Identity, s.DirectUsers = v1alpha1.Direct, []string{"bob"}
	})
	other, err := pki.LoadCA(t.TempDir(), "ca")
	if err != nil {
		t.Fatal(err)
	}
	h.AddCluster("untrusted", clustertest.Kubeconfig(m.URL, other.PEM(), token))

	tests := []struct {
		name, path      string
		header          http.Header
		code            int
		reason, message string
	}{
		{"dot segments", "/clusters/m/a/%2e%2e/b", nil, 400, "bad_request", "'.' and '..' segments"},
		{"not a name", "/clusters/M/api", nil, 400, "bad_request", `"M" is not a cluster's name`},
		{"impersonation", "/clusters/m/api", http.Header{"Impersonate-User": {"root"}}, 403, "forbidden", `users "root" is forbidden: User "alice" cannot impersonate`},
		{"impersonation, underscore", "/clusters/m/api", http.Header{"impersonate_group": {"root"}}, 400, "bad_request", "cannot be understood"},
		{"unknown cluster", "/clusters/nosuch/api", nil, 404, "unknown_cluster", `no cluster "nosuch"`},
		{"unknown path", "/nothing", nil, 404, "unknown_path", "/nothing"},
		{"not for this user", "/clusters/others/api", nil, 403, "forbidden", "spec.directUsers"},
		{"upgrade to h2c", "/clusters/m/api", http.Header{"Connection": {"Upgrade"}, "Upgrade": {"h2c"}}, 400, "bad_request", "websocket or SPDY/3.1"},
		{"refused", "/clusters/gone/api", nil, 502, "unreachable", "connection refused"},
		{"no address", "/clusters/nowhere/api", nil, 502, "unreachable", "nowhere.invalid"},
		{"metadata", "/clusters/metadata/api", nil, 502, "misconfigured", "169.254.169.254"},
		{"untrusted", "/clusters/untrusted/api", nil, 502, "unreachable", "not trusted"},
		{"exec plugin", "/clusters/exec/api", nil, 502, "misconfigured", "users[u].user.exec"},
		{"no secret", "/clusters/no-secret/api", nil, 502, "misconfigured", `"clusters/no-secret"`},
		{"credential refused", "/clusters/m/401", nil, 502, "credential_refused", "register it again"},
		{"redirect to elsewhere", "/clusters/m/outside", nil, 502, "bad_redirect", "another host"},
		{"redirect to two places", "/clusters/m/twice", nil, 502, "bad_redirect", "several places"},
		{"redirect to another member", "/clusters/m/climb", nil, 502, "bad_redirect", "out of its own path"},
		{"broken", "/clusters/m/broken", nil, 502, "unreachable", "broke the connection"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			gatewaytest.WantStatus(t, h.Do("GET", tt.path, tt.header, ""), tt.code, tt.reason, tt.message)
		})
	}
	t.Run("redirect inside", func(t *testing.T) {
		resp := h.Do("GET", "/apis/cluster.karmada.io/v1alpha1/clusters/m/proxy/inside", nil, "")
		if got := resp.Header.Get("Location"); resp.StatusCode != 302 || got != "/apis/cluster.karmada.io/v1alpha1/clusters/m/proxy/api/v1/x%2Fy?z=1" {
			t.Errorf("%d to %q", resp.StatusCode, got)
		}
	})
	t.Run("an upgrade with a body", func(t *testing.T) {
		gatewaytest.WantStatus(t, h.SendRaw("POST /clusters/m/api HTTP/1.1\nHost: x\nConnection: Upgrade\nUpgrade: websocket\nTransfer-Encoding: chunked\n\n"), 400, "bad_request", "without a body")
	})
	t.Run("a refusal does not wait for the body", func(t *testing.T) {
		gatewaytest.WantStatus(t, h.SendRaw("POST /clusters/nosuch/api HTTP/1.1\nHost: x\nContent-Length: 10\n\n"), 404, "unknown_cluster", "nosuch")
	})
	for _, method := range []string{"TRACE", "PROPFIND", "get"} {
		t.Run(method, func(t *testing.T) {
			gatewaytest.WantStatus(t, h.SendRaw(method+" /clusters/m/api HTTP/1.1\nHost: x\n\n"), 400, "bad_request", "method")
		})
	}
	t.Run("no certificate", func(t *testing.T) {
		h.ClientTLS.Certificates = nil
		gatewaytest.WantStatus(t, h.SendRaw("GET /clusters/m/api HTTP/1.1\nHost: x\n\n"), 401, "unauthenticated", "client certificate of the gateway's CA")
	})
	t.Run("a stranger's certificate", func(t *testing.T) {
		cert, key, err := other.Client("alice", nil)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		h.ClientTLS.Certificates = []tls.Certificate{pair}
		gatewaytest.WantStatus(t, h.SendRaw("GET /clusters/m/api HTTP/1.1\nHost: x\n\n"), 401, "unauthenticated", "not one that the gateway's CA signed")
	})
	t.Run("a name that no header can carry", func(t *testing.T) {
		h.ClientTLS.Certificates = []tls.Certificate{h.ClientCertificate(" system:admin", "dev")}
		gatewaytest.WantStatus(t, h.SendRaw("GET /clusters/m/api HTTP/1.1\nHost: x\n\n"), 403, "forbidden", "is not valid in a header")
	})
	for _, s := range m.Requests() {
		if strings.HasPrefix(s.URI, "/api") {
			t.Errorf("a refused call arrived: %+v", s)
		}
	}
}

func TestDirect(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(`{username: u, password: p}`), func(s *v1alpha1.ClusterSpec) {
		s.Identity, s.DirectUsers = v1alpha1.Direct, []string{"alice"}
	})
	h.Do("GET", "/clusters/m/version", http.Header{"User-Agent": {"x"}, "Accept-Encoding": {"x"}}, "")
	want := http.Header{"Authorization": {"Basic dTpw"}, "User-Agent": {"x"}, "Accept-Encoding": {"x"}}
	got := m.Requests()[0].Header
	got.Del("Audit-Id")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("arrived %v, want %v", got, want)
	}
}

// TestEndOfTheServer holds: a call that the gateway's own end cuts is not answered at all, rather than by an empty success.
func TestEndOfTheServer(t *testing.T) {
	arrived := make(chan struct{}, 1)
	m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, "some of it")
			_ = http.NewResponseController(w).Flush()
		}
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	var base atomic.Pointer[context.Context]
	h := newGateway(t, gatewaytest.Options{Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(*base.Load(), cancel)()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}})
	h.AddCluster("m", m.Kubeconfig(token))
	for _, method := range []string{"GET", "DELETE"} {
		ctx, cut := context.WithCancel(t.Context())
		base.Store(&ctx)
		req, err := http.NewRequestWithContext(t.Context(), method, h.URL+"/clusters/m/api/v1/namespaces/a/pods", nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() { <-arrived; cut() }()
		resp, err := h.HTTPClient.Do(req)
		if err != nil {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err == nil {
			t.Errorf("%s: a cut call looks whole: %s %q", method, resp.Status, body)
		}
	}
}

func TestBreaksOff(t *testing.T) {
	m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 100_000))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	resp := h.Do("GET", "/clusters/m/version", nil, "")
	if n, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Errorf("a broken answer of %d bytes looks whole", n)
	}
}

// TestStreams holds: what a member flushes arrives while the call is still open.
func TestStreams(t *testing.T) {
	next := make(chan string)
	m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.Flush()
		for s := range next {
			_, _ = io.WriteString(w, s)
			_ = rc.Flush()
		}
	})
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	resp := h.Do("GET", "/clusters/m/api/v1/pods?watch=1", nil, "")
	for _, s := range []string{"one\n", "two\n"} {
		next <- s
		got := make([]byte, len(s))
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != s {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	close(next)
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) != 0 {
		t.Errorf("rest %q, %v", rest, err)
	}
}

func TestRotation(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	ctx := context.Background()
	for range 3 {
		_, _ = io.Copy(io.Discard, h.Do("GET", "/clusters/m/version", nil, "").Body)
	}
	s, err := h.Secrets.Get(ctx, "clusters/m")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Secrets.Replace(ctx, "clusters/m", s.Version, secrets.NewValue(m.Kubeconfig(`{token: second-token}`))); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, h.Do("GET", "/clusters/m/version", nil, "").Body)
	arrived := m.Requests()
	for i, want := range []string{"members-token", "members-token", "members-token", "second-token"} {
		if got := arrived[i].Header.Get("Authorization"); got != "Bearer "+want {
			t.Errorf("call %d came with %q", i, got)
		}
	}
	waittest.Until(t, "the old version's connection is closed", func() bool { return m.ClosedConnections() > 0 })
}

// unauthorized answers as kube-apiserver does to a credential that it does not know.
func unauthorized(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnauthorized)
	_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`)
}

// TestRenewal holds: a credential that the member refuses is read anew, and a call that can be repeated does not notice: one that the
// member has not begun, since it said 401, and whose body is at hand.
func TestRenewal(t *testing.T) {
	m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer second-token" {
			unauthorized(w)
		}
	})
	h := newGateway(t, gatewaytest.Options{Freshness: cluster.Freshness{Secret: time.Hour, Object: time.Hour}})
	h.AddCluster("m", m.Kubeconfig(token), func(s *v1alpha1.ClusterSpec) { s.ServiceProxy = []string{"services/n/s"} })
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/version", nil, ""), 502, "credential_refused", "refuses the gateway's credential")
	const behind = "/clusters/m/api/v1/namespaces/n/services/s/proxy/login"
	for _, tt := range []struct {
		what, method, path, body string
		chunked                  bool
		times                    int // that it reaches the member
	}{
		{"a read", "GET", "/clusters/m/api/v1/pods", "", false, 2},
		{"a write", "POST", "/clusters/m/api/v1/namespaces/n/configmaps", `{"a":1}`, false, 2},
		{"a write without a body", "DELETE", "/clusters/m/api/v1/namespaces/n/configmaps/c", "", false, 2},
		{"a write whose body is spent", "POST", "/clusters/m/api/v1/namespaces/n/configmaps", `{"a":1}`, true, 1},
		{"a write whose body is too large to be held", "POST", "/clusters/m/api/v1/namespaces/n/configmaps", strings.Repeat("x", 300<<10), false, 1},
		{"a write that the member has passed on", "POST", behind, `{"a":1}`, false, 1},
		{"a read that it has passed on", "GET", behind, "", false, 2},
	} {
		t.Run(tt.what, func(t *testing.T) {
			h.RotateSecret("m", m.Kubeconfig(`{token: first-token}`))
			h.Clock.Advance(2 * time.Hour)                                                   // what is in the caches has ended
			if resp := h.Do("GET", "/clusters/m/version", nil, ""); resp.StatusCode != 502 { // first-token is in the cache
				t.Fatalf("%s", resp.Status)
			}
			h.RotateSecret("m", m.Kubeconfig(`{token: second-token}`))
			h.Clock.Advance(10 * time.Second)
			before := len(m.Requests())
			req, err := http.NewRequestWithContext(t.Context(), tt.method, h.URL+tt.path, strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if tt.chunked {
				req.ContentLength = -1
			}
			resp, err := h.HTTPClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			arrived := m.Requests()[before:]
			want := 200
			if tt.times == 1 {
				want = 502
			}
			if resp.StatusCode != want || len(arrived) != tt.times {
				t.Errorf("%s after %d times, want %d after %d", resp.Status, len(arrived), want, tt.times)
			}
			for _, a := range arrived {
				if a.Body != tt.body {
					t.Errorf("%d bytes arrived, want %d", len(a.Body), len(tt.body))
				}
			}
		})
	}
}

// TestUnauthorizedBehindAMember holds: what is behind a member's proxy subresource may ask its own callers for a password; that says
// nothing of the gateway's credential.
func TestUnauthorizedBehindAMember(t *testing.T) {
	answers := map[string]string{
		"text": "who are you?", "json": `{"error":"login required"}`, "empty": "",
		"long": `{"kind":"Status","apiVersion":"v1","reason":"Unauthorized","message":"` + strings.Repeat("x", 8<<10) + `"}`,
	}
	m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		if name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]; name == "server" {
			unauthorized(w)
		} else {
			w.Header().Set("Www-Authenticate", `Basic realm="grafana"`)
			if name != "text" {
				w.Header().Set("Content-Type", "application/json")
			}
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, answers[name])
		}
	})
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token), func(s *v1alpha1.ClusterSpec) { s.ServiceProxy = []string{"services/n/s"} })
	const behind = "/clusters/m/api/v1/namespaces/n/services/s/proxy/"
	for name, want := range answers {
		for _, method := range []string{"GET", "POST"} {
			resp := h.Do(method, behind+name, nil, "")
			body, err := io.ReadAll(resp.Body)
			if resp.StatusCode != 401 || string(body) != want || err != nil || resp.Header.Get("Www-Authenticate") != "" {
				t.Errorf("%s %s: %s %.80q, %v", method, name, resp.Status, body, err)
			}
		}
	}
	if n := len(m.Requests()); n != 2*len(answers) {
		t.Errorf("%d calls arrived", n)
	}
	gatewaytest.WantStatus(t, h.Do("GET", behind+"server", nil, ""), 502, "credential_refused", "refuses the gateway's credential")
	gatewaytest.WantStatus(t, h.Do("GET", "/clusters/m/api/v1/text", nil, ""), 502, "credential_refused", "refuses the gateway's credential")
}
