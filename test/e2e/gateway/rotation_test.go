package gateway_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/clusterpass/clusterpass/functions/rotate"
	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/cluster"
	gatewaypkg "github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/identity"
	objectsdir "github.com/clusterpass/clusterpass/shared/objects/dir"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/secrets/awssecrets"
	"github.com/clusterpass/clusterpass/shared/waittest"
	testcluster "github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// rotationRBAC gives the gateway's account the rights of `cluster join`, and alice the rights for her requests.
const rotationRBAC = `
apiVersion: v1
kind: Namespace
metadata: {name: rotation}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: gateway, namespace: rotation}
---
apiVersion: v1
kind: Secret
metadata: {name: first-token, namespace: rotation}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: before, namespace: rotation}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: rotation-gateway}
rules:
- {apiGroups: [""], resources: [users, groups, serviceaccounts], verbs: [impersonate]}
- {apiGroups: [authentication.k8s.io], resources: ["*"], verbs: [impersonate]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: rotation-gateway}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: rotation-gateway}
subjects: [{kind: ServiceAccount, name: gateway, namespace: rotation}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: own-token, namespace: rotation}
rules: [{apiGroups: [""], resources: [serviceaccounts/token], resourceNames: [gateway], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: own-token, namespace: rotation}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: own-token}
subjects: [{kind: ServiceAccount, name: gateway, namespace: rotation}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: alice, namespace: rotation}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
`

const rotatedSecret = "clusterpass/clusters/member1"

// TestCallsOutliveRotations: a rotation of a cluster's credential must not break requests or watches, with the cache of
// functions on AWS:
//   - The first token stays valid, so requests use it and do not read the secret again.
//   - After the first token is revoked, requests of each method continue with the newest one.
func TestCallsOutliveRotations(t *testing.T) {
	ctx := t.Context()
	member := e2e.Clusters.Cluster("member1")
	admin, err := kubernetes.NewForConfig(member.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	ns := applyRotationRBAC(t, admin)
	first := firstToken(t, admin, ns)
	e2e.Secrets.Secret("the first token", first)

	moto, err := mototest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(moto.Close)
	manager := secretsmanager.NewFromConfig(mototest.Config(moto.URL))
	if _, err := manager.CreateSecret(ctx, &secretsmanager.CreateSecretInput{
		Name: aws.String(rotatedSecret), SecretString: aws.String(tokenKubeconfig(member, first)),
	}); err != nil {
		t.Fatal(err)
	}
	objects := rotationObjects(t)
	log := slog.New(slog.NewJSONHandler(e2e.Printed, nil))
	rotator := &rotate.Rotator{
		Manager: manager, Prefix: "clusterpass/", Objects: objects, Policy: cluster.DialPolicy{AllowLoopback: true},
		Lifetime: time.Hour, Log: log,
	}
	// The test moves the clock of the caches, so that their reads do not depend on the machine's speed.
	start, passed := time.Now(), atomic.Int64{}
	gateways := make([]*gatewayOnAWS, 4)
	for i := range gateways {
		gateways[i] = serveOnAWS(t, moto.URL, objects, log, func() time.Time {
			return start.Add(time.Duration(passed.Load()))
		})
		// The member applies alice's rights after a moment.
		waittest.Until(t, "alice may list config maps", func() bool {
			_, err := gateways[i].maps(ns).List(ctx, metav1.ListOptions{})
			return err == nil
		})
		gateways[i].warm = gateways[i].members.Stats()["secrets"].Fetches
	}
	busy, idle := gateways[0], gateways[1:]

	load := startLoad(t, busy, ns)
	for n := range 3 {
		load.more(t, 50)
		e2e.RotateOnce(t, manager, rotator, rotatedSecret, n)
		if e2e.NoteSecretsManager(t, moto.URL) < 2 {
			t.Error("the previous version is not kept")
		}
	}
	load.more(t, 50)
	busy.wantReads(t, 0, 0) // all requests used the first token

	revoke(t, admin, member, ns, first)
	load.more(t, 100)
	busy.wantReads(t, 1, load.parallel) // once, or once for each concurrent refusal
	t.Run("the first call afterwards", func(t *testing.T) {
		maps := func(g *gatewayOnAWS) typedcorev1.ConfigMapInterface { return g.maps(ns) }
		for method, call := range map[string]func() error{
			"LIST": func() error {
				_, err := maps(idle[0]).List(ctx, metav1.ListOptions{})
				return err
			},
			"POST": func() error {
				_, err := maps(idle[1]).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "after"}},
					metav1.CreateOptions{})
				return err
			},
			"DELETE": func() error {
				return maps(idle[2]).Delete(ctx, "before", metav1.DeleteOptions{})
			},
		} {
			if err := call(); err != nil {
				t.Errorf("%s: %v", method, err)
			}
		}
		for _, g := range idle {
			g.wantReads(t, 1, 1)
		}
	})
	passed.Store(int64(2 * time.Minute)) // expires the cached secret
	load.more(t, 50)
	load.end(t)
	busy.wantReads(t, 2, 1+load.parallel)
}

