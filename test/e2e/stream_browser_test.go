package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
)

// page is a browser's way to a gateway: no client certificate, no header, only what goes into a websocket's subprotocols.
type page struct {
	house  *house
	issuer *issuer
	addr   string
	ca     string // path
	k      kubectl
	token  string
}

const console = "https://console.example.com"

// newPage starts a gateway that takes the tokens of an issuer, and makes a user who may do everything with member1.
func newPage(t *testing.T) *page {
	t.Helper()
	withStreamPods(t, "member1")
	const user = "page"
	i := newIssuer(t, user)
	h := start(t, t.TempDir(), server.Process, func(cfg *server.Config) {
		cfg.Origins = []string{console}
		if err := cfg.Authentication.Decode(i.authentication()); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { h.stop(); <-h.stopped })
	if out, err := cli(t, grantOf(user), "apply", "-f", "-", "--store", "dir:"+filepath.Join(h.dir, "data")); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	d := direct("member1")
	d.must(t, "create", "clusterrolebinding", user, "--clusterrole=cluster-admin", "--user="+user)
	t.Cleanup(func() { d.run(t, "delete", "clusterrolebinding", user) })
	isAdmin(t, d, user)
	pass, err := clientcmd.BuildConfigFromFlags("", h.pass)
	if err != nil {
		t.Fatal(err)
	}
	p := &page{house: h, issuer: i, addr: host(t, h.pass), ca: write(t, string(pass.CAData)), token: i.token(t, user)}
	p.k = kubectl{context: "c", kubeconfig: write(t, fmt.Sprintf(
		"{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}], contexts: [{name: c, context: {cluster: c}}]}",
		"https://"+p.addr+"/clusters/member1", base64.StdEncoding.EncodeToString(pass.CAData)))}
	return p
}

func bearer(token string) string {
	return "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token))
}

// TestPage holds: through the front door, with nothing but the token in its subprotocol, a page of an allowed origin follows a log,
// watches and runs commands, in our protocol and in Kubernetes' own, until the token ends; nobody else does; and the token goes nowhere.
func TestPage(t *testing.T) {
	p := newPage(t)
	const pods = "/api/v1/namespaces/streams/pods"
	const text = "v1.text.clusterpass.io"
	open := func(path, origin string, protocols ...string) (*websocket.Conn, int) {
		t.Helper()
		conn, resp, err := dialOrigin(t, p.k, pods+path, origin, protocols...)
		if resp == nil {
			t.Fatal(err)
		}
		if err == nil && conn.Subprotocol() != protocols[0] {
			t.Errorf("%s: protocol %q", path, conn.Subprotocol())
		}
		return conn, resp.StatusCode
	}
	must := func(path, protocol string) *websocket.Conn {
		t.Helper()
		conn, code := open(path, console, protocol, bearer(p.token))
		if code != http.StatusSwitchingProtocols {
			t.Fatalf("%s: %d\n%s", path, code, p.house.log)
		}
		return conn
	}
	if got := read(must("/finite-a/log?follow=true", text)); got != "one|two|three" {
		t.Errorf("log: %q", got)
	}
	if _, event, err := must("?watch=1&fieldSelector=metadata.name%3Dshell", text).ReadMessage(); err != nil || !strings.HasPrefix(string(event), `{"type":"ADDED"`) {
		t.Errorf("watch: %s, %v", event, err)
	}
	if got := read(must("/shell/exec?command=echo&command=hello&stdout=1", text)); got != "hello\n|" {
		t.Errorf("exec: %q", got)
	}
	if got, end := answers(must("/shell/exec?command=echo&command=hello&stdout=1", "v5.channel.k8s.io"), asIs); got[1] != "hello\n" {
		t.Errorf("exec: %q, %s", got, end)
	}

	for name, tt := range map[string]struct {
		origin    string
		protocols []string
		want      int
	}{
		"a foreign page":                    {"https://evil.example.com", []string{text, bearer(p.token)}, http.StatusForbidden},
		"a foreign page, kubectl's way":     {"https://evil.example.com", []string{"v5.channel.k8s.io", bearer(p.token)}, http.StatusForbidden},
		"the page on another port":          {console + ":8443", []string{text, bearer(p.token)}, http.StatusForbidden},
		"no token":                          {console, []string{text}, http.StatusUnauthorized},
		"a token that somebody else signed": {console, []string{text, bearer(newIssuer(t, "page").token(t, "page"))}, http.StatusUnauthorized},
		"a token of nobody who may":         {console, []string{text, bearer(strings.Replace(p.token, ".", "x.", 1))}, http.StatusUnauthorized},
		"nothing but the token":             {console, []string{bearer(p.token)}, http.StatusUnauthorized},
	} {
		if _, code := open("/shell/exec?command=true&stdout=1", tt.origin, tt.protocols...); code != tt.want {
			t.Errorf("%s: %d, want %d", name, code, tt.want)
		}
	}
	// The token is for the gateway: a member that got it could use it here.
	for _, args := range [][]string{{"apply", "-f", "-"}, {"cluster", "add", "own", "--kubeconfig", clusters.KubeconfigFile(), "--context", "member1", "--identity", "passthrough"}} {
		if out, err := cli(t, grantOn("own", "page"), append(args, "--store", "dir:"+filepath.Join(p.house.dir, "data"))...); err != nil {
			t.Fatalf("%s%v", out, err)
		}
	}
	const refusal = `403 cluster "own" takes a bearer token of its own; what identifies you to the gateway (oidc) is not passed on`
	eventually(t, func() bool { return asked(t, p.house.pass, "/clusters/own/version", &p.token) == refusal })
	endsInTime(t, p.house, func(t *testing.T, until time.Time) *clientcmdapi.AuthInfo {
		t.Helper()
		return &clientcmdapi.AuthInfo{Token: p.issuer.tokenUntil(t, "page", until)}
	})
	if found := leaks(p.house.log.String()); len(found) > 0 {
		t.Errorf("the log shows the secrets of %v", found)
	}
}

// TestOwnToken holds: in a cluster of identity passthrough, the token in the subprotocol is the member's own, and it alone counts.
func TestOwnToken(t *testing.T) {
	withStreamPods(t, "member1")
	d := direct("member1")
	d.must(t, "-n", "streams", "create", "serviceaccount", "own-token")
	t.Cleanup(func() { d.run(t, "-n", "streams", "delete", "serviceaccount,rolebinding", "own-token") })
	d.must(t, "-n", "streams", "create", "rolebinding", "own-token", "--clusterrole=admin", "--serviceaccount=streams:own-token")
	eventually(t, func() bool { // the member knows the binding
		return d.run(t, "auth", "can-i", "create", "pods/exec", "-n", "streams", "--as", "system:serviceaccount:streams:own-token").code == 0
	})
	token := strings.TrimSpace(d.must(t, "-n", "streams", "create", "token", "own-token"))
	made.Secret("the page's token", token)
	if out, err := cli(t, "", "cluster", "add", "own-token", "--kubeconfig", clusters.KubeconfigFile(), "--context", "member1", "--identity", "passthrough"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	t.Cleanup(func() { _, _ = cli(t, "", "cluster", "remove", "own-token") })
	pass, err := clientcmd.BuildConfigFromFlags("", gateway(t).pass)
	if err != nil {
		t.Fatal(err)
	}
	k := kubectl{context: "c", kubeconfig: write(t, fmt.Sprintf(
		"{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}], contexts: [{name: c, context: {cluster: c}}]}",
		"https://"+host(t, gateway(t).pass)+"/clusters/own-token", base64.StdEncoding.EncodeToString(pass.CAData)))}
	conn := dial(t, k, "/api/v1/namespaces/streams/pods/shell/exec?command=echo&command=hello&stdout=1", "v1.text.clusterpass.io", bearer(token))
	if got := read(conn); got != "hello\n|" {
		t.Errorf("exec: %q", got)
	}
	_, resp, _ := dialOrigin(t, k, "/api/v1/namespaces/kube-system/pods?watch=1", "", "v1.text.clusterpass.io", bearer(token))
	if resp == nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("what the member does not allow: %v", resp)
	}
}

// example is the first block of code in docs/streams.md in a language.
func example(t *testing.T, language string) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/streams.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(doc)
	if m == nil {
		t.Fatalf("docs/streams.md has no example in %s", language)
	}
	return string(m[1])
}

