// Package browser attacks the gateway with pages in a real browser with a client certificate. It also opens a user
// interface by kubectl port-forward, and plays an exported recording in asciinema's player. make test-browser installs
// playwright-core and the player, and needs Node and Chromium.
package browser

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/websocket-bridge/bridge"
)

const browserTimeout = 5 * time.Minute

type log struct {
	mu       sync.Mutex
	requests []string
}

func (l *log) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		l.requests = append(l.requests, r.Method+" "+r.URL.Path)
		l.mu.Unlock()
		next.ServeHTTP(w, r)
	})
}

func (l *log) has(request string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.requests {
		if r == request {
			return true
		}
	}
	return false
}

// browse opens URLs in Chromium with the gateway's client certificate, and returns their status codes.
func browse(t *testing.T, g *gatewaytest.Gateway, urls ...string) []string {
	t.Helper()
	return browseUntil(t, g, "", urls...)
}

// browseUntil is browse, and waits until each page has the title. The test fails if a page does not get it.
func browseUntil(t *testing.T, g *gatewaytest.Gateway, title string, urls ...string) []string {
	t.Helper()
	certificate, key := writeCertificate(t, g)
	ctx, cancel := context.WithTimeout(t.Context(), browserTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", append([]string{"open.mjs"}, urls...)...)
	cmd.Env = append(os.Environ(), "GATEWAY="+g.URL, "CERTIFICATE="+certificate, "KEY="+key, "TITLE="+title)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the browser: %v\n%s", err, &stderr)
	}
	return strings.Fields(string(out))
}

// writeCertificate writes the client certificate of the gateway's client, and returns the paths of its PEM files.
func writeCertificate(t *testing.T, g *gatewaytest.Gateway) (certificate, key string) {
	t.Helper()
	dir := t.TempDir()
	certificate, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM, keyPEM, err := pki.PEM(&g.ClientTLS.Certificates[0])
	if err != nil {
		t.Fatal(err)
	}
	for path, data := range map[string][]byte{certificate: certPEM, key: keyPEM} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}

// hostilePage runs scripts by all means that need no click.
const hostilePage = `<!DOCTYPE html><title>hostile</title><img src="image">
<script>
fetch("ran-script");
new WebSocket(location.href.replace("https", "wss").replace("page", "ran-websocket"));
</script>
<img src="missing" onerror="fetch('ran-handler')">
<iframe srcdoc="<script>parent.fetch('ran-frame')</script>"></iframe>
<script src="ran-source"></script>`

var ran = []string{"ran-script", "ran-handler", "ran-frame", "ran-source", "ran-websocket"}

func newGateway(t *testing.T, member http.Handler) (*gatewaytest.Gateway, *log) {
	t.Helper()
	requests := &log{}
	b := bridge.New(bridge.Limits{})
	g := gatewaytest.New(t, gatewaytest.Options{
		Configure: func(c *gateway.Config) { c.Streams = b }, Wrap: requests.wrap,
	})
	g.AddCluster("m", clustertest.NewStreamingMember(t, member.ServeHTTP).Kubeconfig(`{token: t}`))
	return g, requests
}

func hostileMember(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/page") {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(hostilePage))
	}
}

// TestPageOfHostileMemberRunsNoScript: scripts of a hostile member could read every cluster with the visitor's
// certificate. A plain reverse proxy shows that the browser runs them there.
func TestPageOfHostileMemberRunsNoScript(t *testing.T) {
	g, requests := newGateway(t, http.HandlerFunc(hostileMember))
	codes := browse(t, g, g.URL+"/clusters/m/app/page")
	if len(codes) != 1 || codes[0] != "200" || !requests.has("GET /clusters/m/app/page") {
		t.Fatalf("the page is not shown: %v", codes)
	}
	for _, path := range ran {
		if path != "ran-source" && requests.has("GET /clusters/m/app/"+path) {
			t.Errorf("the script %s ran", path)
		}
	}

	control := &log{}
	target := httptest.NewServer(http.HandlerFunc(hostileMember))
	t.Cleanup(target.Close)
	u, err := url.Parse(target.URL)
	if err != nil {
		t.Fatal(err)
	}
	plain := httptest.NewTLSServer(control.wrap(httputil.NewSingleHostReverseProxy(u)))
	t.Cleanup(plain.Close)
	browse(t, g, plain.URL+"/app/page")
	for _, path := range ran {
		if !control.has("GET /app/" + path) {
			t.Errorf("the script %s does not run behind a plain proxy: the test proves nothing", path)
		}
	}
}

// TestPageOfAnotherSiteCannotWrite: another site could write to a cluster with the visitor's certificate.
func TestPageOfAnotherSiteCannotWrite(t *testing.T) {
	g, requests := newGateway(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("the member gets %s %s", r.Method, r.URL.Path)
		}
	}))
	const path = "/clusters/m/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	evil := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<script>fetch("` + g.URL + path + `",
			{method: "POST", mode: "no-cors", credentials: "include", body: new Blob(["{}"])})</script>`))
	}))
	t.Cleanup(evil.Close)
	browse(t, g, strings.Replace(evil.URL, "127.0.0.1", "localhost", 1), g.URL+"/clusters/m/version")
	if !requests.has("POST " + path) {
		t.Error("the browser sends no write: the test proves nothing")
	}
}
