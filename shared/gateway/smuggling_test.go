package gateway_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

// echoingMember returns a member that switches to any protocol and echoes.
func echoingMember(t testing.TB) *clustertest.Member {
	return clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		protocol := r.Header.Get("Upgrade")
		if protocol == "" || r.URL.Path == "/api/v1/refuse" {
			ok(w, r)
			return
		}
		conn, brw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn,
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\n\r\n")
		_, _ = io.Copy(conn, brw.Reader) // ends when the client closes its half
	})
}

var requestKinds = []struct {
	name, method, connection, headers string
	member                            http.Header // the headers that the member receives, without the identity
	code                              int
	protocols                         []string // one of them reaches the member
}{
	{"plain", "GET", "keep-alive", "", http.Header{}, 200, []string{"HTTP/2.0", "HTTP/1.1"}},
	{
		"websocket", "GET", "Upgrade",
		"Upgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n" +
			"Sec-WebSocket-Protocol: v5.channel.k8s.io\n",
		http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
			"Sec-Websocket-Key":      {"dGhlIHNhbXBsZSBub25jZQ=="},
			"Sec-Websocket-Protocol": {"v5.channel.k8s.io"},
		}, 101, []string{"HTTP/1.1"},
	},
	{
		"SPDY", "POST", "Upgrade", "Upgrade: SPDY/3.1\nX-Stream-Protocol-Version: v4.channel.k8s.io\nContent-Length: 0\n",
		http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io"},
			"Content-Length": {"0"},
		}, 101, []string{"HTTP/1.1"},
	},
}

// attacks are headers with which a client could try to impersonate another user. connection extends the Connection
// header.
var attacks = []struct {
	name, connection, headers string
	member                    http.Header // the headers that the member receives, without the identity
	code                      int         // status code of the refusal; 0 if the member receives the request
	message                   string
}{
	{"nothing", "", "", nil, 0, ""},
	{"a user", "", "Impersonate-User: root\n", nil, 403, `User "alice" cannot impersonate resource "users"`},
	{"a user in lower case", "", "impersonate-user: root\n", nil, 403, `cannot impersonate`},
	{"a user in odd case", "", "iMPERSONATE-uSER: root\n", nil, 403, `cannot impersonate`},
	{"oneself", "", "Impersonate-User: alice\n", nil, 403, `cannot impersonate`},
	{
		"two users", "", "Impersonate-User: alice\nImpersonate-User: root\n", nil, 400,
		"Impersonate-User cannot be understood",
	},
	{
		"two users in two cases", "", "Impersonate-User: alice\nimpersonate-user: root\n", nil, 400,
		"Impersonate-User cannot be understood",
	},
	{"an empty user", "", "Impersonate-User:\n", nil, 400, "needs a user"},
	{"a group alone", "", "Impersonate-Group: system:masters\n", nil, 400, "needs a user"},
	{
		"a group with a user", "", "Impersonate-User: alice\nImpersonate-Group: system:masters\n", nil, 403,
		"cannot impersonate",
	},
	{"a uid alone", "", "Impersonate-Uid: 1\n", nil, 400, "needs a user"},
	{"an extra alone", "", "Impersonate-Extra-Scopes: all\n", nil, 400, "needs a user"},
	{
		"the gateway's own extra", "", "Impersonate-User: alice\nImpersonate-Extra-Clusterpass.io%2foriginal-User: root\n",
		nil, 400, "cannot be understood",
	},
	{
		"the gateway's own extra, escaped", "",
		"Impersonate-User: alice\nImpersonate-Extra-%43lusterpass.io%2foriginal-User: root\n", nil, 400,
		"cannot be understood",
	},
	{"an unknown part", "", "Impersonate-Root: true\n", nil, 400, "Impersonate-Root cannot be understood"},
	{"an underscore", "", "Impersonate_User: root\n", nil, 400, "cannot be understood"},
	{"underscores, odd case", "", "impersonate_EXTRA_a: root\n", nil, 400, "cannot be understood"},
	{"Connection: Impersonate-User", "Impersonate-User", "", nil, 0, ""},
	{"Connection: identity", "Impersonate-User, impersonate-group, Authorization, X-Remote-User", "", nil, 0, ""},
	{"Connection with the headers that it names", "X-Trick, close", "X-Trick: 1\n", nil, 0, ""},
	{
		"Connection: Impersonate-User, and it", "Impersonate-User", "Impersonate-User: root\n", nil, 403,
		"cannot impersonate",
	},
	{"Connection: itself", "Connection, Upgrade, Keep-Alive", "Keep-Alive: 5\n", nil, 0, ""},
	{"Connection on two lines", "", "Connection: Impersonate-User\n", nil, 0, ""},
	{
		"a front proxy's", "", "X-Remote-User: root\nx-remote-group: system:masters\nX-REMOTE-EXTRA-a: b\nX-Remote-Uid: 1\n",
		nil, 0, "",
	},
	{"a front proxy's with underscores", "", "X_Remote_User: root\nx_remote-group: system:masters\n", nil, 0, ""},
	{
		"a balancer's", "", "X-Amzn-Mtls-Clientcert: x\nx-amzn-oidc-data: y\nX-Amzn-Trace-Id: z\nX_Amzn_Mtls_Clientcert: x\n",
		nil, 0, "",
	},
	{
		"a proxy's", "",
		"X-Forwarded-For: 1.2.3.4\nx-forwarded-host: a\nForwarded: for=1.2.3.4\nX-Real-IP: 1.2.3.4\n" +
			"X-Original-URL: /\nX-Forwarded-Client-Cert: x\n",
		nil, 0, "",
	},
	{"a token", "", "Authorization: Bearer root\n", nil, 0, ""},
	{
		"two tokens", "",
		"Authorization: Bearer root\nauthorization: Bearer system\nProxy-Authorization: Basic x\nCookie: a=b\n", nil, 0, "",
	},
	{
		"a token in the subprotocol", "", "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.cm9vdA\n", nil, 0,
		"",
	},
	{"any name with underscores", "", "X_Any: 1\nContent_Length: 5\nTransfer_Encoding: chunked\n", nil, 0, ""},
	{"trailers are announced", "", "Trailer: Impersonate-User\nTE: trailers\n", nil, 0, ""},
	{"an audit id", "", "Audit-Id: another's\naudit_id: another's\n", nil, 0, ""},
	{"Connection: Audit-Id", "Audit-Id", "", nil, 0, ""},
	{"harmless headers pass", "", "X-Keep: 1\nx-keep: 2\n", http.Header{"X-Keep": {"1", "2"}}, 0, ""},
}

