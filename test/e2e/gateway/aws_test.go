package gateway_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestStoresOfAWS: a function must serve clusters that the command line registered, without a read of the stores for
// each request.
func TestStoresOfAWS(t *testing.T) {
	moto, front, credentials := e2e.StartAWS(t)
	region := mototest.Config(front.URL).Region
	t.Setenv("CLUSTERPASS_ALLOW_LOOPBACK", "true")
	admin := func(args ...string) (string, error) { return e2e.CLI(t, "", append(args, "--store", "aws:e2e")...) }
	for range 2 {
		if out, err := admin("init"); err != nil {
			t.Fatalf("%s%v", out, err)
		}
	}
	if out, err := admin("cluster", "add", "member1", "--kubeconfig", e2e.Clusters.KubeconfigFile(), "--context",
		"member1"); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	if n := e2e.NoteSecretsManager(t, moto.URL); n != 1 {
		t.Errorf("Secrets Manager holds %d credentials, want one", n)
	}
	if out, err := admin("cluster", "list"); err != nil || !strings.Contains(out, "member1") {
		t.Errorf("%s%v", out, err)
	}

	pkiDir := t.TempDir()
	ca, err := pki.LoadCA(pkiDir, "client-ca")
	if err != nil {
		t.Fatal(err)
	}
	e2e.NoteFiles(pkiDir)
	env := map[string]string{"CLUSTERPASS_STORE": "aws:e2e", "CLUSTERPASS_CLIENT_CA": string(ca.PEM())}
	for k, v := range credentials {
		env[k] = v
	}
	srv := e2e.ProxyFunction(t, 1, region, env)
	client := ownerClient(t, srv, ca)
	get := func() (code int, body string) {
		t.Helper()
		waittest.Until(t, "function accepts the request", func() bool {
			resp, err := client.Get(srv.URL + "/clusters/member1/version")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			code, body = resp.StatusCode, string(b)
			// The load balancer returns 502 while the only process is not ready for the next request.
			return code != http.StatusBadGateway || !strings.HasPrefix(body, "<html>")
		})
		return code, body
	}
	readsBefore, start := front.Calls("GetSecretValue"), time.Now()
	for range 5 {
		code, body := get()
		var v struct{ GitVersion string }
		if err := json.Unmarshal([]byte(body), &v); err != nil || code != 200 || v.GitVersion == "" {
			t.Fatalf("%d %s", code, body)
		}
	}
	const minCached = 50 * time.Second // how long a secret stays in the cache at least
	if n := front.Calls("GetSecretValue") - readsBefore; n < 1 || n > 1+int(time.Since(start)/minCached) {
		t.Errorf("a cold call and four warm ones asked Secrets Manager %d times", n)
	}
	if n := front.Calls("ListSecrets"); n != 0 {
		t.Errorf("%d lists", n)
	}

	t.Run("first call by a pass", func(t *testing.T) {
		checkFirstCallByPass(t, front, region, env)
	})
	t.Run("while AWS is down", func(t *testing.T) {
		checkOutage(t, front, get)
	})
	t.Run("after it was removed", func(t *testing.T) {
		if out, err := admin("cluster", "remove", "member1"); err != nil {
			t.Fatalf("%s%v", out, err)
		}
		waittest.Until(t, "removed cluster is unknown", func() bool { code, _ := get(); return code == 404 })
	})
	if found := e2e.FindLeaks(e2e.Printed.String()); len(found) > 0 {
		t.Errorf("what was printed shows the secrets of %v", found)
	}
}

func ownerClient(t *testing.T, srv *httptest.Server, ca *pki.CA) *http.Client {
	t.Helper()
	cert, key, err := ca.Client("owner", []string{"system:masters"})
	if err != nil {
		t.Fatal(err)
	}
	e2e.Secrets.Document("the owner's key", key)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	client := srv.Client()
	client.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{pair}
	return client
}

// checkOutage calls the function while AWS refuses all requests. The function must use stale objects.
func checkOutage(t *testing.T, front *mototest.Front, get func() (code int, body string)) {
	t.Helper()
	const objectExpiry = 6 * time.Second // the object's cache entry has expired; the secret's may be valid
	for range 10 {
		if code, body := get(); code != 200 {
			t.Fatalf("%d %s", code, body)
		}
		down, reads := time.Now(), front.Calls("GetItem")
		front.Throttle(1 << 30)
		code, body := 200, ""
		e2e.Within(t, func() bool {
			code, body = get()
			return code != 200 || time.Since(down) >= objectExpiry && front.Calls("GetItem") > reads
		})
		front.Throttle(0)
		if code == 200 {
			return
		}
		// A stale object is used for at most 30 seconds. A busy machine may exceed that, so the test tries again.
		t.Logf("%d %s after %s", code, body, time.Since(down))
		waittest.Until(t, "function serves", func() bool { code, _ := get(); return code == 200 })
	}
	t.Error("nothing serves while AWS is down")
}

// checkFirstCallByPass calls a new function with a pass. It must read the keys and the credential concurrently.
func checkFirstCallByPass(t *testing.T, front *mototest.Front, region string, env map[string]string) {
	t.Helper()
	const gatewayURL = "https://gateway.example.com"
	token, err := e2e.SecretCLI(t, "", "pass", "create", "p", "--user", "ann", "--group", "system:masters", "--gateway",
		gatewayURL, "--output", "token", "--store", "aws:e2e")
	if err != nil {
		t.Fatal(err)
	}
	token = strings.TrimSpace(token)
	e2e.Secrets.Secret("a pass on AWS", token)
	var answers []string
	for range 10 { // a store's timeout may end a round on a busy machine
		stores := newConcurrentAWS(t, front.URL)
		env["AWS_ENDPOINT_URL"], env["CLUSTERPASS_URL"] = stores.URL, gatewayURL
		fn := e2e.ProxyFunction(t, 1, region, env)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fn.URL+"/clusters/member1/version", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := fn.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return
		}
		answers = append(answers, resp.Status+" "+string(body))
	}
	t.Errorf("AWS is not asked for the keys of passes and a cluster's credential at once: %s", answers)
}

// newConcurrentAWS delays reads of pass keys and of a cluster's credential until both were requested.
func newConcurrentAWS(t *testing.T, aws string) *httptest.Server {
	t.Helper()
	backend, err := url.Parse(aws)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(backend)
	proxy.ErrorLog = log.New(io.Discard, "", 0) // clients that went away
	keys, credential := make(chan struct{}), make(chan struct{})
	keysRequested, credentialRequested := sync.OnceFunc(func() { close(keys) }),
		sync.OnceFunc(func() { close(credential) })
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client is gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		other := make(chan struct{})
		switch target := r.Header.Get("X-Amz-Target"); {
		case strings.HasSuffix(target, ".GetSecretValue"):
			credentialRequested()
			other = keys
		case strings.HasSuffix(target, ".GetItem") && bytes.Contains(body, []byte(`"passes"`)):
			keysRequested()
			other = credential
		default:
			close(other)
		}
		select {
		case <-other:
		case <-r.Context().Done():
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv
}