const webYAML = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: web, image: any, command: [sh, -c, 'i=0; while sleep 0.2; do echo "web says $i"; i=$((i+1)); done']}]
`

// TestExamples runs the examples of docs/streams.md as they stand there, but for the gateway's address.
func TestExamples(t *testing.T) {
	p := newPage(t)
	d := direct("member1")
	d.must(t, "apply", "-f", write(t, webYAML))
	t.Cleanup(func() { d.run(t, "delete", "pod", "web", "-n", "default") })
	d.must(t, "wait", "-n", "default", "--for=condition=Ready", "pod/web", "--timeout=4m")
	here := strings.NewReplacer("gateway.example.com", p.addr, "ca.pem", p.ca)
	run := func(t *testing.T, interpreter string, args ...string) *session {
		t.Helper()
		if _, err := exec.LookPath(interpreter); err != nil {
			t.Fatalf("%v; README.md says what the tests need", err)
		}
		return begin(t, interpreter, func(ctx context.Context) *exec.Cmd {
			cmd := exec.CommandContext(ctx, interpreter, args...)
			cmd.Env = append(os.Environ(), "TOKEN="+p.token, "NODE_EXTRA_CA_CERTS="+p.ca)
			return cmd
		})
	}
	t.Run("JavaScript", func(t *testing.T) {
		script := "const pass = process.env.TOKEN;\n" + here.Replace(example(t, "js"))
		s := run(t, "node", "--experimental-websocket", "--no-warnings", "--eval", script)
		wanted := map[string]bool{"web says": false, "ADDED": false, "{ stdout: 'hello' }": false, "{ exit: { code: 0 } }": false, "1000": false}
		for left := len(wanted); left > 0; {
			line := s.wants("all of them", func(string) bool { return true })
			for want, seen := range wanted {
				if !seen && strings.Contains(line, want) {
					wanted[want] = true
					left--
				}
			}
		}
	})
	t.Run("Python", func(t *testing.T) {
		python, err := mototest.Python("websockets")
		if err != nil {
			t.Fatal(err)
		}
		s := run(t, python, "-c", "import os\ntoken = os.environ['TOKEN']\n"+here.Replace(example(t, "python")))
		s.line("web says")
		s.line("ADDED")
		s.line("{'stdout': 'hello\\n'}")
		s.line("{'exit': {'code': 0}}")
		if code := s.ends(); code != 0 {
			t.Errorf("exit %d\n%s", code, s.errOut)
		}
	})
}
