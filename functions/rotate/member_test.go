package rotate

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/objects"
	objectsdir "github.com/clusterpass/clusterpass/shared/objects/dir"
)

// fakeMember is an API server that supports only tokens.
type fakeMember struct {
	*httptest.Server
	mu     sync.Mutex
	users  map[string]string // by token
	minted int
	asked  []string // bodies of token requests
	forbid bool
}

const robot = "system:serviceaccount:clusterpass:gateway"

func newMember(t *testing.T) *fakeMember {
	m := &fakeMember{users: map[string]string{"token-0": robot}}
	m.Server = httptest.NewTLSServer(m)
	m.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	t.Cleanup(m.Close)
	return m
}

func (m *fakeMember) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	user := m.users[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	switch {
	case user == "":
		http.Error(w, "who are you", http.StatusUnauthorized)
	case r.Method == http.MethodPost && r.URL.Path == "/apis/authentication.k8s.io/v1/selfsubjectreviews":
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"status":{"userInfo":{"username":%q}}}`, user)
	case r.Method == http.MethodPost && r.URL.Path == "/api/v1/namespaces/clusterpass/serviceaccounts/gateway/token" &&
		!m.forbid:
		m.minted++
		m.asked = append(m.asked, string(body))
		token := fmt.Sprintf("token-%d", m.minted)
		m.users[token] = user
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"status":{"token":%q,"expirationTimestamp":%q}}`, token,
			time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	default:
		http.Error(w, "you may not", http.StatusForbidden)
	}
}

func (m *fakeMember) accepts(token string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.users[token] != ""
}

// kubeconfig contains unnecessary entries, which rotation must keep.
func (m *fakeMember) kubeconfig(token string) string {
	ca, _ := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.Certificate().Raw}))
	return fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: here,
contexts: [{name: there, context: {cluster: c, user: other}},
  {name: here, context: {cluster: c, user: u, namespace: kept}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}],
users: [{name: other, user: {token: untouched}}, {name: u, user: {token: %s}}]}`, m.URL, ca, token)
}

// tokenOf returns the token of the version with a stage.
func tokenOf(t *testing.T, m Manager, secret, stage string) string {
	t.Helper()
	out, err := m.GetSecretValue(t.Context(), &secretsmanager.GetSecretValueInput{SecretId: &secret, VersionStage: &stage})
	if err != nil {
		t.Fatal(err)
	}
	kc, user, err := currentUser([]byte(*out.SecretString))
	if err != nil {
		t.Fatal(err)
	}
	if kc.AuthInfos[0].AuthInfo.Token != "untouched" || kc.Contexts[1].Context.Namespace != "kept" {
		t.Error("rotation changed more than the token")
	}
	return user.Token
}

const secretName = "clusterpass/clusters/member1"

// stand has a secret, its cluster and its member.
type stand struct {
	*fakeMember
	manager Manager
	secret  string
	begin   func(id string) // starts a rotation
	objects objects.Store
	log     *bytes.Buffer
}

func (b *stand) rotator(m Manager) *Rotator {
	return &Rotator{
		Manager: m, Prefix: "clusterpass/", Objects: b.objects, Policy: cluster.DialPolicy{AllowLoopback: true},
		Lifetime: 48 * time.Hour, Log: slog.New(slog.NewTextHandler(b.log, nil)),
	}
}

func (b *stand) handle(ctx context.Context, m Manager, step string, id string) error {
	return b.rotator(m).Handle(ctx, Event{Step: step, SecretID: b.secret, ClientRequestToken: id})
}

var steps = []string{"createSecret", "setSecret", "testSecret", "finishSecret"}

// rotate runs the four steps in order, like Secrets Manager.
func (b *stand) rotate(ctx context.Context, m Manager, id string) error {
	for _, step := range steps {
		if err := b.handle(ctx, m, step, id); err != nil {
			return err
		}
	}
	return nil
}

func newStand(t *testing.T, member *fakeMember, name string) *stand {
	t.Helper()
	store, err := objectsdir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &stand{fakeMember: member, secret: name, objects: store, log: &bytes.Buffer{}}
	b.addCluster(t, "another", `{}`)
	b.addCluster(t, "broken", `not JSON`)
	b.addCluster(t, "member1", fmt.Sprintf(`{"spec":{"secretRef":{"name":%q}}}`, strings.TrimPrefix(name, "clusterpass/")))
	return b
}

func (b *stand) addCluster(t *testing.T, name, value string) {
	t.Helper()
	if _, err := b.objects.Create(t.Context(), v1alpha1.Prefix+name, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

// onFake returns a stand with a fakeManager. The current version is id(0).
func onFake(t *testing.T, kubeconfig func(*fakeMember) string) (*stand, *fakeManager) {
	t.Helper()
	member := newMember(t)
	b := newStand(t, member, secretName)
	f := newFakeManager(secretName, id(0), kubeconfig(member))
	b.manager, b.begin = f, f.begin
	return b, f
}
