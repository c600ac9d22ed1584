package gateway_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	passv1alpha1 "github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/objects"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/secrets"
	"github.com/clusterpass/clusterpass/shared/tunnel"
)

// blockedObjects is a store that answers no Revision or List until ready is closed.
type blockedObjects struct {
	objects.Store
	ready chan struct{}
}

func (s *blockedObjects) wait(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *blockedObjects) Revision(ctx context.Context) (uint64, error) {
	if err := s.wait(ctx); err != nil {
		return 0, err
	}
	return s.Store.Revision(ctx)
}

func (s *blockedObjects) List(ctx context.Context, prefix string, limit int, cont string) (objects.Page, error) {
	if err := s.wait(ctx); err != nil {
		return objects.Page{}, err
	}
	return s.Store.List(ctx, prefix, limit, cont)
}

type observedSecrets struct {
	secrets.Store
	onGet func()
}

func (s *observedSecrets) Get(ctx context.Context, name string) (*secrets.Secret, error) {
	s.onGet()
	return s.Store.Get(ctx, name)
}

// Otherwise the first call of each function waits for two round trips.
func TestFirstCallReadsRolesAndCredentialTogether(t *testing.T) {
	objs := &blockedObjects{ready: make(chan struct{})}
	creds := &observedSecrets{onGet: sync.OnceFunc(func() { close(objs.ready) })}
	h := newGateway(t, gatewaytest.Options{Function: gateway.NewFunction(""), Configure: func(c *gateway.Config) {
		c.Access = access.NewAuthorizer(access.Config{Store: objs, Log: slog.New(slog.DiscardHandler)})
		c.Members = cluster.NewMembers(cluster.Config{
			Objects: objs, Secrets: creds, Log: slog.New(slog.DiscardHandler), Policy: cluster.DialPolicy{AllowLoopback: true},
		})
		t.Cleanup(c.Members.Close)
	}})
	objs.Store, creds.Store = h.Objects, h.Secrets
	m := clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	h.AddCluster("m", m.Kubeconfig("{token: members-token}"))
	// On a slow machine the read of the roles may time out, so that one call is not enough.
	for end := time.Now().Add(2 * time.Minute); ; {
		resp := h.Do("GET", "/clusters/m/api/v1/pods", nil, "")
		if resp.StatusCode == http.StatusOK {
			return
		}
		if resp.StatusCode != http.StatusServiceUnavailable || time.Now().After(end) {
			t.Fatal(resp.Status)
		}
	}
}

type recordedStores struct {
	objects.Store
	secrets secrets.Store
	before  func(ctx context.Context, name string) error // called before each read of a secret or of published keys

	mu    sync.Mutex
	reads []string // "secret NAME", or "object KEY" for keys below clusters/
}

func (s *recordedStores) record(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = append(s.reads, name)
}

func (s *recordedStores) Get(ctx context.Context, key string) (objects.Object, error) {
	if strings.HasPrefix(key, v1alpha1.Prefix) {
		s.record("object " + key)
	}
	if strings.HasPrefix(key, "keys/") {
		if err := s.before(ctx, key); err != nil {
			return objects.Object{}, err
		}
	}
	return s.Store.Get(ctx, key)
}

type recordedSecrets struct{ *recordedStores }

func (s recordedSecrets) Get(ctx context.Context, name string) (*secrets.Secret, error) {
	s.record("secret " + name)
	if err := s.before(ctx, name); err != nil {
		return nil, err
	}
	return s.secrets.Get(ctx, name)
}

const gatewayURL = "https://gateway.example.com"

func newGatewayForPasses(t *testing.T, s *recordedStores) *fixture {
	t.Helper()
	h := newGateway(t, gatewaytest.Options{Configure: func(c *gateway.Config) {
		c.Passes = passes.NewVerifier(passes.Config{Objects: s, Secrets: recordedSecrets{s}, URL: gatewayURL})
		c.Identity = append(c.Identity, identity.Bearer{c.Passes})
		c.Members = cluster.NewMembers(cluster.Config{
			Objects: s, Secrets: recordedSecrets{s}, Log: slog.New(slog.DiscardHandler),
			Policy: cluster.DialPolicy{AllowLoopback: true, Tunnel: &tunnel.Dialer{Verifier: c.Passes}},
		})
		t.Cleanup(c.Members.Close)
	}})
	s.Store, s.secrets = h.Objects, h.Secrets
	return h
}