func TestSmuggling(t *testing.T) {
	m := echoingMember(t)
	h := newGateway(t, gatewaytest.Options{MaxReadConns: 64})
	h.AddCluster("m", m.Kubeconfig(token))
	h.AddCluster("direct", m.Kubeconfig(token),
		func(s *v1alpha1.ClusterSpec) { s.Identity, s.DirectUsers = v1alpha1.Direct, []string{"alice"} })
	h.AddCluster("passthrough", m.Kubeconfig(token), func(s *v1alpha1.ClusterSpec) { s.Identity = v1alpha1.Passthrough })
	smuggle(t, h, m, "m", "",
		http.Header{"Authorization": {"Bearer members-token"}, "Impersonate-User": {"alice"}, "Impersonate-Group": {"dev"}})
	smuggle(t, h, m, "direct", "", http.Header{"Authorization": {"Bearer members-token"}})
	h.ClientTLS.Certificates = nil
	smuggle(t, h, m, "passthrough", "callers-own", http.Header{"Authorization": {"Bearer callers-own"}})
}

// smuggle tries every attack on a cluster. bearer is the caller's token, "" for a client certificate.
func smuggle(t *testing.T, h *fixture, m *clustertest.Member, cluster, bearer string, identity http.Header) {
	for _, kind := range requestKinds {
		for _, attack := range attacks {
			t.Run(cluster+"/"+kind.name+"/"+attack.name, func(t *testing.T) {
				connection, headers := kind.connection, kind.headers+attack.headers
				if attack.connection != "" {
					connection += ", " + attack.connection
				}
				code, message := attack.code, attack.message
				if bearer != "" {
					headers = "Authorization: Bearer " + bearer + "\n" + headers
					switch {
					case code != 0: // passthrough refuses all impersonation, also malformed headers
						code, message = 403, "--as is not forwarded"
					case strings.HasPrefix(attack.headers, "Authorization:"):
						code, message = 401, "no credential"
					}
				}
				resp := h.SendRaw(kind.method + " /clusters/" + cluster + "/api/v1/x HTTP/1.1\nHost: x\nConnection: " + connection +
					"\n" + headers + "\n")
				arrived := m.TakeRequests()
				if code != 0 {
					reason := map[int]string{400: "bad_request", 401: "unauthenticated", 403: "forbidden"}[code]
					gatewaytest.WantStatus(t, resp, code, reason, message)
					if len(arrived) > 0 {
						t.Errorf("the member received a refused request: %+v", arrived)
					}
					return
				}
				if resp.StatusCode != kind.code || len(arrived) != 1 {
					t.Fatalf("%s, and the member received %d requests", resp.Status, len(arrived))
				}
				want := identity.Clone()
				if id := arrived[0].Header.Get("Audit-Id"); len(id) != 36 {
					t.Errorf("the member received the audit ID %q", id)
				}
				arrived[0].Header.Del("Audit-Id")
				for _, more := range []http.Header{kind.member, attack.member} {
					for k, v := range more {
						want[k] = v
					}
				}
				if diff := cmp.Diff(want, arrived[0].Header); diff != "" || arrived[0].URI != "/api/v1/x" ||
					!slices.Contains(kind.protocols, arrived[0].Proto) {
					t.Errorf("the member received %s %s\n%s", arrived[0].URI, arrived[0].Proto, diff)
				}
			})
		}
	}
}

