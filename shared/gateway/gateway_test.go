package gateway_test

import (
	"compress/gzip"
	"context"
	"io"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

const token = `{token: members-token}`

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

func withIdentity(extra http.Header) http.Header {
	out := http.Header{
		"Authorization": {"Bearer members-token"}, "Impersonate-User": {"alice"}, "Impersonate-Group": {"dev"},
	}
	maps.Copy(out, extra)
	return out
}

var forwardedRequests = []struct {
	name, request string
	want          clustertest.Request
}{
	{
		"path and query byte for byte",
		"GET /clusters/m/api/v1/namespaces/a%2Fb%3Ac/x|y/?a=1&a=2&b=%20+&;c&d HTTP/1.1\nHost: x\n\n",
		clustertest.Request{
			Method: "GET", URI: "/api/v1/namespaces/a%2Fb%3Ac/x|y/?a=1&a=2&b=%20+&;c&d", Header: withIdentity(nil),
		},
	},
	{
		"trailing question mark", "GET /clusters/m/version? HTTP/1.1\nHost: x\n\n",
		clustertest.Request{Method: "GET", URI: "/version?", Header: withIdentity(nil)},
	},
	{
		"no path", "GET /clusters/m HTTP/1.1\nHost: x\n\n",
		clustertest.Request{Method: "GET", URI: "/", Header: withIdentity(nil)},
	},
	{
		"karmada's form", "GET /apis/cluster.karmada.io/v1alpha1/clusters/m/proxy/api/v1/nodes HTTP/1.1\nHost: x\n\n",
		clustertest.Request{Method: "GET", URI: "/api/v1/nodes", Header: withIdentity(nil)},
	},
	{
		"karpor's form", "GET /apis/cluster.karpor.io/v1beta1/clusters/m/proxy/api/v1/nodes HTTP/1.1\nHost: x\n\n",
		clustertest.Request{Method: "GET", URI: "/api/v1/nodes", Header: withIdentity(nil)},
	},
	{
		"karpor's page", "GET /apis/kusionstack.io/Cluster/m/proxy/api/v1/pods HTTP/1.1\nHost: x\n\n",
		clustertest.Request{Method: "GET", URI: "/api/v1/pods", Header: withIdentity(nil)},
	},
	{
		"the addon's form", "GET /m/api/v1/pods HTTP/1.1\nHost: x\n\n",
		clustertest.Request{Method: "GET", URI: "/api/v1/pods", Header: withIdentity(nil)},
	},
	{
		"the bridge's form", "GET /bridge/m/api/v1/pods HTTP/1.1\nHost: x\n\n",
		clustertest.Request{Method: "GET", URI: "/api/v1/pods", Header: withIdentity(nil)},
	},
	{
		"body and its headers",
		"POST /clusters/m/api/v1/pods HTTP/1.1\nHost: x\nContent-Type: application/json\nContent-Length: 4\n" +
			"Accept: a\nAccept: b, c\nUser-Agent: kubectl\n\n{\"a\"",
		clustertest.Request{Method: "POST", URI: "/api/v1/pods", Body: `{"a"`, Header: withIdentity(http.Header{
			"Content-Type": {"application/json"}, "Content-Length": {"4"}, "Accept": {"a", "b, c"}, "User-Agent": {"kubectl"},
		})},
	},
	{
		"chunked body without its trailer",
		"POST /clusters/m/api/v1/pods HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\nTrailer: Impersonate-User\n\n" +
			"3\nabc\n0\nImpersonate-User: root\n\n",
		clustertest.Request{Method: "POST", URI: "/api/v1/pods", Body: "abc", Header: withIdentity(nil)},
	},
	{
		"headers of identity, proxies and connections",
		"GET /clusters/m/version HTTP/1.1\nHost: x\nauthorization: Bearer mine\nX-Remote-User: root\n" +
			"x-remote-group: system:masters\nX-Remote-Extra-A: b\nX_Remote_User: root\n" +
			"X-Forwarded-For: 1.2.3.4\nX-Forwarded-Proto: http\nForwarded: for=1.2.3.4\nX-Real-IP: 1.2.3.4\n" +
			"X-Amzn-Mtls-Clientcert: x\nX-Original-Url: /\nCookie: a=b\nIdempotency-Key: x\nX-Idempotency-Key: x\n" +
			"Transfer_Encoding: chunked\nConnection: close, X-Drop\nX-Drop: 1\nKeep-Alive: 5\n" +
			"Proxy-Authorization: Basic x\nTE: trailers\nX-Keep: 1\n\n",
		clustertest.Request{Method: "GET", URI: "/version", Header: withIdentity(http.Header{"X-Keep": {"1"}})},
	},
	{
		"a Connection header cannot remove the identity",
		"GET /clusters/m/version HTTP/1.1\nHost: x\nConnection: Impersonate-User, Authorization, Impersonate-Group\n\n",
		clustertest.Request{Method: "GET", URI: "/version", Header: withIdentity(nil)},
	},
	{
		"an encoding that the client did not ask for is not added",
		"GET /clusters/m/version HTTP/1.1\nHost: x\nAccept-Encoding: identity\n\n",
		clustertest.Request{
			Method: "GET", URI: "/version", Header: withIdentity(http.Header{"Accept-Encoding": {"identity"}}),
		},
	},
}

func TestRequestsReachMembersUnchanged(t *testing.T) {
	m := clustertest.NewMember(t, ok)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	for _, tt := range forwardedRequests {
		t.Run(tt.name, func(t *testing.T) {
			before := len(m.Requests())
			if resp := h.SendRaw(tt.request); resp.StatusCode != http.StatusOK {
				body, _ := io.ReadAll(resp.Body)
				t.Fatalf("response %s: %s", resp.Status, body)
			}
			arrived := m.Requests()
			if len(arrived) != before+1 {
				t.Fatalf("the member received %d requests", len(arrived)-before)
			}
			got := arrived[before]
			tt.want.Proto = "HTTP/2.0"
			got.Header.Del("Audit-Id") // TestAuditIDIsTheGateways checks it
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("the member received %+v\nwant %+v", got, tt.want)
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
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 404 || string(b) != "no such thing\n" ||
		len(resp.Header["Warning"]) != 2 || resp.Header.Get("Set-Cookie") != "" {
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

// TestDirect fails if a direct cluster receives impersonation headers, or if the client cannot set ordinary headers.
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
		t.Errorf("the member received %v, want %v", got, want)
	}
}

// A client would mistake a complete response for an empty success.
func TestShutdownBreaksOpenCalls(t *testing.T) {
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
			t.Errorf("%s: the response of a cut call is complete: %s %q", method, resp.Status, body)
		}
	}
}

func TestTruncatedResponseIsAnError(t *testing.T) {
	m := clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 100_000))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	resp := h.Do("GET", "/clusters/m/version", nil, "")
	if n, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Errorf("a truncated response of %d bytes is complete", n)
	}
}

// TestStreams fails if the gateway buffers a watch.
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

// TestRotation fails if a request uses the old credential after its secret changed.
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
	if _, err := h.Secrets.Replace(ctx, "clusters/m", s.Version,
		secrets.NewValue(m.Kubeconfig(`{token: second-token}`))); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, h.Do("GET", "/clusters/m/version", nil, "").Body)
	arrived := m.Requests()
	for i, want := range []string{"members-token", "members-token", "members-token", "second-token"} {
		if got := arrived[i].Header.Get("Authorization"); got != "Bearer "+want {
			t.Errorf("request %d has the credential %q", i, got)
		}
	}
	waittest.Until(t, "the old version's connection is closed", func() bool { return m.ClosedConnections() > 0 })
}
