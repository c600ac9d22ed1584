package console

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/waittest"
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

// shortLife is the life of a token that ends during a test, and not before the sign-in of a busy machine.
const shortLife = 20 * time.Second

// TestTokenIsRenewed fails if the table stops when the token ends, although the issuer renews it. It also fails if the
// page stores a token.
func TestTokenIsRenewed(t *testing.T) {
	p := e2e.NewBrowserPage(t)
	p.Issuer.SetTokenLife(shortLife, true)
	namespace := e2e.NewNamespace(t, "member1")
	client := e2e.DirectClient(t, "member1").CoreV1().ConfigMaps(namespace)
	if _, err := client.Create(t.Context(), configMap("before", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s := start(t, "renew.mjs", p.Gateway.Kubeconfig, "ISSUER="+strings.TrimPrefix(p.Issuer.URL, "https://"),
		"NAMESPACE="+namespace)
	s.step("live")
	end := time.Now().Add(shortLife + 2*time.Second) // the gateway accepts a token for a second more
	waittest.Until(t, "first token has ended and was replaced", func() bool {
		return time.Now().After(end) && p.Issuer.Renewed.Load() > 0
	})
	if _, err := client.Create(t.Context(), configMap("after", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.next("")
	s.end()
	if n := p.Issuer.SignIns.Load(); n != 1 {
		t.Errorf("the browser opened the issuer's page %d times, want once", n)
	}
}

// TestTokenEnds fails if the view is lost when a token ends that the issuer does not renew. It also fails if a sign-in
// at the issuer does not return to the view.
func TestTokenEnds(t *testing.T) {
	p := e2e.NewBrowserPage(t)
	p.Issuer.SetTokenLife(shortLife, false)
	namespace := e2e.NewNamespace(t, "member1")
	if _, err := e2e.DirectClient(t, "member1").CoreV1().ConfigMaps(namespace).Create(t.Context(),
		configMap("before", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s := start(t, "ended.mjs", p.Gateway.Kubeconfig, "ISSUER="+strings.TrimPrefix(p.Issuer.URL, "https://"),
		"NAMESPACE="+namespace)
	s.step("ended")
	p.Issuer.SetTokenLife(time.Hour, false)
	s.next("")
	s.end()
	if n := p.Issuer.SignIns.Load(); n != 2 {
		t.Errorf("the browser opened the issuer's page %d times, want twice", n)
	}
}