// TestMalformed fails if malformed HTTP, or a request that parsers understand differently, reaches a member.
func TestMalformed(t *testing.T) {
	m := echoingMember(t)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	const (
		get     = "GET /clusters/m/api/v1/x HTTP/1.1\nHost: x\n"
		post    = "POST /clusters/m/api/v1/x HTTP/1.1\nHost: x\n"
		upgrade = "Connection: Upgrade\nUpgrade: websocket\n"
	)
	for name, request := range map[string]string{
		"a space before the colon": get + "Impersonate-User : root\n\n",
		"a tab before the colon":   get + "Impersonate-User\t: root\n\n",
		"a pseudo-header":          get + ":authority: x\n\n",
		"a pseudo-header's user":   get + ":impersonate-user: root\n\n",
		"no name":                  get + ": root\n\n",
		"a NUL in a name":          get + "Imper\x00sonate-User: root\n\n",
		"a NUL in a value":         get + "X-A: a\x00Impersonate-User: root\n\n",
		"a bare CR in a value":     get + "X-A: a\rImpersonate-User: root\n\n",
		"two hosts":                get + "Host: y\n\n",
		"two lengths":              post + "Content-Length: 4\nContent-Length: 5\n\nabcde",
		"a length that is none":    post + "Content-Length: +4\n\nabcd",
		"an unknown coding":        post + "Transfer-Encoding: xchunked\n\n0\n\n",
		"chunked twice":            post + "Transfer-Encoding: chunked\nTransfer-Encoding: chunked\n\n0\n\n",
		"a host before the path":   "GET https://y/clusters/m/api/v1/x HTTP/1.1\nHost: x\n\n",
		"a connect":                "CONNECT clusters/m/api:443 HTTP/1.1\nHost: x\n\n",
		"no version":               "GET /clusters/m/api/v1/x\n\n",
		"an upgrade with a length": get + upgrade + "Content-Length: 5\n\nabcde",
		"an upgrade with chunks": get + upgrade +
			"Transfer-Encoding: chunked\nTrailer: Impersonate-User\n\n0\nImpersonate-User: root\n\n",
		"an upgrade to two":       get + "Connection: Upgrade\nUpgrade: websocket, h2c\n\n",
		"an upgrade on two lines": get + upgrade + "Upgrade: SPDY/3.1\n\n",
		"an upgrade to h2c": get +
			"Connection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABkAAQAAP__\n\n",
		"an upgrade without Connection":    get + "Upgrade: websocket\n\n",
		"an upgrade that Connection hides": get + "Connection: Upgrade-Insecure-Requests\nUpgrade: websocket\n\n",
		"an upgrade of another version":    get + "Connection: Upgrade\nUpgrade: SPDY/2\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			if resp := h.SendRaw(request); resp.StatusCode != 400 && resp.StatusCode != 501 && resp.StatusCode != 505 {
				t.Errorf("%s", resp.Status)
			}
			if arrived := m.Requests(); len(arrived) > 0 {
				t.Errorf("the member received %+v", arrived)
			}
		})
	}
}

// TestFoldedHeader fails if the gateway and the member understand a folded header line differently.
func TestFoldedHeader(t *testing.T) {
	m := echoingMember(t)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	resp := h.SendRaw("GET /clusters/m/version HTTP/1.1\nHost: x\nX-A: a\n Impersonate-User: root\n\n")
	for _, s := range m.Requests() {
		if resp.StatusCode != 200 || s.Header.Get("Impersonate-User") != "alice" ||
			s.Header.Get("X-A") != "a Impersonate-User: root" {
			t.Errorf("%s: %+v", resp.Status, s)
		}
	}
}