func createPass(t *testing.T, obj objects.Store, sec secrets.Store) (token string) {
	t.Helper()
	issued, err := (&passes.Issuer{Objects: obj, Secrets: sec, URL: gatewayURL}).Create(t.Context(), &passv1alpha1.Pass{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: passv1alpha1.PassSpec{
			User: "ann", Groups: []string{"dev"}, Clusters: []string{"*"}, Verbs: []string{"*"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(issued.Token.Reveal())
}

func (h *fixture) getWithToken(token, path string) (code int, body string) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+path, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := h.Client().Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// untilBothAreRead blocks until both the key set and the credential of cluster m are being read.
func untilBothAreRead(set string) func(ctx context.Context, name string) error {
	var keys, credential atomic.Bool
	both := make(chan struct{})
	release := sync.OnceFunc(func() { close(both) })
	return func(ctx context.Context, name string) error {
		isRead := map[string]*atomic.Bool{set: &keys, "clusters/m": &credential}[name]
		if isRead.Store(true); keys.Load() && credential.Load() {
			release()
		}
		select {
		case <-both:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// wantFirstCall tries several processes: on a slow machine a store's deadline may pass before both reads have begun.
func wantFirstCall(t *testing.T, want int, first func() (code int, body string)) {
	t.Helper()
	var answers []string
	for range 10 {
		code, body := first()
		if code == want {
			return
		}
		answers = append(answers, fmt.Sprintln(code, body))
	}
	t.Errorf("no first call reads both at once: %s", answers)
}

func TestFirstCallReadsPassKeysAndCredentialTogether(t *testing.T) {
	m := clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	wantFirstCall(t, http.StatusOK, func() (code int, body string) {
		h := newGatewayForPasses(t, &recordedStores{before: untilBothAreRead(passes.PassKeys)})
		h.AddCluster("m", m.Kubeconfig("{token: members-token}"))
		return h.getWithToken(createPass(t, h.Objects, h.Secrets), "/clusters/m/api/v1/pods")
	})
}

// The test has no tunnel port, so a 502 shows the attempt to connect.
func TestFirstCallReadsTunnelKeysAndCredentialTogether(t *testing.T) {
	m := clustertest.NewMember(t, func(http.ResponseWriter, *http.Request) {})
	wantFirstCall(t, http.StatusBadGateway, func() (code int, body string) {
		h := newGatewayForPasses(t, &recordedStores{before: untilBothAreRead(passes.TunnelKeys)})
		h.AddCluster("m", m.Kubeconfig("{token: members-token}"), func(spec *v1alpha1.ClusterSpec) {
			spec.SyncMode, spec.ProxyURL = v1alpha1.Pull, "https://127.0.0.1:1"
		})
		issuer := &passes.Issuer{Objects: h.Objects, Secrets: h.Secrets, URL: gatewayURL}
		m := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
		if _, err := issuer.EnrolAgent(t.Context(), m, time.Hour); err != nil { // publishes keys
			t.Fatal(err)
		}
		resp := h.Do("GET", "/clusters/m/api/v1/pods", nil, "")
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	})
}

// Made-up passes must cost one read of a cluster in a process, and not reveal whether a cluster exists.
func TestMadeUpPasses(t *testing.T) {
	end := make(chan struct{})
	s := &recordedStores{before: func(_ context.Context, name string) error {
		if name != passes.PassKeys {
			<-end // ignores the deadline
		}
		return nil
	}}
	h := newGatewayForPasses(t, s)
	t.Cleanup(func() { close(end) })
	m := clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	h.AddCluster("m", m.Kubeconfig("{token: members-token}"))
	createPass(t, h.Objects, h.Secrets) // publishes keys

	other := clustertest.NewInstallation(t)
	madeUp := createPass(t, other.Objects, other.Secrets)
	code, existing := h.getWithToken(madeUp, "/clusters/m/api/v1/pods")
	if code != http.StatusUnauthorized {
		t.Errorf("%d %s", code, existing)
	}
	for i := range 20 {
		code, body := h.getWithToken(madeUp, fmt.Sprintf("/clusters/n%d/api/v1/pods", i))
		if code != http.StatusUnauthorized || body != existing {
			t.Errorf("a missing cluster: %d %s, an existing one: %s", code, body, existing)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clusters := map[string]int{}
	for _, read := range s.reads {
		if kind, name, _ := strings.Cut(read, " "); name != passes.PassKeys {
			clusters[kind]++
			if name != v1alpha1.Prefix+"m" {
				t.Errorf("the gateway read %s", read)
			}
		}
	}
	if clusters["object"] > 1 || clusters["secret"] > 1 {
		t.Errorf("the gateway read %v", s.reads)
	}
}

// Only a passthrough cluster's secret is read, since that cluster accepts such tokens itself.
func TestUnknownBearerTokensReadNoSecret(t *testing.T) {
	s := &recordedStores{before: func(context.Context, string) error { return nil }}
	h := newGatewayForPasses(t, s)
	m := clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	h.AddCluster("m", m.Kubeconfig("{token: members-token}"))
	h.AddCluster("p", m.Kubeconfig("{}"), func(spec *v1alpha1.ClusterSpec) { spec.Identity = v1alpha1.Passthrough })
	code, body := h.getWithToken("abc", "/clusters/m/api/v1/pods")
	missingCode, missingBody := h.getWithToken("abc", "/clusters/none/api/v1/pods")
	if code != http.StatusUnauthorized || code != missingCode || body != missingBody {
		t.Errorf("an existing cluster: %d %s, a missing one: %d %s", code, body, missingCode, missingBody)
	}
	if code, body := h.getWithToken("abc", "/clusters/p/api/v1/pods"); code != http.StatusOK {
		t.Errorf("%d %s", code, body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	want := []string{"object clusters/m", "object clusters/none", "object clusters/p", "secret clusters/p"}
	if !slices.Equal(slices.Compact(s.reads), want) {
		t.Errorf("the gateway read %v, want %v", s.reads, want)
	}
}
