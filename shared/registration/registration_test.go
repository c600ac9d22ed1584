package registration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

type failing struct {
	objects.Store
	fail bool
}

func (f *failing) Update(ctx context.Context, key string, value []byte, rev uint64) (objects.Object, error) {
	if f.fail {
		return objects.Object{}, errors.New("no room")
	}
	return f.Store.Update(ctx, key, value, rev)
}

func setup(t *testing.T) (*Registrar, *failing, func(token, server string) secrets.Value) {
	t.Helper()
	i := clustertest.NewInstallation(t)
	store := &failing{Store: i.Objects}
	return &Registrar{Secrets: i.Secrets, Objects: store}, store, func(token, server string) secrets.Value {
		return secrets.NewValue(clustertest.Kubeconfig(server, i.CA.PEM(), "{token: "+token+"}"))
	}
}

func stored(t *testing.T, r *Registrar, name string) (*v1alpha1.Cluster, string) {
	t.Helper()
	o, err := r.Objects.Get(t.Context(), v1alpha1.Prefix+name)
	if err != nil {
		t.Fatal(err)
	}
	c := &v1alpha1.Cluster{}
	if err := json.Unmarshal(o.Value, c); err != nil {
		t.Fatal(err)
	}
	s, err := r.Secrets.Get(t.Context(), c.SecretName())
	if err != nil {
		t.Fatal(err)
	}
	return c, string(s.Value.Reveal())
}

// TestObjectAndSecretGoTogether: a registration that fails halfway leaves the previous one intact.
func TestObjectAndSecretGoTogether(t *testing.T) {
	r, store, kc := setup(t)
	weak := Request{
		Name: "m", Kubeconfig: kc("weak", "https://10.0.0.1"), Identity: v1alpha1.Direct, DirectUsers: []string{"*"},
		SkipCheck: true,
	}
	if _, err := r.Register(t.Context(), weak); err != nil {
		t.Fatal(err)
	}
	strong := Request{
		Name: "m", Kubeconfig: kc("strong", "https://10.0.0.1"), Identity: v1alpha1.Impersonate, SkipCheck: true,
		Replace: true,
	}
	store.fail = true
	if _, err := r.Register(t.Context(), strong); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("error %v", err)
	}
	if c, s := stored(t, r, "m"); c.Mode() != v1alpha1.Direct || !strings.Contains(s, "token: weak") {
		t.Errorf("half a registration: %s with %s", c.Mode(), s)
	}
	store.fail = false
	if _, err := r.Register(t.Context(), strong); err != nil {
		t.Fatal(err)
	}
	if c, s := stored(t, r, "m"); c.Mode() != v1alpha1.Impersonate || !strings.Contains(s, "token: strong") ||
		len(c.Spec.DirectUsers) != 0 {
		t.Errorf("%s with %s for %v", c.Mode(), s, c.Spec.DirectUsers)
	}
	all, err := r.Secrets.List(t.Context(), nil)
	if err != nil || len(all) != 1 {
		t.Errorf("%d secrets are left, %v", len(all), err)
	}
	if res, err := r.Register(t.Context(), strong); err != nil || res.Changed {
		t.Errorf("the same again: %+v, %v", res, err)
	}
	if err := r.Remove(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	if all, err := r.Secrets.List(t.Context(), nil); err != nil || len(all) != 0 {
		t.Errorf("%d secrets are left, %v", len(all), err)
	}
}