func applyRotationRBAC(t *testing.T, admin kubernetes.Interface) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rbac.yaml")
	ns := e2e.UniqueName(t)
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(rotationRBAC, "rotation", ns)), 0o600); err != nil {
		t.Fatal(err)
	}
	e2e.Direct("member1").Must(t, "apply", "-f", file)
	t.Cleanup(func() { // cluster-scoped objects outlive the namespace
		cleanupCtx, cancel := context.WithTimeout(context.Background(), e2e.Patience)
		defer cancel()
		_ = admin.RbacV1().ClusterRoleBindings().Delete(cleanupCtx, ns+"-gateway", metav1.DeleteOptions{})
		_ = admin.RbacV1().ClusterRoles().Delete(cleanupCtx, ns+"-gateway", metav1.DeleteOptions{})
		_ = admin.CoreV1().Namespaces().Delete(cleanupCtx, ns, metav1.DeleteOptions{})
	})
	return ns
}

// firstToken is bound to a Secret of the member, so that it can be revoked.
func firstToken(t *testing.T, admin kubernetes.Interface, ns string) string {
	t.Helper()
	bound, err := admin.CoreV1().Secrets(ns).Get(t.Context(), "first-token", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	req, err := admin.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), "gateway", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: bound.Name,
				UID: bound.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return req.Status.Token
}

// revoke waits until the member refuses the token.
func revoke(t *testing.T, admin kubernetes.Interface, member *testcluster.Cluster, ns, token string) {
	t.Helper()
	if err := admin.CoreV1().Secrets(ns).Delete(t.Context(), "first-token", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	cfg := rest.AnonymousClientConfig(member.RESTConfig())
	cfg.BearerToken = token
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	refused := e2e.Within(t, func() bool {
		_, err = client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{},
			metav1.CreateOptions{})
		return apierrors.IsUnauthorized(err)
	})
	if !refused {
		t.Fatalf("the first token is still good: %v", err)
	}
}

