package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/shared/access"
	clusterv1alpha1 "github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/fleet/merge"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/shared/stores/kubernetes"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/websocket-bridge/bridge"
)

// gatewayUnderTest is a gateway with its stores in the cached hub, as a user with the rights of role.yaml alone. Its
// members are the hub by two names, and another cluster that has a namespace of the same name.
type gatewayUnderTest struct {
	namespace string
	store     stores.Address
	data      string // the directory of the replicas' certificates
}

const (
	hubName   = "hub"
	hubAlias  = "alias"
	otherName = "uncached"
	// restricted is the other cluster, by an account that may not read the keys of service accounts.
	restricted = "restricted"
)

func newGateway(t *testing.T) *gatewayUnderTest {
	t.Helper()
	name, _ := cached.namespace(t)
	_, err := uncached.admin.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// Every service account has this right. Without it, the gateway could not recognize the hub.
	_, err = cached.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		RoleRef: rbacv1.RoleRef{
			APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:service-account-issuer-discovery",
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	g := &gatewayUnderTest{namespace: name, data: t.TempDir()}
	if err := g.store.Decode(cached.address(t, name)); err != nil {
		t.Fatal(err)
	}
	return g
}

// replica starts one replica of the gateway and returns the owner's clients of its clusters, by context.
func (g *gatewayUnderTest) replica(t *testing.T) map[string]*rest.Config {
	t.Helper()
	dir := t.TempDir()
	members := filepath.Join(dir, "members")
	if err := os.WriteFile(members, g.members(t), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	cfg := &server.Config{
		Listen: "127.0.0.1:0", TunnelListen: "127.0.0.1:0", Data: g.data, Store: g.store, Functions: server.Inline,
		Kubeconfig: filepath.Join(dir, "owner"), Register: members, DrainTimeout: time.Second,
		Limits: bridge.Limits{ProbeInterval: 2 * time.Second, ProbeTimeout: 30 * time.Second},
		Shared: assembly.Shared{Auditing: assembly.Auditing{Audit: filepath.Join(dir, "audit.log")}},
	}
	cfg.FleetDeadline = 25 * time.Second // a busy machine makes members slow
	log := &waittest.Buffer{}
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- server.Run(ctx, cfg, server.Output{Progress: log, Log: log}, func() { close(ready) })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the gateway ended: %v", err)
		}
		if t.Failed() {
			t.Log(log.String())
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		t.Fatalf("the gateway ended: %v\n%s", err, log)
	case <-time.After(waittest.Patience):
		t.Fatalf("the gateway does not start:\n%s", log)
	}
	kc, err := clientcmd.LoadFromFile(cfg.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	configs := map[string]*rest.Config{}
	for name := range kc.Contexts {
		configs[name], err = clientcmd.NewNonInteractiveClientConfig(*kc, name, nil, nil).ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
	}
	return configs
}

// members returns the kubeconfig of the members. The second name of the hub has another address.
func (g *gatewayUnderTest) members(t *testing.T) []byte {
	t.Helper()
	kc, err := clientcmd.Load(cached.hub.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	alias := kc.Clusters[kc.Contexts[hubName].Cluster].DeepCopy()
	alias.Server = strings.Replace(alias.Server, "127.0.0.1", "localhost", 1)
	kc.Clusters[hubAlias] = alias
	kc.Contexts[hubAlias] = kc.Contexts[hubName].DeepCopy()
	kc.Contexts[hubAlias].Cluster = hubAlias
	other, err := clientcmd.Load(uncached.hub.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range other.Clusters {
		kc.Clusters["other-"+name] = c
	}
	for name, u := range other.AuthInfos {
		kc.AuthInfos["other-"+name] = u
	}
	for name, c := range other.Contexts {
		c.Cluster, c.AuthInfo = "other-"+c.Cluster, "other-"+c.AuthInfo
		kc.Contexts[name] = c
	}
	user, err := uncached.hub.IssueUser("restricted")
	if err != nil {
		t.Fatal(err)
	}
	kc.AuthInfos[restricted] = &clientcmdapi.AuthInfo{ClientCertificateData: user.Cert, ClientKeyData: user.Key}
	kc.Contexts[restricted] = kc.Contexts[otherName].DeepCopy()
	kc.Contexts[restricted].AuthInfo = restricted
	text, err := clientcmd.Write(*kc)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// send calls a path of the API below a client's address.
func send(t *testing.T, cfg *rest.Config, method, path string) (code int, body string) {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, cfg.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// TestHubIsMember: whoever may call the hub through the gateway must not read the credentials of all other clusters.
func TestHubIsMember(t *testing.T) {
	g := newGateway(t)
	clusters := g.replica(t)
	for _, name := range []string{hubName, hubAlias, otherName, restricted} {
		if clusters[name] == nil {
			t.Fatalf("%s is not registered: %v", name, clusters)
		}
	}
	in := func(path string) string { return strings.ReplaceAll(path, "NAMESPACE", g.namespace) }
	for _, request := range []string{
		"GET /api/v1/namespaces/NAMESPACE/secrets", "GET /api/v1/namespaces/NAMESPACE/secrets?watch=true",
		"GET /api/v1/secrets", "GET /api/v1/secrets?watch=true", "GET /api/v1/watch/secrets", "DELETE /api/v1/secrets",
		"GET /api/v1/namespaces/NAMESPACE/configmaps", "DELETE /api/v1/namespaces/NAMESPACE",
		"GET /apis/store.clusterpass.io/v1/records",
		"DELETE /apis/store.clusterpass.io/v1/namespaces/NAMESPACE/records",
		"DELETE /apis/apiextensions.k8s.io/v1/customresourcedefinitions/records.store.clusterpass.io",
		"GET /api/v1/namespaces/NAMESPACE/pods/none/exec?command=sh",
	} {
		method, path, _ := strings.Cut(in(request), " ")
		for _, name := range []string{hubName, hubAlias} {
			code, body := send(t, clusters[name], method, path)
			if code != http.StatusForbidden || !strings.Contains(body, `"reason":"forbidden"`) ||
				!strings.Contains(body, "has the gateway's stores") {
				t.Errorf("%s of %s: %d %s", request, name, code, body)
			}
			impersonating := rest.CopyConfig(clusters[name])
			impersonating.Impersonate = rest.ImpersonationConfig{UserName: "root", Groups: []string{"system:masters"}}
			if code, body := send(t, impersonating, method, path); code != http.StatusForbidden {
				t.Errorf("%s of %s as another user: %d %s", request, name, code, body)
			}
		}
	}
	for _, path := range []string{
		"/api/v1/namespaces/default/secrets", "/api/v1/pods", "/api/v1/namespaces", "/apis/store.clusterpass.io/v1",
	} {
		for _, name := range []string{hubName, hubAlias} {
			if code, body := send(t, clusters[name], http.MethodGet, path); code != http.StatusOK {
				t.Errorf("GET %s of %s: %d %s", path, name, code, body)
			}
		}
	}
	g.checkOthers(t, clusters, in)
}

// checkOthers checks requests to clusters that are not the hub.
func (g *gatewayUnderTest) checkOthers(t *testing.T, clusters map[string]*rest.Config, in func(string) string) {
	t.Helper()
	for _, path := range []string{"/api/v1/secrets", in("/api/v1/namespaces/NAMESPACE/secrets")} {
		if code, body := send(t, clusters[otherName], http.MethodGet, path); code != http.StatusOK {
			t.Errorf("GET %s of another cluster: %d %s", path, code, body)
		}
	}
	// A cluster that cannot be distinguished from the hub is refused the same requests, and no others.
	code, body := send(t, clusters[restricted], http.MethodGet, "/api/v1/secrets")
	if code != http.StatusForbidden || !strings.Contains(body, "may have the gateway's stores") {
		t.Errorf("secrets of a restricted cluster: %d %s", code, body)
	}
	code, body = send(t, clusters[restricted], http.MethodGet, "/api/v1/namespaces/default/secrets")
	if code != http.StatusForbidden || strings.Contains(body, "gateway's stores") {
		t.Errorf("secrets of a namespace of a restricted cluster: %d %s", code, body)
	}
	// The fleet has the secrets of the other clusters alone. Other tests have stores in one of them.
	for _, path := range []string{"/api/v1/secrets", in("/api/v1/namespaces/NAMESPACE/secrets")} {
		code, body := send(t, clusters["fleet"], http.MethodGet, path)
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal([]byte(body), &list); err != nil || code != http.StatusOK {
			t.Fatalf("GET %s of the fleet: %d %v %.2000s", path, code, err, body)
		}
		for _, secret := range list.Items {
			if of := secret.Annotations[merge.SourceAnnotation]; of != otherName {
				t.Errorf("GET %s of the fleet has secret %s/%s of cluster %q", path, secret.Namespace, secret.Name, of)
			}
		}
	}
}

const secretsType = "clusterpass.io/secret"

// TestReplicas: whoever has gateways at several machines needs that all of them know a cluster, a pass and its
// revocation.
func TestReplicas(t *testing.T) {
	g := newGateway(t)
	first, second := g.replica(t), g.replica(t)
	st, err := stores.Open(t.Context(), g.store, kubernetes.Opener())
	if err != nil {
		t.Fatal(err)
	}
	grant(t, st, "ops")
	ca, err := pki.LoadCA(filepath.Join(g.data, "pki"), "client-ca")
	if err != nil {
		t.Fatal(err)
	}
	issuer := passes.Issuer{Objects: st.Objects, Secrets: st.Secrets, CA: ca}
	made, err := issuer.Create(t.Context(), &v1alpha1.Pass{
		ObjectMeta: metav1.ObjectMeta{Name: "ann-1"},
		Spec: v1alpha1.PassSpec{
			User: "ann", Groups: []string{"ops"}, Clusters: []string{otherName}, Verbs: []string{"get"},
			Form: v1alpha1.Certificate,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	reaches := func(replica map[string]*rest.Config, want int) {
		t.Helper()
		cfg := rest.CopyConfig(replica[otherName])
		cfg.CertData, cfg.KeyData, cfg.CertFile, cfg.KeyFile = made.Certificate, made.Key.Reveal(), "", ""
		var code int
		var body string
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("last answer: %d %s", code, body)
			}
		})
		waittest.Until(t, fmt.Sprintf("a call with the pass gets %d", want), func() bool {
			code, body = send(t, cfg, http.MethodGet, "/api/v1/namespaces/default/configmaps")
			return code == want
		})
	}
	reaches(first, http.StatusOK)
	reaches(second, http.StatusOK)
	if err := issuer.Revoke(t.Context(), "ann-1"); err != nil {
		t.Fatal(err)
	}
	reaches(first, http.StatusUnauthorized)
	reaches(second, http.StatusUnauthorized)
	// A cluster that is removed is gone from all replicas.
	o, err := st.Objects.Get(t.Context(), clusterv1alpha1.Prefix+otherName)
	if err == nil {
		_, err = st.Objects.Delete(t.Context(), o.Key, o.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, replica := range []map[string]*rest.Config{first, second} {
		waittest.Until(t, "the cluster is removed", func() bool {
			code, _ := send(t, replica[otherName], http.MethodGet, "/api/v1/namespaces/default/configmaps")
			return code == http.StatusNotFound
		})
	}
	// The credentials are in Secrets, whose names an administrator can read.
	list, err := cached.admin.CoreV1().Secrets(g.namespace).List(t.Context(), metav1.ListOptions{
		FieldSelector: "type=" + secretsType,
	})
	if err != nil || len(list.Items) == 0 {
		t.Errorf("%d secrets, %v", len(list.Items), err)
	}
}

// grant lets a group read from all clusters, and read configmaps in the other cluster.
func grant(t *testing.T, st *stores.Stores, group string) {
	t.Helper()
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}}
	for key, o := range map[string]any{
		access.RolePrefix + "callers": rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{clusterv1alpha1.Group}, Resources: []string{"clusters/proxy"}, Verbs: []string{"get"},
		}}},
		access.BindingPrefix + "callers": rbacv1.ClusterRoleBinding{
			Subjects: subjects,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "callers"},
		},
	} {
		value, err := json.Marshal(o)
		if err == nil {
			_, err = st.Objects.Create(t.Context(), key, value)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	roles := uncached.admin.RbacV1()
	_, err := roles.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "read-configmaps"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = roles.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "read-configmaps"}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "read-configmaps"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = roles.ClusterRoles().Delete(ctx, "read-configmaps", metav1.DeleteOptions{})
		_ = roles.ClusterRoleBindings().Delete(ctx, "read-configmaps", metav1.DeleteOptions{})
	})
}