func TestWhatAnAdministratorSetStays(t *testing.T) {
	r, store, kc := setup(t)
	req := Request{
		Name: "m", Kubeconfig: kc("one", "https://10.0.0.1"), Identity: v1alpha1.Impersonate,
		Labels: map[string]string{"a": "b"}, SkipCheck: true,
	}
	if _, err := r.Register(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	c, _ := stored(t, r, "m")
	uid := c.UID
	change(t, store, "m", func(c *v1alpha1.Cluster) {
		c.Spec.Region, c.Spec.ServiceProxy = "eu", []string{"services/a/b"}
	})
	req.Kubeconfig, req.Labels, req.Replace, req.SameServer = kc("two", "https://10.0.0.1"), nil, true, true
	if _, err := r.Register(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if c, s := stored(t, r,
		"m"); c.UID != uid || c.Labels["a"] != "b" || c.Spec.Region != "eu" || len(c.Spec.ServiceProxy) != 1 ||
		!strings.Contains(s, "token: two") {
		t.Errorf("%+v", c)
	}
	req.Kubeconfig = kc("three", "https://10.9.9.9")
	if _, err := r.Register(t.Context(), req); err == nil ||
		!strings.Contains(err.Error(), "another server, https://10.0.0.1") {
		t.Errorf("another server: %v", err)
	}
}

func change(t *testing.T, store objects.Store, name string, f func(c *v1alpha1.Cluster)) {
	t.Helper()
	o, err := store.Get(t.Context(), v1alpha1.Prefix+name)
	if err != nil {
		t.Fatal(err)
	}
	var c v1alpha1.Cluster
	if err := json.Unmarshal(o.Value, &c); err != nil {
		t.Fatal(err)
	}
	f(&c)
	value, err := json.Marshal(&c)
	if err == nil {
		_, err = store.Update(t.Context(), o.Key, value, o.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func newTunnelProxy(t *testing.T, tunnels *atomic.Int64) *httptest.Server {
	t.Helper()
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", r.Host)
		if r.Method != http.MethodConnect || err != nil {
			http.Error(w, "no", http.StatusBadGateway)
			return
		}
		defer to.Close()
		tunnels.Add(1)
		// before the response, since the client sends more only afterwards
		from, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer from.Close()
		_, _ = io.WriteString(from, "HTTP/1.1 200 Connection established\r\n\r\n")
		go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
		_, _ = io.Copy(from, to)
	}))
}

func register(t *testing.T, r *Registrar, req Request, wantChanged bool) {
	t.Helper()
	if res, err := r.Register(t.Context(), req); err != nil || res.Changed != wantChanged {
		t.Fatalf("%+v, %v, want changed: %v", res, err, wantChanged)
	}
}

// A cluster behind a proxy must be checked through that proxy, keep it, and keep its health status.
func TestRegisteredAnewThroughItsProxy(t *testing.T) {
	srv := httptest.NewTLSServer(&member{user: "a", may: []string{"users"}})
	defer srv.Close()
	var tunnels atomic.Int64
	proxy := newTunnelProxy(t, &tunnels)
	defer proxy.Close()
	r, store, _ := setup(t)
	r.Policy.AllowLoopback = true
	kubeconfig := func(token string) secrets.Value {
		return secrets.NewValue(clustertest.ServerKubeconfig(srv, "{token: "+token+"}"))
	}
	req := Request{
		Name: "m", Kubeconfig: kubeconfig("one"), Identity: v1alpha1.Direct, DirectUsers: []string{"alice"}, Replace: true,
	}
	register(t, r, req, true)
	change(t, store, "m", func(c *v1alpha1.Cluster) {
		c.Spec.ProxyURL = proxy.URL
		c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Ready, Status: metav1.ConditionTrue, Reason: "ClusterReady"}}
	})
	req.DirectUsers = nil
	for _, skip := range []bool{false, true} {
		req.SkipCheck = skip
		register(t, r, req, false)
	}
	if n := tunnels.Load(); n != 1 {
		t.Errorf("%d connections through the proxy, want that of the check", n)
	}
	c, _ := stored(t, r, "m")
	if c.Spec.ProxyURL != proxy.URL || len(c.Status.Conditions) != 1 || c.Status.KubernetesVersion != "v1.99.0" {
		t.Errorf("%+v", c)
	}
	req.Kubeconfig, req.DirectUsers, req.SkipCheck = kubeconfig("two"), []string{"bob"}, false
	register(t, r, req, true)
	c, _ = stored(t, r, "m")
	if c.Spec.ProxyURL != proxy.URL || len(c.Status.Conditions) != 0 ||
		!slices.Equal(c.Spec.DirectUsers, []string{"bob"}) {
		t.Errorf("%+v", c)
	}
	proxy.Close()
	req.Kubeconfig = kubeconfig("three")
	if _, err := r.Register(t.Context(), req); err == nil {
		t.Error("its proxy is gone: registered all the same")
	}
	if _, s := stored(t, r, "m"); !strings.Contains(s, "token: two") {
		t.Error("stored although the check failed")
	}
	const tunnel = "https://127.0.0.1:1"
	change(t, store, "m", func(c *v1alpha1.Cluster) { c.Spec.SyncMode, c.Spec.ProxyURL = v1alpha1.Pull, tunnel })
	if _, err := r.Register(t.Context(), req); err != nil {
		t.Errorf("a private cluster, checked without its tunnel: %v", err)
	}
	if c, s := stored(t, r, "m"); c.Spec.SyncMode != v1alpha1.Pull || c.Spec.ProxyURL != tunnel ||
		!strings.Contains(s, "token: three") {
		t.Errorf("%+v", c)
	}
}

type interceptedStore struct {
	objects.Store
	gets       int
	at         int
	beforeRead func()
}

func (m *interceptedStore) Get(ctx context.Context, key string) (objects.Object, error) {
	if m.gets++; m.gets == m.at {
		m.beforeRead()
	}
	return m.Store.Get(ctx, key)
}

