package gateway_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestEveryFormOfOneCluster: clients of Karmada, Karpor and Kusion must reach the cluster of their URL.
func TestEveryFormOfOneCluster(t *testing.T) {
	client, root := e2e.Caller(t)
	k := e2e.Through(t, "member2")
	for _, form := range []string{
		"/clusters/member2",
		"/apis/cluster.karmada.io/v1alpha1/clusters/member2/proxy",
		"/apis/cluster.karpor.io/v1beta1/clusters/member2/proxy",
		"/apis/kusionstack.io/Cluster/member2/proxy",
		"/member2",
		"/bridge/clusters/member2",
		"/bridge/member2",
	} {
		t.Run(form, func(t *testing.T) {
			resp, err := client.Get(root + form + "/api/v1/namespaces/kube-system")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var ns metav1.PartialObjectMetadata
			if err := json.NewDecoder(resp.Body).Decode(&ns); err != nil || ns.Name != "kube-system" {
				t.Errorf("%s: %+v, %v", resp.Status, ns, err)
			}
			want := e2e.Direct("member2").Must(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}")
			if string(ns.UID) != want {
				t.Errorf("uid %s, want member2's, %s", ns.UID, want)
			}
			if got := k.Must(t, "--server", root+form, "get", "namespace", "kube-system", "-o",
				"jsonpath={.metadata.uid}"); got != want {
				t.Errorf("kubectl: uid %s, want member2's, %s", got, want)
			}
			version := e2e.Direct("member2").Must(t, "get", "--raw", "/version")
			for which, bin := range e2e.Kubectls() {
				if got := k.RunWith(t, bin, nil, "get", "--raw", form+"/version"); got.Stdout != version {
					t.Errorf("kubectl %s: version %v", which, got)
				}
			}
		})
	}
}

func TestAnonymousRequestsAreRefused(t *testing.T) {
	_, root := e2e.Caller(t)
	cfg, err := clientcmd.BuildConfigFromFlags("", e2e.Shared(t).Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	bare := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: tlsConfig.RootCAs}}}
	defer bare.CloseIdleConnections()
	for _, path := range []string{"/clusters/member1/version", "/bridge/clusters/member1/version", "/member1/api",
		"/version", "/"} {
		resp, err := bare.Get(root + path)
		if err != nil {
			t.Fatal(err)
		}
		var st metav1.Status
		err = json.NewDecoder(resp.Body).Decode(&st)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != 401 || st.Reason != metav1.StatusReasonUnauthorized ||
			!strings.Contains(st.Message, "client certificate") {
			t.Errorf("%s: %s %+v, %v", path, resp.Status, st, err)
		}
	}
	// The load balancer removes the client's header for certificates.
	req, err := http.NewRequest("GET", root+"/clusters/member1/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Amzn-Mtls-Clientcert", url.PathEscape(string(cfg.CertData)))
	resp, err := bare.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 401 {
		t.Errorf("a claimed certificate: %s", resp.Status)
	}
}

// createConfigMaps returns a new namespace of member1 with ConfigMaps of about size bytes in total.
func createConfigMaps(t *testing.T, size int) string {
	t.Helper()
	k, namespace := e2e.Direct("member1"), e2e.NewNamespace(t, "member1")
	var all strings.Builder
	for i := 0; size > 0; i++ {
		random := make([]byte, 200_000)
		_, _ = rand.Read(random)
		all.WriteString("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: big-" + strconv.Itoa(i) + ", namespace: " +
			namespace + "}\ndata: {a: " + hex.EncodeToString(random) + "}\n")
		size -= 400_000
	}
	k.Stdin = strings.NewReader(all.String())
	k.Must(t, "create", "-f", "-")
	return namespace
}

