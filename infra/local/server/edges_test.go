package server

import (
	"bytes"
	"compress/gzip"
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
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

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

// edges is a whole gateway with one member. The last segment of a request's path is the size in bytes of the response.
type edges struct {
	t      *testing.T
	data   string
	stores *stores.Stores
	url    string
	client *http.Client // does not follow redirects
	writes atomic.Int32 // number of write requests that the member received
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
	kubeconfig := fmt.Sprintf("current-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"+
		"users: [{name: a, user: {token: t}}]\n"+
		"clusters: [{name: a, cluster: {server: %q, certificate-authority-data: %s}}]\n",
		member.URL, base64.StdEncoding.EncodeToString(ca))
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

	cfg := newConfig(t, e.data)
	cfg.Functions = Process
	start(t, cfg)
	owner, err := clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	owner.Host, _, _ = strings.Cut(owner.Host, "/clusters/") // the server of the first context is a cluster's URL
	if e.client, err = rest.HTTPClientFor(owner); err != nil {
		t.Fatal(err)
	}
	e.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(e.client.CloseIdleConnections)
	e.url = owner.Host
	return e
}

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

func (e *edges) wantAt(path string, n int, header http.Header, redirected bool) {
	e.t.Helper()
	e.wantFrom("", path, n, header, redirected)
}

func (e *edges) wantFrom(url, path string, n int, header http.Header, redirected bool) {
	e.t.Helper()
	path += strconv.Itoa(n)
	resp, got := e.do(http.MethodGet, url+path, header, nil)
	if is := resp.StatusCode == http.StatusTemporaryRedirect; is != redirected {
		e.t.Errorf("%s: %s", path, resp.Status)
	} else if redirected {
		var st metav1.Status
		location := resp.Header.Get("Location")
		if err := json.Unmarshal(got, &st); err != nil || !strings.Contains(st.Message, location) ||
			!strings.Contains(location, "/bridge"+path) {
			e.t.Errorf("%s: redirected to %q, %s", path, location, got)
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

// A response near the size limit of a load balancer must not be lost.
func TestAnswerEdges(t *testing.T) {
	e := newEdges(t)
	const around = 4 << 10 // more than the response's headers and the JSON around it, which count for the limit
	e.wantAt(bytesOf, lambdahttp.ALBLimit-around, nil, false)
	e.wantAt(bytesOf, lambdahttp.ALBLimit, nil, true)
	e.wantAt(bytesOf, event.ALBResponseJSON, nil, true)
	e.wantAt(bytesOf, event.ALBResponseJSON+1, nil, true)
	// The exact limit depends on the headers.
	for n := lambdahttp.ALBLimit - around; n < lambdahttp.ALBLimit; n += 256 {
		resp, got := e.do(http.MethodGet, bytesOf+strconv.Itoa(n), nil, nil)
		isComplete := resp.StatusCode == http.StatusOK && bytes.Equal(got, content(n))
		if !isComplete && resp.StatusCode != http.StatusTemporaryRedirect {
			t.Errorf("%d bytes: %s, %d bytes", n, resp.Status, len(got))
		}
	}
	// Functions encode compressed bodies in base64, which adds a third. The client gets the compressed body.
	compressed := http.Header{"Accept-Encoding": {"gzip"}}
	e.wantAt(bytesOf+"gzip/", 720<<10, compressed, false)
	e.wantAt(bytesOf+"gzip/", 800<<10, compressed, true)
	resp, _ := e.do(http.MethodGet, bytesOf+"gzip/5", compressed, nil)
	if resp.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("the response's header is %v", resp.Header)
	}
	// A completed write whose response is too large is redirected to a GET of the object. It must not be repeated.
	before := e.writes.Load()
	large := bytesOf + strconv.Itoa(2<<20)
	resp, _ = e.do(http.MethodPut, large, nil, strings.NewReader("{}"))
	location := resp.Header.Get("Location")
	if resp.StatusCode != http.StatusSeeOther || !strings.HasSuffix(location, "/bridge"+large) {
		t.Errorf("a large response to a write: %s to %q", resp.Status, location)
	}
	if n := e.writes.Load() - before; n != 1 {
		t.Errorf("the member was written to %d times", n)
	}
}

// A request with a body near the size limit of a function must not be lost or sent twice.
func TestRequestEdges(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	e := newEdges(t)
	for _, n := range []int{
		0, 1, route.LargeBody - 1, route.LargeBody,
		event.ALBRequestBody - 1, event.ALBRequestBody, event.ALBRequestBody + 1, 7 << 20,
	} {
		plain := content(n)
		e.wantUpload("length", plain, http.Header{}, func() io.Reader { return bytes.NewReader(plain) })
		// MultiReader hides the length from net/http.
		e.wantUpload("chunked", plain, http.Header{}, func() io.Reader { return io.MultiReader(bytes.NewReader(plain)) })
		var b bytes.Buffer
		zw := gzip.NewWriter(&b)
		_, _ = zw.Write(plain)
		_ = zw.Close()
		e.wantUpload("gzip", b.Bytes(), http.Header{"Content-Encoding": {"gzip"}},
			func() io.Reader { return bytes.NewReader(b.Bytes()) })
	}
}

func (e *edges) wantUpload(form string, sent []byte, header http.Header, body func() io.Reader) {
	e.t.Helper()
	const path = "/clusters/m/size"
	before := e.writes.Load()
	resp, got := e.do(http.MethodPost, path, header, body())
	if resp.StatusCode == http.StatusTemporaryRedirect { // the member must not have been called yet
		location := resp.Header.Get("Location")
		if location != "/bridge"+path || len(sent) >= route.LargeBody || e.writes.Load() != before {
			e.t.Errorf("%d bytes, %s: redirected to %q", len(sent), form, location)
		}
		resp, got = e.do(http.MethodPost, "/bridge"+path, header, body())
	}
	if resp.StatusCode != http.StatusOK || string(got) != strconv.Itoa(len(sent)) || e.writes.Load() != before+1 {
		e.t.Errorf("%d bytes, %s: %s, the member received %s, in %d requests",
			len(sent), form, resp.Status, got, e.writes.Load()-before)
	}
}

// TestHeaderEdges fails if oversized headers or URLs get another response than from a load balancer.
func TestHeaderEdges(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	e := newEdges(t)
	many := http.Header{}
	for i := range 8 {
		many[fmt.Sprintf("X-Many-%d", i)] = []string{strings.Repeat("a", 10<<10)}
	}
	header := func(n int) http.Header { return http.Header{"X-Long": {strings.Repeat("a", n)}} }
	for name, tt := range map[string]struct {
		query  string
		header http.Header
		want   []int
	}{
		"a header within the limit": {"", header(event.ALBLine - 1024), []int{http.StatusOK}},
		"a header over the limit":   {"", header(event.ALBLine + 1024), []int{http.StatusBadRequest}},
		"a long URL": {
			"?labelSelector=" + strings.Repeat("a", event.ALBLine), nil, []int{http.StatusRequestURITooLong},
		},
		"80 KB of headers": {"", many, []int{http.StatusBadRequest, http.StatusRequestHeaderFieldsTooLarge}},
	} {
		if resp, _ := e.do(http.MethodGet, bytesOf+"1"+tt.query, tt.header, nil); !slices.Contains(tt.want, resp.StatusCode) {
			t.Errorf("%s: %s, want %d", name, resp.Status, tt.want)
		}
	}
}

// behindAPI runs functions/proxy behind an API Gateway, and returns its URL. e gets a pass as its credential, because
// API Gateway accepts no client certificates.
func (e *edges) behindAPI() string {
	e.t.Helper()
	ca, err := pki.LoadCA(filepath.Join(e.data, "pki"), "client-ca")
	if err != nil {
		e.t.Fatal(err)
	}
	handler, opts, err := proxy.New(e.t.Context(), &proxy.Config{
		Env: assembly.Env{
			Store: stores.Address{Kind: "dir", Where: e.data}, ClientCA: assembly.CertificatesOf(ca.Cert),
			URL: config.URL(e.url), AllowLoopback: true,
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
	pass.Spec = passv1alpha1.PassSpec{
		User: "ann", Groups: []string{"system:masters"}, Clusters: []string{"*"}, Verbs: []string{"*"},
	}
	issuer := &passes.Issuer{Objects: e.stores.Objects, Secrets: e.stores.Secrets, URL: e.url}
	issued, err := issuer.Create(e.t.Context(), pass)
	if err != nil {
		e.t.Fatal(err)
	}
	serverCA, err := pki.LoadCA(filepath.Join(e.data, "pki"), "server-ca")
	if err != nil {
		e.t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(&rest.Config{
		BearerToken: string(issued.Token.Reveal()), TLSClientConfig: rest.TLSClientConfig{CAData: serverCA.PEM()},
	})
	if err != nil {
		e.t.Fatal(err)
	}
	client.CheckRedirect = e.client.CheckRedirect
	e.t.Cleanup(client.CloseIdleConnections)
	e.client = client
	return api.URL
}

// API Gateway must not lose responses or requests near Lambda's size limit.
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
	location := resp.Header.Get("Location")
	if resp.StatusCode != http.StatusTemporaryRedirect || location != e.url+"/bridge"+bytesOf+"5?watch=1" {
		t.Errorf("a watch: %s to %q, %s", resp.Status, location, got)
	}
	for n, want := range map[int]int{
		200 << 10: http.StatusOK,
		300 << 10: http.StatusTemporaryRedirect,
		4 << 20:   http.StatusTemporaryRedirect,
		5 << 20:   http.StatusRequestEntityTooLarge, // too large for an event: API Gateway does not invoke the function
	} {
		before := e.writes.Load()
		resp, got := e.do(http.MethodPost, api+"/clusters/m/size", nil, bytes.NewReader(content(n)))
		if resp.StatusCode != want || (e.writes.Load() != before) != (want == http.StatusOK) {
			t.Errorf("a body of %d bytes: %s, want %d; %s", n, resp.Status, want, got)
		}
		if want == http.StatusTemporaryRedirect {
			resp, got = e.do(http.MethodPost, resp.Header.Get("Location"), nil, bytes.NewReader(content(n)))
			if resp.StatusCode != http.StatusOK || string(got) != strconv.Itoa(n) {
				t.Errorf("a body of %d bytes at the bridge: %s, %s", n, resp.Status, got)
			}
		}
	}
}
