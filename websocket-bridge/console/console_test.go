package console

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/clusterpass/clusterpass/shared/waittest"
)

const script = `import("/console/assets/view-B.js")`

func compress(t *testing.T, content string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func build(t *testing.T) fstest.MapFS {
	t.Helper()
	return fstest.MapFS{
		"README":               {Data: []byte("about")},
		"index.html":           {Data: []byte(`<script nonce="NONCE" src="/console/assets/main-A.js"></script>`)},
		"licenses.txt":         {Data: []byte("MIT")},
		"assets/main-A.js.gz":  {Data: compress(t, script)},
		"assets/main-A.css.gz": {Data: compress(t, "body{}")},
	}
}

// start returns a server of the files. Its next handler answers with 418.
func start(t *testing.T, files fstest.MapFS, cfg SignIn) *httptest.Server {
	t.Helper()
	c, err := open(files, cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(c.before(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	})))
	t.Cleanup(s.Close)
	return s
}

func send(t *testing.T, s *httptest.Server, method, path string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableCompression: true, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// TestPaths: a path of the gateway's API must not become a page, and a missing asset must not be cached as one.
func TestPaths(t *testing.T) {
	s := start(t, build(t), SignIn{})
	for name, tc := range map[string]struct {
		method, path             string
		code                     int
		contentType, cache, body string
	}{
		"page":               {"GET", "/console/", 200, html, "no-store", "main-A.js"},
		"view":               {"GET", "/console/objects/m/core/v1/pods/ns/a.b", 200, html, "no-store", "main"},
		"without slash":      {"GET", "/console", 308, html, "", ""},
		"configuration":      {"GET", "/console/config.json", 200, "application/json", "no-store", "{}"},
		"licenses":           {"GET", "/console/licenses.txt", 200, text, "no-store", "MIT"},
		"script":             {"GET", "/console/assets/main-A.js", 200, "text/javascript; charset=utf-8", immutable, script},
		"style":              {"GET", "/console/assets/main-A.css", 200, "text/css; charset=utf-8", immutable, "body{}"},
		"asset of an update": {"GET", "/console/assets/main-Z.js", 404, text, "no-store", "load the page"},
		"compressed file":    {"GET", "/console/assets/main-A.js.gz", 404, text, "no-store", ""},
		"folder":             {"GET", "/console/assets/", 404, text, "no-store", ""},
		"HEAD of the page":   {"HEAD", "/console/", 200, html, "no-store", ""},
		"HEAD of a script":   {"HEAD", "/console/assets/main-A.js", 200, "text/javascript; charset=utf-8", immutable, ""},
		"write":              {"POST", "/console/", 405, text, "", "GET and HEAD"},
		"similar name":       {"GET", "/consoles", 418, "", "", ""},
		"API":                {"GET", "/clusters/console/api", 418, "", "", ""},
		"escaped":            {"GET", "/%63onsole/", 418, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := send(t, s, tc.method, tc.path)
			if resp.StatusCode != tc.code || resp.Header.Get("Content-Type") != tc.contentType && tc.code != 308 ||
				resp.Header.Get("Cache-Control") != tc.cache || !strings.Contains(body, tc.body) {
				t.Errorf("got %s %v %q", resp.Status, resp.Header, body)
			}
			if tc.method == "HEAD" && (body != "" || resp.ContentLength <= 0) {
				t.Errorf("HEAD has the body %q and the length %d", body, resp.ContentLength)
			}
			if tc.code != 418 && resp.Header.Get("Content-Security-Policy") == "" {
				t.Error("the response has no policy")
			}
			if tc.code == 405 && resp.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("Allow is %q", resp.Header.Get("Allow"))
			}
		})
	}
}

const (
	immutable = "public, max-age=31536000, immutable"
	html      = "text/html; charset=utf-8"
	text      = "text/plain; charset=utf-8"
)

// TestPolicyAllowsOnlyOwnScripts: with 'self' or an inline script, a member's response could run as a script of the
// page, with the rights of its visitor.
func TestPolicyAllowsOnlyOwnScripts(t *testing.T) {
	s := start(t, build(t), SignIn{
		Issuer: "https://login.example.com/realms/a", ClientID: "c", Scopes: []string{"openid"},
		IssuerOrigins: Origins{"https://token.example.com"},
	})
	seen := map[string]bool{}
	for range 2 {
		resp, body := send(t, s, "GET", "/console/clusters")
		policy := resp.Header.Get("Content-Security-Policy")
		value := regexp.MustCompile(`script-src 'nonce-([A-Z0-9]{26})' 'strict-dynamic' 'wasm-unsafe-eval';`).
			FindStringSubmatch(policy)
		if value == nil || seen[value[1]] || !strings.Contains(body, `nonce="`+value[1]+`"`) {
			t.Fatalf("the nonce is missing, old or of another response: %s %s", policy, body)
		}
		seen[value[1]] = true
		for _, want := range []string{
			"default-src 'none'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'",
			"connect-src 'self' https://login.example.com https://token.example.com",
		} {
			if !strings.Contains(policy+";", want+";") {
				t.Errorf("%q is not in %s", want, policy)
			}
		}
		if strings.Contains(policy, "unsafe-inline") || strings.Contains(policy, "'unsafe-eval'") ||
			strings.Contains(body, "NONCE") {
			t.Errorf("%s %s", policy, body)
		}
	}
}