// TestLargeAnswer: kubectl must read lists that are too large for a function, which redirects to the bridge.
func TestLargeAnswer(t *testing.T) {
	const size = 20_000_000
	ns := createConfigMaps(t, size)
	d := e2e.Direct("member1").Must(t, "get", "configmaps", "-n", ns, "-o", "json")
	for version, bin := range e2e.Kubectls() {
		g := e2e.Through(t, "member1").RunWith(t, bin, nil, "get", "configmaps", "-n", ns, "-o", "json")
		if d != g.Stdout || len(d) < size || g.Code != 0 || g.Stderr != "" {
			t.Errorf("kubectl %s: directly %d bytes, through the gateway %d, exit %d\n%s", version, len(d), len(g.Stdout),
				g.Code, g.Stderr)
		}
	}
	client, root := e2e.Caller(t)
	pass, err := clientcmd.BuildConfigFromFlags("", e2e.Shared(t).Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	curl := func(flags ...string) []byte {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, "curl", append(flags, "--silent", "--show-error",
			"--cacert", e2e.WriteFile(t, string(pass.CAData)), "--cert", e2e.WriteFile(t, string(pass.CertData)), "--key",
			e2e.WriteFile(t, string(pass.KeyData)),
			root+"/clusters/member1/api/v1/namespaces/"+ns+"/configmaps")...).Output()
		if err != nil {
			t.Fatalf("curl: %v; README.md says what the tests need", err)
		}
		return out
	}
	var st metav1.Status
	if err := json.Unmarshal(curl(), &st); err != nil || st.Kind != "Status" ||
		!strings.Contains(st.Message, "/bridge/clusters/member1/api/v1/namespaces/"+ns+"/configmaps") {
		t.Errorf("curl: %+v, %v", st, err)
	}
	var list metav1.PartialObjectMetadataList
	// The list also has the ConfigMap of the cluster's CA.
	if err := json.Unmarshal(curl("--location"), &list); err != nil || len(list.Items) != size/400_000+1 {
		t.Errorf("curl --location: %d objects, %v", len(list.Items), err)
	}
	// The function redirects the second request without a request to the member.
	for range 2 {
		resp, err := client.Get(root + "/clusters/member1/api/v1/namespaces/" + ns + "/configmaps")
		if err != nil {
			t.Fatal(err)
		}
		var st metav1.Status
		err = json.NewDecoder(resp.Body).Decode(&st)
		_ = resp.Body.Close()
		want := "/bridge/clusters/member1/api/v1/namespaces/" + ns + "/configmaps"
		if err != nil || resp.StatusCode != 307 || resp.Header.Get("Location") != want ||
			!strings.Contains(st.Message, want) {
			t.Errorf("%s to %s: %+v, %v", resp.Status, resp.Header.Get("Location"), st, err)
		}
	}
}