// A change during a check must not be overwritten. A change of the health status must not stop the registration.
func TestChangedMeanwhile(t *testing.T) {
	r, store, kc := setup(t)
	req := Request{
		Name: "m", Kubeconfig: kc("one", "https://10.0.0.1"), Identity: v1alpha1.Impersonate, SkipCheck: true, Replace: true,
	}
	if _, err := r.Register(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	req.Kubeconfig = kc("two", "https://10.0.0.1")
	r.Objects = &interceptedStore{Store: store, at: 2, beforeRead: func() {
		change(t, store, "m", func(c *v1alpha1.Cluster) { c.Spec.ProxyURL = "http://elsewhere:3128" })
	}}
	if _, err := r.Register(t.Context(), req); !errors.Is(err, objects.ErrConflict) ||
		!strings.Contains(err.Error(), "try again") {
		t.Errorf("error %v, want a conflict", err)
	}
	r.Objects = &interceptedStore{Store: store, at: 2, beforeRead: func() {
		change(t, store, "m", func(c *v1alpha1.Cluster) { c.Status.KubernetesVersion = "v1.99.1" })
	}}
	if _, err := r.Register(t.Context(), req); err != nil {
		t.Error(err)
	}
	if c, s := stored(t, r, "m"); c.Spec.ProxyURL != "http://elsewhere:3128" || !strings.Contains(s, "token: two") {
		t.Errorf("%+v with %s", c, s)
	}
	if all, err := r.Secrets.List(t.Context(), nil); err != nil || len(all) != 1 {
		t.Errorf("%d secrets are left, %v", len(all), err)
	}
}

func TestContexts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	err := os.WriteFile(path, []byte(`{apiVersion: v1, kind: Config, current-context: good,
contexts: [{name: good, context: {cluster: c, user: u}}, {name: stale, context: {cluster: gone, user: u}}],
clusters: [{name: c, cluster: {server: "https://x"}},
  {name: gone, cluster: {server: "https://y", certificate-authority: /nosuch/ca.pem}}],
users: [{name: u, user: {token: t}}]}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	all, err := Contexts(path)
	if err != nil || len(all) != 2 || all[0].Err != nil || all[1].Err == nil {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := Contexts(path + ".nosuch"); err == nil {
		t.Error("a file that is missing is no error")
	}
}

func TestClusterName(t *testing.T) {
	for in, want := range map[string]string{
		"member1": "member1", "kind-Dev_1": "kind-dev-1", "admin@prod.example": "admin-prod-example",
		"arn:aws:eks:eu-west-1:111122223333:cluster/prod": "prod", "-": "",
		strings.Repeat("a", 62) + ".b": strings.Repeat("a", 62),
	} {
		if got := ClusterName(in); got != want {
			t.Errorf("ClusterName(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestLoadFromStdin: "-" means standard input, and no error quotes the input.
func TestLoadFromStdin(t *testing.T) {
	for input, want := range map[string]string{
		"{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: c, user: u}}]," +
			"clusters: [{name: c, cluster: {server: \"https://one.example\"}}], users: [{name: u, user: {token: " +
			"secret-token}}]}": "",
		"token: secret-token\n: ]": "not the YAML or JSON of a kubeconfig",
		"":                         "no kubeconfig with a context",
	} {
		path := filepath.Join(t.TempDir(), "stdin")
		if err := os.WriteFile(path, []byte(input), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		was := os.Stdin
		os.Stdin = file
		got, err := Load("-", "")
		os.Stdin = was
		_ = file.Close()
		if want == "" && (err != nil || !strings.Contains(string(got.Reveal()), "https://one.example")) {
			t.Errorf("%v", err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%q: %v, want %q", input, err, want)
		}
	}
}

type statusWriter struct {
	objects.Store
	writes int
	write  func()
}

func (s *statusWriter) Delete(ctx context.Context, key string, rev uint64) (objects.Object, error) {
	if s.writes > 0 {
		s.writes--
		s.write()
	}
	return s.Store.Delete(ctx, key, rev)
}

func (s *statusWriter) Update(ctx context.Context, key string, value []byte, rev uint64) (objects.Object, error) {
	if s.writes > 0 {
		s.writes--
		s.write()
	}
	return s.Store.Update(ctx, key, value, rev)
}

// Otherwise `clusterpass cluster add --replace` fails if the gateway probes the cluster at that time.
func TestRegistrationSurvivesStatusWrites(t *testing.T) {
	for _, credential := range []string{"one", "two"} {
		t.Run("registered anew with credential "+credential, func(t *testing.T) {
			r, store, kc := setup(t)
			req := Request{Name: "m", Kubeconfig: kc("one", "https://10.0.0.1"), Identity: v1alpha1.Impersonate, SkipCheck: true,
				Replace: true}
			if _, err := r.Register(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			req.Kubeconfig, req.Labels = kc(credential, "https://10.0.0.1"), map[string]string{"region": "eu"}
			versions := 0
			r.Objects = &statusWriter{Store: store, writes: statusWrites - 1, write: func() {
				versions++
				change(t, store, "m", func(c *v1alpha1.Cluster) { c.Status.KubernetesVersion = fmt.Sprintf("v1.99.%d", versions) })
			}}
			if _, err := r.Register(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			if c, s := stored(t, r, "m"); c.Labels["region"] != "eu" || !strings.Contains(s, "token: "+credential) {
				t.Errorf("%+v with %s", c, s)
			}
			if all, err := r.Secrets.List(t.Context(), nil); err != nil || len(all) != 1 {
				t.Errorf("%d secrets are left, %v", len(all), err)
			}
			r.Objects.(*statusWriter).writes = statusWrites - 1
			if err := r.Remove(t.Context(), "m"); err != nil {
				t.Errorf("remove: %v", err)
			}
		})
	}
}
