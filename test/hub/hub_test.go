// Package hub tests the stores in a hub cluster on real API servers.
package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clients "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/hub"
	"github.com/clusterpass/clusterpass/shared/stores/kubernetes"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/cluster"
)

var (
	// cached has the API server's defaults. The API server of uncached reads its etcd for each watch, so that it
	// notices a compaction.
	cached, uncached *installation

	namespaces atomic.Int64
)

// installation is a hub with its administrator.
type installation struct {
	set   *cluster.Set
	hub   *cluster.Cluster
	admin clients.Interface
}

func TestMain(m *testing.M) {
	plain, err := cluster.New(context.Background(), cluster.Options{
		Clusters: []string{"uncached"}, Minimal: true, NoKubelet: true, APIServerArgs: []string{"--watch-cache=false"},
	})
	if err != nil {
		panic(err)
	}
	code := cluster.Main(m, cluster.Options{Clusters: []string{"hub"}, NoKubelet: true}, func(s *cluster.Set) {
		cached, uncached = install(s), install(plain)
	})
	if err := plain.Stop(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

func install(set *cluster.Set) *installation {
	i := &installation{set: set, hub: set.Clusters()[0]}
	var err error
	if i.admin, err = clients.NewForConfig(i.hub.RESTConfig()); err != nil {
		panic(err)
	}
	client, err := kubernetes.NewClient(i.hub.RESTConfig(), "clusterpass")
	if err == nil {
		err = kubernetes.Install(context.Background(), client)
	}
	if err == nil {
		err = kubernetes.Install(context.Background(), client) // again changes nothing
	}
	if err != nil {
		panic(err)
	}
	return i
}

// namespace creates a namespace in which user has the rights of the gateway, and returns the client of that user.
func (i *installation) namespace(t *testing.T) (name string, user *rest.Config) {
	t.Helper()
	name = fmt.Sprintf("store-%d", namespaces.Add(1))
	ctx := t.Context()
	_, err := i.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.Role
	if err := yaml.UnmarshalStrict(kubernetes.Role, &role); err != nil {
		t.Fatal(err)
	}
	if _, err = i.admin.RbacV1().Roles(name).Create(ctx, &role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
	}
	if _, err = i.admin.RbacV1().RoleBindings(name).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := i.hub.UserKubeconfig(name)
	if err != nil {
		t.Fatal(err)
	}
	if user, err = clientcmd.RESTConfigFromKubeConfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	awaitRight(t, user, name, true)
	return name, user
}

// address returns the address of the stores in a namespace, as its user with the rights of the gateway.
func (i *installation) address(t *testing.T, namespace string) string {
	t.Helper()
	kubeconfig, err := i.hub.UserKubeconfig(namespace)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "hub.kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	return "kubernetes:" + namespace + ",kubeconfig=" + file
}

// awaitRight waits until the API server has noticed a change of the gateway's rights.
func awaitRight(t *testing.T, user *rest.Config, namespace string, want bool) {
	t.Helper()
	client := newClient(t, user, namespace)
	waittest.Until(t, "the rights change", func() bool {
		err := client.Do(t.Context(), hub.Request{
			Method: http.MethodGet, Path: client.Path("api/v1", "secrets", "none"),
		}, nil)
		return (err != nil && hub.FaultOf(err) == hub.NotFound) == want
	})
}

func newClient(t *testing.T, user *rest.Config, namespace string) *hub.Client {
	t.Helper()
	c, err := kubernetes.NewClient(user, namespace)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// front is a proxy in front of the API server that refuses calls because of their rate.
type front struct {
	next   http.Handler
	refuse atomic.Int64
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.refuse.Add(-1) < 0 {
		f.refuse.Store(0)
		f.next.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusTooManyRequests)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Reason: metav1.StatusReasonTooManyRequests, Code: http.StatusTooManyRequests, Message: "try again later",
	})
}

// throttled returns the client of a user of a new namespace, and the function that has the next n calls refused.
func (i *installation) throttled(t *testing.T) (*hub.Client, func(n int)) {
	t.Helper()
	name, user := i.namespace(t)
	transport, err := rest.TransportFor(user)
	if err != nil {
		t.Fatal(err)
	}
	server, err := url.Parse(user.Host)
	if err != nil {
		t.Fatal(err)
	}
	f := &front{next: &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(server) },
	}}
	srv := httptest.NewTLSServer(f)
	t.Cleanup(srv.Close)
	base, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := hub.New(hub.Config{Transport: srv.Client().Transport, Server: base, Namespace: name})
	return client, func(n int) { f.refuse.Store(int64(n)) }
}

// compact drops the history of an etcd up to a revision.
func (i *installation) compact(t *testing.T, to uint64) {
	t.Helper()
	body := fmt.Sprintf(`{"revision": "%d", "physical": true}`, to)
	if text := i.etcd(t, "/v3/kv/compaction", body); strings.Contains(text, "error") &&
		!strings.Contains(text, "has been compacted") {
		t.Fatalf("compact: %s", text)
	}
}

func (i *installation) etcd(t *testing.T, path, body string) string {
	t.Helper()
	link, err := os.MkdirTemp("", "hub-") // the path of a socket is limited in length
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(link) }()
	socket := filepath.Join(link, "etcd")
	if err := os.Symlink(filepath.Join(i.set.Dir(), i.hub.Name(), "etcd.sock:0"), socket); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://etcd"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var text bytes.Buffer
	if _, err := text.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// revision returns the revision of an etcd.
func (i *installation) revision(t *testing.T) uint64 {
	t.Helper()
	var now struct{ Header struct{ Revision string } }
	if err := json.Unmarshal([]byte(i.etcd(t, "/v3/kv/range", `{"key": "AA=="}`)), &now); err != nil {
		t.Fatal(err)
	}
	rev, err := strconv.ParseUint(now.Header.Revision, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// revoke removes the rights of the gateway, and returns the function that gives them back.
func (i *installation) revoke(t *testing.T, namespace string, user *rest.Config) (restore func()) {
	t.Helper()
	bindings := i.admin.RbacV1().RoleBindings(namespace)
	list, err := bindings.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%d bindings, %v", len(list.Items), err)
	}
	binding := list.Items[0]
	if err := bindings.Delete(t.Context(), binding.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitRight(t, user, namespace, false)
	return func() {
		t.Helper()
		binding.ResourceVersion, binding.UID = "", ""
		if _, err := bindings.Create(t.Context(), &binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitRight(t, user, namespace, true)
	}
}

// createUnannounced does the first half of a write.
func (p *pair) createUnannounced(t *testing.T, key string) error {
	t.Helper()
	client := newClient(t, p.user, p.namespace)
	return client.Do(t.Context(), hub.Request{
		Method: http.MethodPost, Path: client.Path("apis/store.clusterpass.io/v1", "records"),
		Body: map[string]any{
			"apiVersion": "store.clusterpass.io/v1", "kind": "Record", "key": key, "write": "w",
			"metadata": map[string]any{"name": "dying"},
		},
	}, nil)
}