func TestTrailers(t *testing.T) {
	m := echoingMember(t)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	for _, announced := range []string{"", "Trailer: Impersonate-User, X-Remote-User\n"} {
		resp := h.SendRaw("POST /clusters/m/api/v1/x HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n" + announced +
			"\n3\nabc\n0\nImpersonate-User: root\nX-Remote-User: root\n\n")
		arrived := m.TakeRequests()
		if resp.StatusCode != 200 || len(arrived) != 1 {
			t.Fatalf("%s, and the member received %d requests", resp.Status, len(arrived))
		}
		if s := arrived[0]; s.Body != "abc" || len(s.Trailer) > 0 || s.Header.Get("Impersonate-User") != "alice" ||
			s.Header.Get("X-Remote-User") != "" {
			t.Errorf("the member received %+v", s)
		}
	}
}

// The bytes belong to the upgraded protocol. A member must not read them as a second request.
func TestEarlyBytes(t *testing.T) {
	m := echoingMember(t)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	const second = "GET /api/v1/second HTTP/1.1\r\nHost: x\r\nImpersonate-User: root\r\n\r\n"
	_, r, resp := h.dialUpgrade("/clusters/m/api/v1/x", second)
	if resp.StatusCode != 101 {
		t.Fatal(resp.Status)
	}
	echo := make([]byte, len(second))
	if _, err := io.ReadFull(r, echo); err != nil || string(echo) != second {
		t.Errorf("%q, %v", echo, err)
	}
	// After a refused upgrade, the bytes are the client's next request to the gateway.
	_, r, resp = h.dialUpgrade("/clusters/m/api/v1/refuse", second)
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s, %v", resp.Status, err)
	}
	if next, err := http.ReadResponse(r, nil); err == nil && next.StatusCode < 400 {
		t.Errorf("the second request: %s", next.Status)
	}
	for _, s := range m.Requests() {
		if s.URI == "/api/v1/second" || s.Header.Get("Impersonate-User") != "alice" {
			t.Errorf("the member received %+v", s)
		}
	}
}

func TestSmugglingByHTTP2(t *testing.T) {
	m := echoingMember(t)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	server := httptest.NewUnstartedServer(h.Config.Handler)
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = h.Config.ErrorLog
	server.StartTLS()
	defer server.Close()
	config := server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.Certificates, config.NextProtos = h.ClientTLS.Certificates, []string{"h2"}
	pseudo := []string{":method", "GET", ":scheme", "https", ":authority", "x", ":path", "/clusters/m/api/v1/x"}
	post := append([]string{":method", "POST"}, pseudo[2:]...)
	for _, tt := range []struct {
		name     string
		headers  []string // names and values
		body     string
		trailers []string
		want     string // the status, "reset", or "refused" for either
	}{
		{"a call", pseudo, "", nil, "200"},
		{"a user", append(pseudo[:8:8], "impersonate-user", "root"), "", nil, "403"},
		{"two users", append(pseudo[:8:8], "impersonate-user", "alice", "impersonate-user", "root"), "", nil, "400"},
		{"an underscore", append(pseudo[:8:8], "impersonate_user", "root"), "", nil, "400"},
		{
			"a front proxy's", append(pseudo[:8:8], "x-remote-user", "root", "x_remote_group", "system:masters"), "", nil, "200",
		},
		{"upper case", append(pseudo[:8:8], "Impersonate-User", "root"), "", nil, "reset"},
		{"two paths", append(pseudo[:8:8], ":path", "/clusters/m/api/v1/y"), "", nil, "reset"},
		{"two authorities", append(pseudo[:8:8], ":authority", "y"), "", nil, "reset"},
		{"an unknown pseudo-header", append([]string{":impersonate-user", "root"}, pseudo...), "", nil, "reset"},
		{"a pseudo-header behind others", append([]string{"x-a", "1"}, pseudo...), "", nil, "reset"},
		{"connection", append(pseudo[:8:8], "connection", "impersonate-user"), "", nil, "refused"},
		{"an upgrade", append(pseudo[:8:8], "connection", "upgrade", "upgrade", "websocket"), "", nil, "refused"},
		{"transfer-encoding", append(post[:8:8], "transfer-encoding", "chunked"), "abc", nil, "refused"},
		{"a line break in a value", append(pseudo[:8:8], "x-a", "a\r\nimpersonate-user: root"), "", nil, "reset"},
		{
			"a line break in the path",
			append(append([]string{}, pseudo[:7]...), "/clusters/m/api/v1/x HTTP/1.1\r\nImpersonate-User: root\r\n\r\n"), "",
			nil, "refused",
		},
		{
			"an extended connect",
			[]string{
				":method", "CONNECT", ":protocol", "websocket", ":scheme", "https", ":authority", "x", ":path",
				"/clusters/m/api/v1/x",
			},
			"", nil, "refused",
		},
		{"trailers", post, "abc", []string{"impersonate-user", "root", "x-remote-user", "root"}, "200"},
		{"pseudo-headers in trailers", post, "abc", []string{":path", "/clusters/m/api/v1/y"}, "reset"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := callHTTP2(t, server.Listener.Addr().String(), config, tt.headers, tt.body, tt.trailers)
			if got != tt.want && (tt.want != "refused" || got != "reset" && !strings.HasPrefix(got, "4")) {
				t.Errorf("%s, want %s", got, tt.want)
			}
			for _, s := range m.TakeRequests() {
				if tt.want != "200" && tt.trailers == nil { // trailers are refused after the request is forwarded
					t.Errorf("the member received a refused request: %+v", s)
				}
				if s.URI != "/api/v1/x" || s.Header.Get("Impersonate-User") != "alice" || s.Header.Get("X-Remote-User") != "" ||
					len(s.Trailer) > 0 || s.Header.Get("Upgrade") != "" {
					t.Errorf("the member received %+v", s)
				}
			}
		})
	}
}