// TestLargeWrites: a large write must not be lost or made twice.
func TestLargeWrites(t *testing.T) {
	ns := createConfigMaps(t, 400_000)
	file := func(n int) string {
		random := make([]byte, n/2)
		_, _ = rand.Read(random)
		path := filepath.Join(t.TempDir(), "blob")
		if err := os.WriteFile(path, []byte(hex.EncodeToString(random)), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	g, d := e2e.Through(t, "member1"), e2e.Direct("member1")
	t.Run("a body that fits nowhere but in the bridge", func(t *testing.T) {
		g.Must(t, "create", "configmap", "m", "-n", ns, "--from-file=a="+file(1_000_000))
		if n := len(d.Must(t, "get", "configmap", "m", "-n", ns, "-o", "jsonpath={.data.a}")); n != 1_000_000 {
			t.Errorf("%d bytes arrived", n)
		}
	})
	t.Run("an object that the member refuses", func(t *testing.T) {
		args := []string{"create", "configmap", "too-large", "-n", ns, "--from-file=a=" + file(3_000_000)}
		dr, gr := d.Run(t, args...), g.Run(t, args...)
		if dr.Code == 0 || dr.Code != gr.Code || dr.Stderr != gr.Stderr {
			t.Errorf("directly: %.300v\nthrough the gateway: %.300v", dr, gr)
		}
	})
	t.Run("a small patch with a large answer is made once", func(t *testing.T) {
		// The member has made the write when its response proves too large for the function.
		before := d.Must(t, "get", "configmap", "m", "-n", ns, "-o", "jsonpath={.metadata.resourceVersion}")
		patch := filepath.Join(t.TempDir(), "patch")
		if err := os.WriteFile(patch, []byte(`[{"op":"add","path":"/data/b","value":"`+strings.Repeat("b", 40_000)+`"}]`),
			0o600); err != nil {
			t.Fatal(err)
		}
		g.Must(t, "patch", "configmap", "m", "-n", ns, "--type=json", "--patch-file", patch)
		n := d.Must(t, "get", "configmap", "m", "-n", ns, "-o", "jsonpath={.data.b}")
		managed := d.Must(t, "get", "configmap", "m", "-n", ns, "--show-managed-fields", "-o",
			"jsonpath={.metadata.managedFields[*].manager}")
		after := d.Must(t, "get", "configmap", "m", "-n", ns, "-o", "jsonpath={.metadata.resourceVersion}")
		if len(n) != 40_000 || before == after {
			t.Errorf("%d bytes arrived, resourceVersion %s then %s, managers %s", len(n), before, after, managed)
		}
		g.Must(t, "delete", "configmap", "m", "-n", ns)
	})
}

// TestFrozenFunctionsAndRestarts: after a member's restart, no request may fail on a dead connection, and no write be
// made twice.
func TestFrozenFunctionsAndRestarts(t *testing.T) {
	set := cluster.Start(t, cluster.Options{Clusters: []string{"member3"}, NoKubelet: true})
	member := set.Cluster("member3")
	_ = e2e.Shared(t)
	e2e.Register(t, "member3", member.Kubeconfig())
	client, root := e2e.Caller(t)
	create := func(name string) (int, string) {
		body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"}}`
		resp, err := client.Post(root+"/clusters/member3/api/v1/namespaces/default/configmaps", "application/json",
			strings.NewReader(body))
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	if code, body := create("warm"); code != 201 {
		t.Fatalf("%d %s", code, body)
	}
	for i := range 3 {
		if err := member.Restart(t.Context(), cluster.APIServer); err != nil {
			t.Fatal(err)
		}
		// Each frozen process has a dead connection now. The requests use all processes.
		var wg sync.WaitGroup
		for j := range 8 {
			wg.Go(func() {
				name := "c-" + string(rune('a'+i)) + string(rune('a'+j))
				if code, body := create(name); code != 201 {
					t.Errorf("after restart %d: %d %s", i, code, body)
				}
			})
		}
		wg.Wait()
	}
	got := e2e.Kubectl{Kubeconfig: member.KubeconfigFile(), Context: "member3"}.Must(t, "get", "configmaps", "-o", "name")
	if n := strings.Count(got, "configmap/c-"); n != 24 {
		t.Errorf("24 writes made %d objects", n)
	}
	t.Run("while it is down", func(t *testing.T) {
		if err := member.Kill(t.Context(), cluster.APIServer); err != nil {
			t.Fatal(err)
		}
		code, body := create("down")
		if code != 502 || !strings.Contains(body, `cluster \"member3\" is unreachable`) {
			t.Errorf("%d %s", code, body)
		}
		if err := member.Restart(t.Context(), cluster.APIServer); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("while it hangs", func(t *testing.T) {
		if err := member.Pause(t.Context(), cluster.APIServer); err != nil {
			t.Fatal(err)
		}
		var code int
		var body string
		for range 5 { // a function that is frozen at its deadline returns no response
			if code, body = create("hangs"); code == 504 && strings.Contains(body, `cluster \"member3\"`) {
				break
			}
			t.Logf("%d %s", code, body)
		}
		if code != 504 || !strings.Contains(body, `cluster \"member3\"`) {
			t.Errorf("%d %s", code, body)
		}
		if err := member.Resume(t.Context(), cluster.APIServer); err != nil {
			t.Fatal(err)
		}
	})
}

// TestUnusualRequests: the gateway must not change the member's response or its headers.
func TestUnusualRequests(t *testing.T) {
	client, root := e2e.Caller(t)
	for _, tt := range []struct {
		method, path, body string
		header             http.Header
		code               int
	}{
		{"GET", "/readyz", "", nil, 200},
		{"HEAD", "/api/v1/namespaces/default", "", nil, 405},
		{"OPTIONS", "/api/v1", "", nil, 405},
		{"GET", "/api/v1/namespaces/default/configmaps?limit=1&limit=2", "", nil, 200},
		{"GET", "/api/v1/namespaces/default/configmaps/a%2Fb", "", nil, 404},
		{"GET", "/api/v1/namespaces/default/configmaps/a%3Ab", "", nil, 404},
		{"GET", "/api/v1/namespaces/default/pods", "",
			http.Header{"Accept": {"application/json;as=Table;v=v1;g=meta.k8s.io", "application/json"}}, 200},
		{"GET", "/api/v1/namespaces/default/configmaps", "", http.Header{"Accept": {"application/vnd.kubernetes.protobuf"}},
			200},
		{"GET", "/api/v1/namespaces?limit=1", "", http.Header{"Accept-Encoding": {"gzip"}}, 200},
		{"POST", "/api/v1/namespaces/default/configmaps", "", nil, 400},
		{"POST", "/api/v1/namespaces/default/configmaps", "{", http.Header{"Content-Type": {"application/json"}}, 400},
	} {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			response := func(c *http.Client, base string) (int, http.Header, []byte) {
				req, err := http.NewRequest(tt.method, base+tt.path, strings.NewReader(tt.body))
				if err != nil {
					t.Fatal(err)
				}
				for k, v := range tt.header {
					req.Header[k] = v
				}
				resp, err := c.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				b, err := io.ReadAll(resp.Body)
				if err != nil {
					t.Fatal(err)
				}
				h := resp.Header
				for _, own := range []string{
					"Date", "Audit-Id", "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid", "Content-Length",
					"Content-Security-Policy", "X-Content-Type-Options", "Cross-Origin-Resource-Policy",
				} {
					h.Del(own)
				}
				return resp.StatusCode, h, b
			}
			dc, err := rest.HTTPClientFor(e2e.Clusters.Cluster("member1").RESTConfig())
			if err != nil {
				t.Fatal(err)
			}
			var dcode, gcode int
			var dh, gh http.Header
			var db, gb []byte
			haveEqualBodies := func() bool { // a list's resourceVersion may change between the two requests
				dcode, dh, db = response(dc, e2e.Clusters.Cluster("member1").Server())
				gcode, gh, gb = response(client, root+"/clusters/member1")
				return bytes.Equal(db, gb)
			}
			e2e.Within(t, haveEqualBodies)
			if dcode != tt.code || gcode != dcode || !bytes.Equal(db, gb) {
				t.Errorf("directly %d %q\nthrough the gateway %d %q", dcode, db, gcode, gb)
			}
			for k, v := range dh {
				if strings.Join(gh[k], "|") != strings.Join(v, "|") {
					t.Errorf("header %s: directly %q, through the gateway %q", k, v, gh[k])
				}
			}
		})
	}
}

// TestGoodbyes: members close connections with GOAWAY to spread load. No request may fail, and no write be made twice.
func TestGoodbyes(t *testing.T) {
	set := cluster.Start(t, cluster.Options{Clusters: []string{"member4"}, NoKubelet: true,
		APIServerArgs: []string{"--goaway-chance=0.02"}})
	_ = e2e.Shared(t)
	e2e.Register(t, "member4", set.Cluster("member4").Kubeconfig())
	client, root := e2e.Caller(t)
	for _, base := range []string{"/clusters/member4", "/bridge/clusters/member4"} {
		var wg sync.WaitGroup
		for worker := range 4 {
			wg.Go(func() {
				for i := range 150 {
					name := fmt.Sprintf("g-%d-%d", worker, i)
					url := root + base + "/api/v1/namespaces/default/configmaps"
					for _, step := range []struct {
						method, url, body string
						want              int
					}{
						{"POST", url, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"}}`, 201},
						{"DELETE", url + "/" + name, `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`, 200},
					} {
						req, err := http.NewRequestWithContext(t.Context(), step.method, step.url, strings.NewReader(step.body))
						if err != nil {
							t.Error(err)
							return
						}
						req.Header.Set("Content-Type", "application/json")
						resp, err := client.Do(req)
						if err != nil {
							t.Error(err)
							return
						}
						body, _ := io.ReadAll(resp.Body)
						_ = resp.Body.Close()
						if resp.StatusCode != step.want {
							t.Errorf("%s %s: %s %s", step.method, step.url, resp.Status, body)
						}
					}
				}
			})
		}
		wg.Wait()
	}
}
