package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/functions/proxy"
	"github.com/clusterpass/clusterpass/infra/local/lambda"
	"github.com/clusterpass/clusterpass/infra/local/lambda/event"
	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	passv1alpha1 "github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/lambdahttp"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/route"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/stores"
)

// patience is how long something may take on a busy machine.
const patience = 2 * time.Minute

// edges is a whole gateway with one member, which answers by the path: as many bytes as it ends with.
type edges struct {
	t      *testing.T
	data   string
	stores *stores.Stores
	url    string
	client *http.Client // does not follow
	writes atomic.Int32 // that the member did
}

func newEdges(t *testing.T) *edges {
	t.Helper()
	e := &edges{t: t, data: t.TempDir()}
	member := httptest.NewTLSServer(http.HandlerFunc(e.member))
	t.Cleanup(member.Close)
	st, err := stores.Open(t.Context(), stores.Address{Kind: "dir", Where: e.data})
	if err != nil {
		t.Fatal(err)
	}
	e.stores = st
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: member.Certificate().Raw})
	kubeconfig := fmt.Sprintf("current-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {token: t}}]\n"+
		"clusters: [{name: a, cluster: {server: %q, certificate-authority-data: %s}}]\n", member.URL, base64.StdEncoding.EncodeToString(ca))
	if _, err := st.Secrets.Create(t.Context(), "clusters/m", secrets.NewValue([]byte(kubeconfig)), nil); err != nil {
		t.Fatal(err)
	}
	object, err := json.Marshal(v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: "m"},
		Spec:       v1alpha1.ClusterSpec{Identity: v1alpha1.Direct, DirectUsers: []string{v1alpha1.AnyUser}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Objects.Create(t.Context(), v1alpha1.Prefix+"m", object); err != nil {
		t.Fatal(err)
	}

	t.Setenv("KUBECONFIG", "")
	t.Setenv("CLUSTERPASS_DATA", e.data)
	cfg := &Config{}
	if err := config.Load(cfg); err != nil { // for the defaults
		t.Fatal(err)
	}
	cfg.TunnelListen = "127.0.0.1:0"
	cfg.Listen, cfg.Functions, cfg.Kubeconfig = "127.0.0.1:0", Inline, filepath.Join(t.TempDir(), "kubeconfig")
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, Output{io.Discard, io.Discard}, func() { close(ready) }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatal("it does not start")
	}
	owner, err := clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	owner.Host, _, _ = strings.Cut(owner.Host, "/clusters/") // of the first context
	if e.client, err = rest.HTTPClientFor(owner); err != nil {
		t.Fatal(err)
	}
	e.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(e.client.CloseIdleConnections)
	e.url = owner.Host
	return e
}

// content is what the member answers: n bytes that do not compress.
func content(n int) []byte {
	src := rand.NewChaCha8([32]byte{1})
	b := make([]byte, n)
	_, _ = src.Read(b)
	for i := range b {
		b[i] = 'a' + b[i]%26
	}
	return b
}

func (e *edges) member(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		e.writes.Add(1)
	}
	if strings.HasSuffix(r.URL.Path, "/size") {
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n)
		return
	}
	n, err := strconv.Atoi(r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") && strings.Contains(r.URL.Path, "/gzip/") {
		w.Header().Set("Content-Encoding", "gzip")
	}
	_, _ = w.Write(content(n))
}

