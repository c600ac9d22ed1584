package e2e

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/websocket-bridge/console"
)

// BrowserPage is a user with a web page. It authenticates only by a token in subprotocols of websockets.
type BrowserPage struct {
	Gateway *Gateway
	Issuer  *Issuer
	Addr    string
	CAFile  string // path of the CA of the gateway
	K       Kubectl
	Token   string
}

// ConsoleOrigin is the origin whose pages the gateway of NewBrowserPage allows.
const ConsoleOrigin = "https://console.example.com"

// NewBrowserPage starts a gateway that accepts the tokens of an issuer, for an administrator of member1.
func NewBrowserPage(t *testing.T) *BrowserPage {
	t.Helper()
	const user = "page"
	i := NewIssuer(t, user)
	h := StartGateway(t, t.TempDir(), server.Process, func(cfg *server.Config) {
		cfg.Origins = gateway.Origins{ConsoleOrigin}
		cfg.SignIn = console.SignIn{Issuer: console.Issuer(i.URL), ClientID: clientID, Scopes: []string{"openid"}}
		if err := cfg.Authentication.Decode(i.authentication()); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { h.Stop(); <-h.Stopped })
	if out, err := CLI(t, GrantYAML("member1", user), "apply", "-f", "-", "--store", "dir:"+
		filepath.Join(h.Dir, "data")); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	d := Direct("member1")
	d.Must(t, "create", "clusterrolebinding", user, "--clusterrole=cluster-admin", "--user="+user)
	t.Cleanup(func() { d.Run(t, "delete", "clusterrolebinding", user) })
	waitForAdmin(t, d, user)
	pass, err := clientcmd.BuildConfigFromFlags("", h.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	p := &BrowserPage{Gateway: h, Issuer: i, Addr: HostOf(t, h.Kubeconfig), CAFile: WriteFile(t, string(pass.CAData)),
		Token: i.Token(t, user)}
	p.K = Kubectl{Context: "c", Kubeconfig: WriteFile(t, fmt.Sprintf(
		"{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}], "+
			"contexts: [{name: c, context: {cluster: c}}]}",
		"https://"+p.Addr+"/clusters/member1", base64.StdEncoding.EncodeToString(pass.CAData)))}
	return p
}
