package streams_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"

	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/registration"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// registerOldMember registers a proxy of member1 that refuses websockets. It returns kubectl for it, and the number of
// refusals.
func registerOldMember(t *testing.T, name string) (e2e.Kubectl, *atomic.Int64) {
	t.Helper()
	cfg := e2e.Clusters.Cluster("member1").RESTConfig()
	cfg.NextProtos = []string{"http/1.1"}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	var refused atomic.Int64
	rp := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler,
		0), Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Header.Del("Authorization")
	}}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			refused.Add(1)
			http.Error(w, "no websockets here", http.StatusForbidden)
			return
		}
		rp.ServeHTTP(w, r)
	}))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	st, err := stores.Open(t.Context(), stores.Address{Kind: "dir", Where: filepath.Join(e2e.Shared(t).Dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	reg := registration.Registrar{Secrets: st.Secrets, Objects: st.Objects,
		Policy: cluster.DialPolicy{AllowLoopback: true}}
	_, err = reg.Register(t.Context(), registration.Request{Name: name, Replace: true, Identity: "impersonate",
		SkipCheck: true, Kubeconfig: secrets.NewValue(fmt.Appendf(nil,
			`{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %q}}], users: [{name: u, user: {token: any}}]}`,
			srv.URL, base64.StdEncoding.EncodeToString(ca)))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = e2e.CLI(t, "", "cluster", "remove", name) })
	pass, err := os.ReadFile(e2e.Shared(t).Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "pass")
	if err := os.WriteFile(path, bytes.ReplaceAll(pass, []byte("/clusters/member1"), []byte("/clusters/"+name)),
		0o600); err != nil {
		t.Fatal(err)
	}
	return e2e.Kubectl{Kubeconfig: path, Context: "member1", Env: e2e.Dialects[0].Env}, &refused
}

// kubeletText removes the text that kube-apiserver's translation of v5 adds to the kubelet's errors.
var kubeletText = strings.NewReplacer(
	`"metadata":{},`, "", "command terminated with exit code", "exit code",
	"Internal error occurred: Internal error occurred:", "Internal error occurred:",
)

// TestOldMember: current clients must use clusters without websockets. The gateway must remember such clusters.
func TestOldMember(t *testing.T) {
	start := time.Now()
	ns := e2e.StreamPods(t, []string{"member1"}, "shell", "reader")
	k, refused := registerOldMember(t, "old")
	exec := func(query url.Values) string {
		return "/api/v1/namespaces/" + ns + "/pods/shell/exec?" + query.Encode()
	}
	failing := exec(url.Values{"command": {"sh", "-c", "read x; echo got $x; echo bad >&2; exit 3"}, "stdout": {"1"},
		"stderr": {"1"}, "stdin": {"1"}})
	for _, tt := range []struct {
		protocol string
		stdin    byte
		encode   func([]byte) string
		decode   func([]byte) []byte
	}{
		{"v5.channel.k8s.io", 0, func(b []byte) string { return string(b) }, asIs},
		{"v4.channel.k8s.io", 0, func(b []byte) string { return string(b) }, asIs},
		{"v4.base64.channel.k8s.io", '0', base64.StdEncoding.EncodeToString, fromBase64},
		{"channel.k8s.io", 0, func(b []byte) string { return string(b) }, asIs},
		{"base64.channel.k8s.io", '0', base64.StdEncoding.EncodeToString, fromBase64},
	} {
		t.Run(tt.protocol, func(t *testing.T) {
			var got [2]string
			for i, k := range []e2e.Kubectl{e2e.Direct("member1"), k} {
				conn := e2e.DialWebsocket(t, k, failing, tt.protocol)
				if err := conn.WriteMessage(websocket.BinaryMessage,
					append([]byte{tt.stdin}, tt.encode([]byte("hello\n"))...)); err != nil {
					t.Fatal(err)
				}
				channels, _ := readChannels(conn, tt.decode)
				got[i] = fmt.Sprint(conn.Subprotocol(), channels)
			}
			if got[0] = kubeletText.Replace(got[0]); got[0] != got[1] || !strings.Contains(got[1], "got hello") {
				t.Errorf("directly: %s\ntranslated: %s", got[0], got[1])
			}
		})
	}
	t.Run("kubectl", func(t *testing.T) {
		checkOldMemberCommands(t, k, ns)
	})
	t.Run("transfer", func(t *testing.T) {
		data := make([]byte, 30<<20)
		_, _ = rand.Read(data)
		r := k.RunWith(t, e2e.Clusters.BuiltKubectl(), bytes.NewReader(data), "-n", ns, "exec", "-i", "shell", "--", "cat")
		if r.Code != 0 || r.Stdout != string(data) {
			t.Errorf("exec: exit %d, %d of %d bytes\n%s", r.Code, len(r.Stdout), len(data), r.Stderr)
		}
		_, addr := e2e.PortForward(t, k, e2e.Clusters.BuiltKubectl(), ns, e2e.EchoServer(t))
		for range 2 {
			if got, err := e2e.RoundTrip(addr, data); err != nil || !bytes.Equal(got, data) {
				t.Errorf("port-forward: %d of %d bytes, %v", len(got), len(data), err)
			}
		}
	})
	const remembered = 5 * time.Minute // how long the gateway remembers that a member has no websockets
	// One each for exec, attach, port-forward and an unknown pod.
	if n := refused.Load(); n > 4*(1+int64(time.Since(start)/remembered)) {
		t.Errorf("the member was asked for websockets %d times", n)
	}
}

func checkOldMemberCommands(t *testing.T, k e2e.Kubectl, ns string) {
	t.Helper()
	d := e2e.Direct("member1")
	for _, tt := range []struct {
		stdin string
		args  []string
	}{
		{"", []string{"exec", "shell", "--", "sh", "-c", "echo out; echo err >&2; exit 7"}},
		{"one\ntwo\n", []string{"exec", "-i", "shell", "--", "cat"}},
		{"unread", []string{"exec", "-i", "shell", "--", "true"}},
		{"", []string{"exec", "nosuchpod", "--", "true"}},
		{"", []string{"exec", "shell", "--", "nosuchcommand"}},
	} {
		args := append([]string{"-n", ns}, tt.args...)
		var dr, gr e2e.Result
		runBoth := func() bool {
			dr, gr = d.RunWith(t, e2e.Clusters.BuiltKubectl(), strings.NewReader(tt.stdin), args...),
				k.RunWith(t, e2e.Clusters.BuiltKubectl(), strings.NewReader(tt.stdin), args...)
			return dr.Code == gr.Code && dr.Stdout == gr.Stdout &&
				kubeletText.Replace(e2e.Normalize(dr.Stderr)) == kubeletText.Replace(e2e.Normalize(gr.Stderr))
		}
		equal := runBoth()
		// By SPDY, kube-apiserver may lose the exit code of a command that ends before its stdin.
		for deadline := time.Now().Add(e2e.Patience); !equal && time.Now().Before(deadline) && tt.stdin == "unread"; {
			equal = runBoth()
		}
		if !equal {
			t.Errorf("kubectl %v\ndirectly: %v\ntranslated: %v", args, dr, gr)
		}
	}
	attach := k.Start(t, e2e.Clusters.BuiltKubectl(), "-n", ns, "attach", "-i", "reader")
	_, _ = fmt.Fprintln(attach.Stdin, "translated")
	attach.Line("got translated")
}
