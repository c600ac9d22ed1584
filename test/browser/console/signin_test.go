package console

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestSignInByPass fails if a pasted pass does not sign in, or if the page stores its token. It also fails if the page
// does not ask again once the pass is revoked.
func TestSignInByPass(t *testing.T) {
	name := e2e.UniqueName(t)
	pass := e2e.CreatePass(t, name, "--user", "ann", "--group", "system:masters", "--cluster", "*", "--verb", "*")
	quoted, err := json.Marshal(pass)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, "signin.mjs", e2e.Shared(t).Kubeconfig, "PASS="+string(quoted))
	s.step("signed in")
	if out, err := e2e.CLI(t, "", "pass", "revoke", name); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	s.next("")
	s.end()
}

// TestSignInByOpenIDConnect fails if the console does not sign in at an issuer, does not return to the view of the URL,
// or stores a token.
func TestSignInByOpenIDConnect(t *testing.T) {
	p := e2e.NewBrowserPage(t)
	s := start(t, "oidc.mjs", p.Gateway.Kubeconfig, "ISSUER="+strings.TrimPrefix(p.Issuer.URL, "https://"))
	s.end()
	if n := p.Issuer.SignIns.Load(); n != 2 {
		t.Errorf("the browser opened the issuer's page %d times, want once for each load of the console", n)
	}
}