// do makes a call and returns the answer with its whole body.
func (e *edges) do(method, path string, header http.Header, body io.Reader) (*http.Response, []byte) {
	e.t.Helper()
	if strings.HasPrefix(path, "/") {
		path = e.url + path
	}
	req, err := http.NewRequestWithContext(e.t.Context(), method, path, body)
	if err != nil {
		e.t.Fatal(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := e.client.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return resp, got
}

// wantAt asks for n bytes: they come at once, or from the bridge, to which the answer leads.
func (e *edges) wantAt(path string, n int, header http.Header, redirected bool) {
	e.t.Helper()
	e.wantFrom("", path, n, header, redirected)
}

// wantFrom is wantAt for another front door than the gateway's.
func (e *edges) wantFrom(door, path string, n int, header http.Header, redirected bool) {
	e.t.Helper()
	path += strconv.Itoa(n)
	resp, got := e.do(http.MethodGet, door+path, header, nil)
	if is := resp.StatusCode == http.StatusTemporaryRedirect; is != redirected {
		e.t.Errorf("%s: %s", path, resp.Status)
	} else if is {
		var st metav1.Status
		location := resp.Header.Get("Location")
		if err := json.Unmarshal(got, &st); err != nil || !strings.Contains(st.Message, location) || !strings.Contains(location, "/bridge"+path) {
			e.t.Errorf("%s: to %q, %s", path, location, got)
		}
		if strings.HasPrefix(location, "/") {
			location = e.url + location
		}
		resp, got = e.do(http.MethodGet, location, header, nil)
	}
	if resp.StatusCode != http.StatusOK || !bytes.Equal(got, content(n)) {
		e.t.Errorf("%s: %s, %d bytes", path, resp.Status, len(got))
	}
}

const bytesOf = "/clusters/m/api/v1/namespaces/a/configmaps/"

// TestAnswerEdges holds: what fits through a balancer to a function comes from the function, the rest from the bridge, and nothing is lost
// between.
func TestAnswerEdges(t *testing.T) {
	e := newEdges(t)
	// The answer's headers and the JSON around it are within the limit, too.
	const around = 4 << 10
	e.wantAt(bytesOf, lambdahttp.ALBLimit-around, nil, false)
	e.wantAt(bytesOf, lambdahttp.ALBLimit, nil, true)
	e.wantAt(bytesOf, event.ALBResponseJSON, nil, true)
	e.wantAt(bytesOf, event.ALBResponseJSON+1, nil, true)
	for n := lambdahttp.ALBLimit - around; n < lambdahttp.ALBLimit; n += 256 { // wherever the edge is exactly
		resp, got := e.do(http.MethodGet, bytesOf+strconv.Itoa(n), nil, nil)
		if resp.StatusCode != http.StatusTemporaryRedirect && (resp.StatusCode != http.StatusOK || !bytes.Equal(got, content(n))) {
			t.Errorf("%d bytes: %s, %d bytes", n, resp.Status, len(got))
		}
	}
	// What is compressed stays so, and is a third larger on the way, as base64.
	compressed := http.Header{"Accept-Encoding": {"gzip"}}
	e.wantAt(bytesOf+"gzip/", 720<<10, compressed, false)
	e.wantAt(bytesOf+"gzip/", 800<<10, compressed, true)
	if resp, _ := e.do(http.MethodGet, bytesOf+"gzip/5", compressed, nil); resp.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("the answer's header is %v", resp.Header)
	}
	// A write that is done and whose answer does not fit leads to the object, and is never made again.
	before := e.writes.Load()
	resp, _ := e.do(http.MethodPut, bytesOf+strconv.Itoa(2<<20), nil, strings.NewReader("{}"))
	if location := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || !strings.HasSuffix(location, "/bridge"+bytesOf+strconv.Itoa(2<<20)) {
		t.Errorf("a large answer to a write: %s to %q", resp.Status, location)
	}
	if n := e.writes.Load() - before; n != 1 {
		t.Errorf("the member was written to %d times", n)
	}
}

// TestRequestEdges holds: bodies that are too large for a function are the bridge's, whatever their form; and headers have limits.
func TestRequestEdges(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	e := newEdges(t)
	for _, n := range []int{0, 1, route.LargeBody - 1, route.LargeBody, event.ALBRequestBody - 1, event.ALBRequestBody, event.ALBRequestBody + 1, 7 << 20} {
		for _, form := range []string{"length", "chunked", "gzip"} {
			sent, header := content(n), http.Header{}
			again := func() io.Reader { return bytes.NewReader(sent) }
			switch form {
			case "gzip":
				var b bytes.Buffer
				zw := gzip.NewWriter(&b)
				_, _ = zw.Write(sent)
				_ = zw.Close()
				sent, header = b.Bytes(), http.Header{"Content-Encoding": {"gzip"}}
			case "chunked":
				again = func() io.Reader { return io.MultiReader(bytes.NewReader(sent)) } // of a length that nobody knows
			}
			before := e.writes.Load()
			resp, got := e.do(http.MethodPost, "/clusters/m/size", header, again())
			if resp.StatusCode == http.StatusTemporaryRedirect { // decided before the call is made, so that it can be made again
				if location := resp.Header.Get("Location"); location != "/bridge/clusters/m/size" || len(sent) >= route.LargeBody || e.writes.Load() != before {
					t.Errorf("%d bytes, %s: sent on to %q", len(sent), form, location)
				}
				resp, got = e.do(http.MethodPost, "/bridge/clusters/m/size", header, again())
			}
			if resp.StatusCode != http.StatusOK || string(got) != strconv.Itoa(len(sent)) || e.writes.Load() != before+1 {
				t.Errorf("%d bytes, %s: %s, the member got %s, in %d calls", len(sent), form, resp.Status, got, e.writes.Load()-before)
			}
		}
	}
	for n, want := range map[int]int{
		event.ALBLine - 1024: http.StatusOK,
		event.ALBLine + 1024: http.StatusBadRequest,
	} {
		if resp, _ := e.do(http.MethodGet, bytesOf+"1", http.Header{"X-Long": {strings.Repeat("a", n)}}, nil); resp.StatusCode != want {
			t.Errorf("a header of %d bytes: %s", n, resp.Status)
		}
	}
	if resp, _ := e.do(http.MethodGet, bytesOf+"1?labelSelector="+strings.Repeat("a", event.ALBLine), nil, nil); resp.StatusCode != http.StatusRequestURITooLong {
		t.Errorf("a long URL: %s", resp.Status)
	}
	many := http.Header{}
	for i := range 8 {
		many[fmt.Sprintf("X-Many-%d", i)] = []string{strings.Repeat("a", 10<<10)}
	}
	if resp, _ := e.do(http.MethodGet, bytesOf+"1", many, nil); resp.StatusCode != http.StatusBadRequest && resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("80 KB of headers: %s", resp.Status)
	}
}