func tokenKubeconfig(member *testcluster.Cluster, token string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Config, contexts: [{name: x, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}], users: [{name: u, user: {token: %q}}]}`,
		member.Server(), base64.StdEncoding.EncodeToString(member.CA()), token)
}

func rotationObjects(t *testing.T) *objectsdir.Store {
	t.Helper()
	objects, err := objectsdir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{
		v1alpha1.Prefix + "member1": `{}`,
		"clusterroles/all": `{"metadata":{"name":"all"},` +
			`"rules":[{"apiGroups":["cluster.karmada.io"],"resources":["clusters/proxy"],"verbs":["*"]}]}`,
		"clusterrolebindings/all": `{"metadata":{"name":"all"},` +
			`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"all"},` +
			`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"alice"}]}`,
	} {
		if _, err := objects.Create(t.Context(), key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	return objects
}

type gatewayOnAWS struct {
	members *cluster.Members
	alice   *kubernetes.Clientset
	warm    uint64 // reads of the secret before the test's load
}

func (g *gatewayOnAWS) maps(namespace string) typedcorev1.ConfigMapInterface {
	return g.alice.CoreV1().ConfigMaps(namespace)
}

func (g *gatewayOnAWS) wantReads(t *testing.T, least, most uint64) {
	t.Helper()
	if n := g.members.Stats()["secrets"].Fetches - g.warm; n < least || n > most {
		t.Errorf("the secret was read %d times, want %d to %d", n, least, most)
	}
}

func serveOnAWS(t *testing.T, url string, objects *objectsdir.Store, log *slog.Logger,
	now func() time.Time) *gatewayOnAWS {
	t.Helper()
	store, err := awssecrets.New(awssecrets.Config{AWS: mototest.Config(url), Prefix: "clusterpass/"})
	if err != nil {
		t.Fatal(err)
	}
	members := cluster.NewMembers(cluster.Config{
		Objects: objects, Secrets: store, Freshness: cluster.Remote, Policy: cluster.DialPolicy{AllowLoopback: true},
		Log: log, Now: now,
	})
	t.Cleanup(members.Close)
	pkiDir := t.TempDir()
	ca, err := pki.LoadCA(pkiDir, "client-ca")
	if err != nil {
		t.Fatal(err)
	}
	e2e.NoteFiles(pkiDir)
	cert, key, err := ca.Client("alice", nil)
	if err != nil {
		t.Fatal(err)
	}
	e2e.Secrets.Document("alice's key", key)
	srv := httptest.NewUnstartedServer(gatewaypkg.New(gatewaypkg.Config{
		Identity: identity.Chain{identity.X509{CA: identity.NewClientCA(ca.Pool(), nil), Peer: identity.TLSPeer}},
		Access:   access.NewAuthorizer(access.Config{Store: objects, Log: log}),
		Members:  members, Log: log,
	}))
	srv.EnableHTTP2 = true
	srv.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	srv.Config.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelInfo)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	alice, err := kubernetes.NewForConfig(&rest.Config{
		Host: srv.URL + "/clusters/member1", QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true, CertData: cert, KeyData: key},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &gatewayOnAWS{members: members, alice: alice}
}

type load struct {
	stopCalls, stopWatch context.CancelFunc
	callers, watcher     sync.WaitGroup
	parallel             uint64 // callers

	calls atomic.Int64
	errs  chan error

	written, watched atomic.Int64 // objects that the writer created, and that the watcher received
}

func startLoad(t *testing.T, g *gatewayOnAWS, ns string) *load {
	t.Helper()
	l := &load{errs: make(chan error, 100)}
	var ctx, watching context.Context
	watching, l.stopWatch = context.WithCancel(t.Context())
	ctx, l.stopCalls = context.WithCancel(watching)
	t.Cleanup(l.stopWatch)
	maps := g.maps(ns)
	watch, err := maps.Watch(watching, metav1.ListOptions{LabelSelector: "by=load"})
	if err != nil {
		t.Fatal(err)
	}
	l.watcher.Go(func() {
		defer watch.Stop()
		for {
			select {
			case <-watching.Done():
				return
			case ev, open := <-watch.ResultChan():
				if !open || ev.Type == "ERROR" {
					l.fail(watching, errors.New("the watch broke"))
					return
				}
				if ev.Type == "ADDED" {
					l.watched.Add(1)
				}
			}
		}
	})
	l.loop(ctx, func(i int) error {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("load-%d", i),
			Labels: map[string]string{"by": "load"}}}
		if _, err := maps.Create(watching, m, metav1.CreateOptions{}); err != nil {
			return err
		}
		l.written.Add(1)
		return maps.Delete(watching, m.Name, metav1.DeleteOptions{})
	})
	for range 4 {
		l.loop(ctx, func(int) error {
			_, err := maps.List(ctx, metav1.ListOptions{})
			return err
		})
	}
	return l
}

func (l *load) loop(ctx context.Context, call func(i int) error) {
	l.parallel++
	l.callers.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if err := call(i); err != nil {
				l.fail(ctx, err)
			}
			l.calls.Add(1)
		}
	})
}

func (l *load) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	select {
	case l.errs <- err:
	default:
	}
}

func (l *load) more(t *testing.T, n int64) {
	t.Helper()
	target := l.calls.Load() + n
	if !e2e.Within(t, func() bool { return l.calls.Load() >= target }) {
		t.Fatalf("%d calls in %s, want %d", l.calls.Load(), e2e.Patience, target)
	}
}

// end waits until the watch has shown each object, and reports all failures.
func (l *load) end(t *testing.T) {
	t.Helper()
	l.stopCalls()
	l.callers.Wait()
	e2e.Within(t, func() bool { return l.watched.Load() >= l.written.Load() })
	l.stopWatch()
	l.watcher.Wait()
	close(l.errs)
	for err := range l.errs {
		t.Errorf("a call failed during a rotation: %v", err)
	}
	if l.watched.Load() != l.written.Load() || l.written.Load() == 0 {
		t.Errorf("the watch showed %d of %d objects", l.watched.Load(), l.written.Load())
	}
	t.Logf("%d calls, %d objects watched", l.calls.Load(), l.watched.Load())
}
