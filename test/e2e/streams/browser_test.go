package streams_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

func bearer(token string) string {
	return "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token))
}

// TestPage: only pages of allowed origins may use streams, until their token expires. No member or log may get the
// token.
func TestPage(t *testing.T) {
	p := e2e.NewBrowserPage(t)
	pods := "/api/v1/namespaces/" + e2e.StreamPods(t, []string{"member1"}, "shell", "finite-a") + "/pods"
	const text = "v1.text.clusterpass.io"
	open := func(path, origin string, protocols ...string) (*websocket.Conn, int) {
		t.Helper()
		conn, resp, err := e2e.DialWebsocketFrom(t, p.K, pods+path, origin, protocols...)
		if resp == nil {
			t.Fatal(err)
		}
		if err == nil && conn.Subprotocol() != protocols[0] {
			t.Errorf("%s: protocol %q", path, conn.Subprotocol())
		}
		return conn, resp.StatusCode
	}
	mustOpen := func(path, protocol string) *websocket.Conn {
		t.Helper()
		conn, code := open(path, e2e.ConsoleOrigin, protocol, bearer(p.Token))
		if code != http.StatusSwitchingProtocols {
			t.Fatalf("%s: %d\n%s", path, code, p.Gateway.Log)
		}
		return conn
	}
	if got := readAll(mustOpen("/finite-a/log?follow=true", text)); got != "one|two|three" {
		t.Errorf("log: %q", got)
	}
	if _, event, err := mustOpen("?watch=1&fieldSelector=metadata.name%3Dshell", text).ReadMessage(); err != nil ||
		!strings.HasPrefix(string(event), `{"type":"ADDED"`) {
		t.Errorf("watch: %s, %v", event, err)
	}
	if got := readAll(mustOpen("/shell/exec?command=echo&command=hello&stdout=1", text)); got != "hello\n|" {
		t.Errorf("exec: %q", got)
	}
	if got, end := readChannels(mustOpen("/shell/exec?command=echo&command=hello&stdout=1", "v5.channel.k8s.io"),
		asIs); got[1] != "hello\n" {
		t.Errorf("exec: %q, %s", got, end)
	}

	for name, tt := range map[string]struct {
		origin    string
		protocols []string
		want      int
	}{
		"a foreign page": {"https://evil.example.com", []string{text, bearer(p.Token)},
			http.StatusForbidden},
		"a foreign page, kubectl's way": {"https://evil.example.com", []string{"v5.channel.k8s.io", bearer(p.Token)},
			http.StatusForbidden},
		"the page on another port": {e2e.ConsoleOrigin + ":8443", []string{text, bearer(p.Token)},
			http.StatusForbidden},
		"no token": {e2e.ConsoleOrigin, []string{text}, http.StatusUnauthorized},
		"a token that somebody else signed": {e2e.ConsoleOrigin,
			[]string{text, bearer(e2e.NewIssuer(t, "page").Token(t, "page"))}, http.StatusUnauthorized},
		"a token of nobody who may": {e2e.ConsoleOrigin, []string{text, bearer(strings.Replace(p.Token, ".", "x.", 1))},
			http.StatusUnauthorized},
		"nothing but the token": {e2e.ConsoleOrigin, []string{bearer(p.Token)}, http.StatusUnauthorized},
	} {
		if _, code := open("/shell/exec?command=true&stdout=1", tt.origin, tt.protocols...); code != tt.want {
			t.Errorf("%s: %d, want %d", name, code, tt.want)
		}
	}
	// The gateway must not forward the token, because the member could use it here.
	for _, args := range [][]string{{"apply", "-f", "-"},
		{"cluster", "add", "own", "--kubeconfig", e2e.Clusters.KubeconfigFile(), "--context", "member1", "--identity",
			"passthrough"}} {
		if out, err := e2e.CLI(t, e2e.GrantYAML("own", "page"),
			append(args, "--store", "dir:"+filepath.Join(p.Gateway.Dir, "data"))...); err != nil {
			t.Fatalf("%s%v", out, err)
		}
	}
	const refusal = `403 cluster "own" needs one of its own bearer tokens; your credential for the gateway (oidc) is ` +
		`not forwarded`
	waittest.Until(t, "token is refused for a passthrough cluster", func() bool {
		return e2e.StatusOf(t, p.Gateway.Kubeconfig, "/clusters/own/version", &p.Token) == refusal
	})
	e2e.CheckStreamsExpire(t, p.Gateway, func(t *testing.T, until time.Time) *clientcmdapi.AuthInfo {
		t.Helper()
		return &clientcmdapi.AuthInfo{Token: p.Issuer.TokenUntil(t, "page", until)}
	})
	if found := e2e.FindLeaks(p.Gateway.Log.String()); len(found) > 0 {
		t.Errorf("the log shows the secrets of %v", found)
	}
}

// TestOwnToken: pages must use clusters with identity passthrough, with exactly the rights of their token.
func TestOwnToken(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell")
	d := e2e.Direct("member1")
	d.Must(t, "-n", ns, "create", "serviceaccount", "own-token")
	d.Must(t, "-n", ns, "create", "rolebinding", "own-token", "--clusterrole=admin", "--serviceaccount="+ns+":own-token")
	waittest.Until(t, "member knows the binding", func() bool {
		return d.Run(t, "auth", "can-i", "create", "pods/exec", "-n", ns, "--as", "system:serviceaccount:"+ns+
			":own-token").Code == 0
	})
	token := strings.TrimSpace(d.Must(t, "-n", ns, "create", "token", "own-token"))
	e2e.Secrets.Secret("the page's token", token)
	if out, err := e2e.CLI(t, "", "cluster", "add", "own-token", "--kubeconfig", e2e.Clusters.KubeconfigFile(),
		"--context", "member1", "--identity", "passthrough"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = e2e.CLI(t, "", "cluster", "remove", "own-token") })
	pass, err := clientcmd.BuildConfigFromFlags("", e2e.Shared(t).Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	k := e2e.Kubectl{Context: "c", Kubeconfig: e2e.WriteFile(t, fmt.Sprintf(
		"{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}], "+
			"contexts: [{name: c, context: {cluster: c}}]}",
		"https://"+e2e.HostOf(t, e2e.Shared(t).Kubeconfig)+"/clusters/own-token",
		base64.StdEncoding.EncodeToString(pass.CAData)))}
	conn := e2e.DialWebsocket(t, k, "/api/v1/namespaces/"+ns+"/pods/shell/exec?command=echo&command=hello&stdout=1",
		"v1.text.clusterpass.io", bearer(token))
	if got := readAll(conn); got != "hello\n|" {
		t.Errorf("exec: %q", got)
	}
	_, resp, _ := e2e.DialWebsocketFrom(t, k, "/api/v1/namespaces/kube-system/pods?watch=1", "", "v1.text.clusterpass.io",
		bearer(token))
	if resp == nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("what the member does not allow: %v", resp)
	}
}

// TestPythonExample: the example of docs/guide/streams.md must work.
func TestPythonExample(t *testing.T) {
	python, err := mototest.Python("websockets")
	if err != nil {
		t.Fatal(err)
	}
	s := e2e.StartExample(t, "python", python, "-c")
	s.Line("web says")
	s.Line("ADDED")
	s.Line("{'stdout': 'hello\\n'}")
	s.Line("{'exit': {'code': 0}}")
	if code := s.ExitCode(); code != 0 {
		t.Errorf("exit %d\n%s", code, s.Stderr)
	}
}