// callHTTP2 sends one request as raw frames. It returns the status of the response, or "reset".
func callHTTP2(t *testing.T, addr string, config *tls.Config, headers []string, body string, trailers []string) string {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(conn, conn)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	encode := func(fields []string) []byte {
		block.Reset()
		for i := 0; i < len(fields); i += 2 {
			_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // writing to a Buffer never fails
		}
		return bytes.Clone(block.Bytes())
	}
	end := body == "" && trailers == nil
	// Errors of writing do not matter: the server may refuse the request before all frames are sent.
	_ = f.WriteSettings()
	_ = f.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, BlockFragment: encode(headers), EndHeaders: true, EndStream: end,
	})
	if !end {
		_ = f.WriteData(1, trailers == nil, []byte(body))
	}
	if trailers != nil {
		_ = f.WriteHeaders(http2.HeadersFrameParam{
			StreamID: 1, BlockFragment: encode(trailers), EndHeaders: true, EndStream: true,
		})
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return "reset"
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			return frame.PseudoValue("status")
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return "reset"
		}
	}
}

func FuzzSmuggling(f *testing.F) {
	for _, attack := range attacks {
		f.Add(attack.headers, attack.connection, byte(len(attack.name)))
	}
	m := echoingMember(f)
	h := newGateway(f, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	f.Fuzz(func(t *testing.T, headers, connection string, kind byte) {
		if strings.Contains(headers, "\n\n") || strings.HasPrefix(headers, "\n") || strings.ContainsAny(connection, "\n\r") {
			return // the generated text would end the request's header
		}
		k := requestKinds[int(kind)%len(requestKinds)]
		conn, err := tls.Dial("tcp", h.Listener.Addr().String(), h.ClientTLS)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		request := fmt.Sprintf("%s /clusters/m/api/v1/x HTTP/1.1\nHost: x\nConnection: %s, %s\n%s%s\n\n", k.method,
			k.connection, connection, k.headers, headers)
		if _, err := io.WriteString(conn, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
			return
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return
		}
		_ = resp.Body.Close()
		for _, s := range m.TakeRequests() {
			if diff := cmp.Diff([]string{"alice"}, s.Header["Impersonate-User"]); diff != "" {
				t.Errorf("%q\n%s", request, diff)
			}
			for name, values := range s.Header {
				switch lower := strings.ToLower(strings.ReplaceAll(name, "_", "-")); {
				case name == "Impersonate-User" || name == "Impersonate-Group" && len(values) == 1 && values[0] == "dev" ||
					name == "Authorization" && values[0] == "Bearer members-token" && len(values) == 1:
				case strings.HasPrefix(lower, "impersonate-"), strings.HasPrefix(lower, "x-remote-"),
					strings.HasPrefix(lower, "x-amzn-"), strings.HasPrefix(lower, "x-forwarded"),
					lower == "forwarded", lower == "authorization", strings.Contains(strings.Join(values, ","), "base64url.bearer"):
					t.Errorf("%q\nthe member received %s: %q", request, name, values)
				}
			}
		}
	})
}