// TestBuiltPageHasNoInlineScript: the policy would block it, and the page would stay empty.
func TestBuiltPageHasNoInlineScript(t *testing.T) {
	page, err := dist.ReadFile("dist/index.html")
	if err != nil {
		if _, err := dist.ReadFile("dist/README"); err != nil {
			t.Fatal(err)
		}
		return // make console has not run: TestUnbuiltConsoleExplains covers this build
	}
	for _, tag := range regexp.MustCompile(`(?s)<script[^>]*>(.*?)</script>`).FindAllSubmatch(page, -1) {
		if len(tag[1]) > 0 || !bytes.Contains(tag[0], []byte(` nonce="NONCE" src="/console/assets/`)) ||
			!bytes.Contains(tag[0], []byte(`integrity="sha384-`)) {
			t.Errorf("inline script, or without nonce and hash: %s", tag[0])
		}
	}
	if bytes.Contains(page, []byte("style=")) || regexp.MustCompile(`\son[a-z]+=`).Match(page) {
		t.Errorf("the page has inline styles or handlers: %s", page)
	}
}

// TestUnbuiltConsoleExplains: someone who has built without Node must learn what to do.
func TestUnbuiltConsoleExplains(t *testing.T) {
	s := start(t, fstest.MapFS{"README": {Data: []byte("about")}}, SignIn{})
	for _, path := range []string{"/console/", "/console/assets/main-A.js", "/console/config.json"} {
		if resp, body := send(t, s, "GET", path); resp.StatusCode != 501 || !strings.Contains(body, "make console") {
			t.Errorf("%s: %s %s", path, resp.Status, body)
		}
	}
	if resp, _ := send(t, s, "GET", "/api"); resp.StatusCode != http.StatusTeapot {
		t.Errorf("the API answers %s", resp.Status)
	}
}

// TestEncoding: a client that refuses gzip would show compressed bytes.
func TestEncoding(t *testing.T) {
	s := start(t, build(t), SignIn{})
	for accept, want := range map[string]string{
		"gzip": "gzip", "br, gzip;q=0.5": "gzip", "GZIP": "gzip", "": "", "identity": "", "gzip;q=0": "", "gzip; q=0.00": "",
		"deflate": "",
	} {
		resp, body := send(t, s, "GET", "/console/assets/main-A.js", "Accept-Encoding", accept)
		if got := resp.Header.Get("Content-Encoding"); got != want || resp.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%q: Content-Encoding %q, Vary %q", accept, got, resp.Header.Get("Vary"))
		}
		if want == "gzip" {
			r, err := gzip.NewReader(strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			body = string(content)
		}
		if body != script {
			t.Errorf("%q: %q", accept, body)
		}
	}
}

// TestConfiguration: a wrong value must fail the start, and must not add to the page's policy.
func TestConfiguration(t *testing.T) {
	var issuer Issuer
	for _, bad := range []string{"http://login.example.com", "login", "https://", "https://a;script-src *", "https://a b",
		"https://u@a", "https://a?q", "https://a#f"} {
		if err := issuer.Decode(bad); err == nil {
			t.Errorf("issuer %q is accepted", bad)
		}
	}
	var origins Origins
	for _, bad := range []string{"null", "*", "https://a/path", "http://a", "https://*.a", "https://a'"} {
		if err := origins.Decode(bad); err == nil {
			t.Errorf("origin %q is accepted", bad)
		}
	}
	if err := origins.Decode(" https://a , https://[::1]:8443"); err != nil || len(origins) != 2 {
		t.Errorf("%v %v", origins, err)
	}
	for _, bad := range []SignIn{{Issuer: "https://a", Scopes: []string{"openid"}}, {Issuer: "https://a", ClientID: "c"}} {
		if err := bad.Validate(); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	s := start(t, build(t), SignIn{Issuer: "https://a", ClientID: "c", Scopes: []string{"openid"}})
	_, body := send(t, s, "GET", "/console/config.json")
	var got pageConfig
	if err := json.Unmarshal([]byte(body), &got); err != nil || got.OIDC == nil || got.OIDC.ClientID != "c" {
		t.Errorf("%s: %v", body, err)
	}
}

// TestBodyThatNeverComesHoldsNoConnection: a caller without a credential must not be able to keep connections open.
func TestBodyThatNeverComesHoldsNoConnection(t *testing.T) {
	s := start(t, build(t), SignIn{})
	for _, request := range []string{
		"GET /console/ HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n",
		"GET /console/config.json HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
		"POST /console/ HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n",
	} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(waittest.Patience))
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		response, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(response), "HTTP/1.1 ") {
			t.Errorf("%q: %q, %v", request, response, err)
		}
		_ = conn.Close()
	}
}
