package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	objectsdir "github.com/clusterpass/clusterpass/shared/objects/dir"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/passes/kubeconfig"
	"github.com/clusterpass/clusterpass/shared/pki"
	secretsdir "github.com/clusterpass/clusterpass/shared/secrets/dir"
)

// TestExpiry holds: what is open ends when its credential does, whatever it is. (TestPage holds the same of a token of an OpenID provider.)
func TestExpiry(t *testing.T) {
	withStreamPods(t, "member1")
	const user = "expires"
	granted(t, user)
	k := kubectl{kubeconfig: passFor(t, user), context: "member1"}
	eventually(t, func() bool { return k.run(t, "get", "--raw", "/bridge/clusters/member1/version").code == 0 })
	h := gateway(t)
	data := filepath.Join(h.dir, "data")
	ca, err := pki.LoadCA(filepath.Join(data, "pki"), "client-ca")
	if err != nil {
		t.Fatal(err)
	}
	sec, err := secretsdir.Open(filepath.Join(data, "secrets"))
	if err != nil {
		t.Fatal(err)
	}
	obj, err := objectsdir.Open(filepath.Join(data, "objects"))
	if err != nil {
		t.Fatal(err)
	}
	gw, err := kubeconfig.Read(h.pass)
	if err != nil {
		t.Fatal(err)
	}
	const ttl = time.Hour // these are made nearly as long ago
	pass := func(form v1alpha1.Form) func(t *testing.T, until time.Time) *clientcmdapi.AuthInfo {
		return func(t *testing.T, until time.Time) *clientcmdapi.AuthInfo {
			t.Helper()
			issuer := &passes.Issuer{Objects: obj, Secrets: sec, URL: gw.URL, CA: ca, Now: func() time.Time { return until.Add(-ttl) }}
			p := &v1alpha1.Pass{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("expires-%s-%d", form, until.Unix())}, Spec: v1alpha1.PassSpec{
				User: user, Clusters: []string{"*"}, Verbs: []string{"*"}, TTL: metav1.Duration{Duration: ttl}, Form: form,
			}}
			issued, err := issuer.Create(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			h.note()
			return &clientcmdapi.AuthInfo{Token: string(issued.Token.Reveal()), ClientCertificateData: issued.Certificate, ClientKeyData: issued.Key.Reveal()}
		}
	}
	for name, credential := range map[string]func(t *testing.T, until time.Time) *clientcmdapi.AuthInfo{
		"a pass that is a token":       pass(v1alpha1.Token),
		"a pass that is a certificate": pass(v1alpha1.Certificate),
		"a certificate": func(t *testing.T, until time.Time) *clientcmdapi.AuthInfo {
			t.Helper()
			cert, key, err := ca.ClientUntil(user, nil, until)
			if err != nil {
				t.Fatal(err)
			}
			return &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endsInTime(t, h, credential)
		})
	}
}

// endsInTime opens streams to member1 with a credential that ends soon, and holds that they end then and not before, saying why. On a
// machine that does not open them in time it tries again with one that is good for longer.
func endsInTime(t *testing.T, h *house, credential func(t *testing.T, until time.Time) *clientcmdapi.AuthInfo) {
	t.Helper()
	for life := 6 * time.Second; ; life *= 2 {
		until := time.Now().Add(life).Truncate(time.Second)
		a := credential(t, until)
		pass := passWith(t, h.pass, a)
		noteFiles(pass)
		opened, err := openUntil(t, pass, until)
		if err != nil && (time.Now().Before(until) || life > 5*time.Minute) {
			t.Fatal(err)
		} else if err != nil {
			continue
		}
		for what, end := range opened {
			if err := end(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if early := time.Until(until); early > 0 {
				t.Errorf("%s ends %s before its credential", what, early)
			}
		}
		return
	}
}

// openUntil opens streams and returns, for each, what waits until it ends, for some minutes after a time at most.
func openUntil(t *testing.T, pass string, until time.Time) (map[string]func() error, error) {
	t.Helper()
	const pods = "/api/v1/namespaces/streams/pods"
	k := kubectl{kubeconfig: pass, context: "member1"}
	ends := map[string]func() error{}
	for what, s := range map[string]struct{ path, protocol, first string }{
		"exec":  {pods + "/shell/exec?command=sh&command=-c&command=echo+started%3B+exec+sleep+1000&stdout=1", "v5.channel.k8s.io", "started"},
		"watch": {pods + "?watch=1", "v1.text.clusterpass.io", "ADDED"},
	} {
		conn, resp, err := dialOrigin(t, k, s.path, "", s.protocol)
		if resp != nil && err != nil {
			err = fmt.Errorf("%w: %s", err, resp.Status)
		}
		for got := ""; err == nil && !strings.Contains(got, s.first); {
			var message []byte
			_, message, err = conn.ReadMessage()
			got += string(message)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		_ = conn.SetReadDeadline(until.Add(patience))
		ends[what] = func() error {
			for {
				_, _, err := conn.ReadMessage()
				if websocket.IsCloseError(err, websocket.CloseGoingAway) && strings.Contains(err.Error(), "your credential has expired") {
					return nil
				} else if err != nil {
					return fmt.Errorf("it ends with %w", err)
				}
			}
		}
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", pass)
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithDeadline(t.Context(), until.Add(patience))
	t.Cleanup(cancel)
	root := cfg.Host[:strings.Index(cfg.Host, "/clusters/")]
	for what, prefix := range map[string]string{"watch without websocket": "/clusters/member1", "watch of the fleet": "/apis/cluster.karmada.io/v1alpha1/clusters/*/proxy"} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, root+prefix+pods+"?watch=1", nil)
		if err != nil {
			return nil, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil || resp.StatusCode != http.StatusOK {
			return nil, errors.Join(fmt.Errorf("%s: %s", what, resp.Status), err)
		}
		ends[what] = func() error { _, err := io.Copy(io.Discard, resp.Body); return err }
	}
	return ends, nil
}