// behindAPI is functions/proxy behind an API Gateway, for which the gateway is the bridge, and has e call with a pass: API Gateway takes no
// client certificates. It returns the API's URL.
func (e *edges) behindAPI() string {
	e.t.Helper()
	ca, err := pki.LoadCA(filepath.Join(e.data, "pki"), "client-ca")
	if err != nil {
		e.t.Fatal(err)
	}
	handler, opts, err := proxy.New(e.t.Context(), &proxy.Config{
		Env: assembly.Env{
			Store: stores.Address{Kind: "dir", Where: e.data}, ClientCA: assembly.CertificatesOf(ca.Cert), URL: config.URL(e.url),
			AllowLoopback: true,
		},
		BridgeURL: e.url,
	}, proxy.Process{LogTo: io.Discard})
	if err != nil {
		e.t.Fatal(err)
	}
	api := httptest.NewServer(lambda.Target{
		Invoker: lambda.Inline{Function: lambdahttp.New(handler, opts), Timeout: functionTimeout},
		Front:   event.REST{APIID: "a", Stage: "gateway", Domain: "a.execute-api.local"},
		Log:     slog.New(slog.DiscardHandler),
	})
	e.t.Cleanup(api.Close)
	pass := &passv1alpha1.Pass{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	pass.Spec = passv1alpha1.PassSpec{User: "ann", Groups: []string{"system:masters"}, Clusters: []string{"*"}, Verbs: []string{"*"}}
	issued, err := (&passes.Issuer{Objects: e.stores.Objects, Secrets: e.stores.Secrets, URL: e.url}).Create(e.t.Context(), pass)
	if err != nil {
		e.t.Fatal(err)
	}
	serverCA, err := pki.LoadCA(filepath.Join(e.data, "pki"), "server-ca")
	if err != nil {
		e.t.Fatal(err)
	}
	byPass, err := rest.HTTPClientFor(&rest.Config{BearerToken: string(issued.Token.Reveal()), TLSClientConfig: rest.TLSClientConfig{CAData: serverCA.PEM()}})
	if err != nil {
		e.t.Fatal(err)
	}
	byPass.CheckRedirect = e.client.CheckRedirect
	e.t.Cleanup(byPass.CloseIdleConnections)
	e.client = byPass
	return api.URL
}

// TestAPIEdges holds for FrontDoor api: what fits through Lambda comes from the function, the rest, and what streams, from the bridge's own
// URL.
func TestAPIEdges(t *testing.T) {
	e := newEdges(t)
	api := e.behindAPI()
	const around = 4 << 10
	e.wantFrom(api, bytesOf, lambdahttp.ALBLimit+1, nil, false)
	e.wantFrom(api, bytesOf, lambdahttp.LambdaLimit-around, nil, false)
	e.wantFrom(api, bytesOf, lambdahttp.LambdaLimit, nil, true)
	compressed := http.Header{"Accept-Encoding": {"gzip"}}
	e.wantFrom(api, bytesOf+"gzip/", lambdahttp.LambdaLimit/4*3-around, compressed, false)
	e.wantFrom(api, bytesOf+"gzip/", lambdahttp.LambdaLimit/4*3+around, compressed, true)

	resp, got := e.do(http.MethodGet, api+bytesOf+"5?watch=1", nil, nil)
	if location := resp.Header.Get("Location"); resp.StatusCode != http.StatusTemporaryRedirect || location != e.url+"/bridge"+bytesOf+"5?watch=1" {
		t.Errorf("a watch: %s to %q, %s", resp.Status, location, got)
	}
	// Bodies: the function's, the bridge's by 307, and at last more than an event can hold, of which the function never hears.
	for n, want := range map[int]int{200 << 10: http.StatusOK, 300 << 10: http.StatusTemporaryRedirect, 4 << 20: http.StatusTemporaryRedirect, 5 << 20: http.StatusRequestEntityTooLarge} {
		before := e.writes.Load()
		resp, got := e.do(http.MethodPost, api+"/clusters/m/size", nil, bytes.NewReader(content(n)))
		if resp.StatusCode != want || (e.writes.Load() != before) != (want == http.StatusOK) {
			t.Errorf("a body of %d bytes: %s, want %d; %s", n, resp.Status, want, got)
		}
		if want == http.StatusTemporaryRedirect {
			if resp, got = e.do(http.MethodPost, resp.Header.Get("Location"), nil, bytes.NewReader(content(n))); resp.StatusCode != http.StatusOK || string(got) != strconv.Itoa(n) {
				t.Errorf("a body of %d bytes at the bridge: %s, %s", n, resp.Status, got)
			}
		}
	}
}
