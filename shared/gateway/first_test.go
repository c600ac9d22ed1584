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

// roles is a store whose roles and bindings cannot be read before asked is closed.
type roles struct {
	objects.Store
	asked chan struct{}
}

func (s *roles) wait(ctx context.Context) error {
	select {
	case <-s.asked:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *roles) Revision(ctx context.Context) (uint64, error) {
	if err := s.wait(ctx); err != nil {
		return 0, err
	}
	return s.Store.Revision(ctx)
}

func (s *roles) List(ctx context.Context, prefix string, limit int, cont string) (objects.Page, error) {
	if err := s.wait(ctx); err != nil {
		return objects.Page{}, err
	}
	return s.Store.List(ctx, prefix, limit, cont)
}

// credentials closes asked once it is asked for a secret.
type credentials struct {
	secrets.Store
	asked func()
}

func (s *credentials) Get(ctx context.Context, name string) (*secrets.Secret, error) {
	s.asked()
	return s.Store.Get(ctx, name)
}

// TestFirstCall holds: a process that has read nothing yet reads a cluster's credential beside the roles that decide, not after them.
func TestFirstCall(t *testing.T) {
	objs := &roles{asked: make(chan struct{})}
	creds := &credentials{asked: sync.OnceFunc(func() { close(objs.asked) })}
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
	// One call, or, where the machine is slow and roles were waited for long enough, some more.
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

// watched are stores that record what they are asked for, and delay secrets and published keys as a test wants.
type watched struct {
	objects.Store
	secrets secrets.Store
	before  func(ctx context.Context, name string) error // a secret, or an object with keys, is returned

	mu    sync.Mutex
	asked []string // names of secrets, and keys of objects below clusters/
}

func (s *watched) note(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, name)
}

func (s *watched) Get(ctx context.Context, key string) (objects.Object, error) {
	if strings.HasPrefix(key, v1alpha1.Prefix) {
		s.note("object " + key)
	}
	if strings.HasPrefix(key, "keys/") {
		if err := s.before(ctx, key); err != nil {
			return objects.Object{}, err
		}
	}
	return s.Store.Get(ctx, key)
}

// credentialsOf is a watched store as one of secrets.
type credentialsOf struct{ *watched }

func (s credentialsOf) Get(ctx context.Context, name string) (*secrets.Secret, error) {
	s.note("secret " + name)
	if err := s.before(ctx, name); err != nil {
		return nil, err
	}
	return s.secrets.Get(ctx, name)
}

const gatewayURL = "https://gateway.example.com"

// newGatewayForPasses returns a gateway that has read nothing yet and accepts passes, over watched stores.
func newGatewayForPasses(t *testing.T, s *watched) *fixture {
	t.Helper()
	h := newGateway(t, gatewaytest.Options{Configure: func(c *gateway.Config) {
		c.Passes = passes.NewVerifier(passes.Config{Objects: s, Secrets: credentialsOf{s}, URL: gatewayURL})
		c.Identity = append(c.Identity, identity.Bearer{c.Passes})
		c.Members = cluster.NewMembers(cluster.Config{
			Objects: s, Secrets: credentialsOf{s}, Log: slog.New(slog.DiscardHandler),
			Policy: cluster.DialPolicy{AllowLoopback: true, Tunnel: &tunnel.Dialer{Keys: c.Passes}},
		})
		t.Cleanup(c.Members.Close)
	}})
	s.Store, s.secrets = h.Objects, h.Secrets
	return h
}

// pass makes a pass of one who may call every cluster.
func pass(t *testing.T, obj objects.Store, sec secrets.Store) (token string) {
	t.Helper()
	issued, err := (&passes.Issuer{Objects: obj, Secrets: sec, URL: gatewayURL}).Create(t.Context(), &passv1alpha1.Pass{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       passv1alpha1.PassSpec{User: "ann", Groups: []string{"dev"}, Clusters: []string{"*"}, Verbs: []string{"*"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(issued.Token.Reveal())
}

// byToken makes a call by a token alone.
func (h *fixture) byToken(token, path string) (code int, body string) {
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

// atOnce is a watched.before that returns a set of keys and the credential of cluster m once both have been asked for.
func atOnce(set string) func(ctx context.Context, name string) error {
	var keys, credential atomic.Bool
	both := make(chan struct{})
	release := sync.OnceFunc(func() { close(both) })
	return func(ctx context.Context, name string) error {
		asked := map[string]*atomic.Bool{set: &keys, "clusters/m": &credential}[name]
		if asked.Store(true); keys.Load() && credential.Load() {
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

// getsBoth fails unless a first call is answered with that code: one is enough, but where the machine stands still for as long as a store may
// take.
func getsBoth(t *testing.T, want int, first func() (code int, body string)) {
	t.Helper()
	var answers []string
	for range 10 {
		code, body := first()
		if code == want {
			return
		}
		answers = append(answers, fmt.Sprintln(code, body))
	}
	t.Errorf("a first call never gets both: %s", answers)
}

// TestFirstCallByPass holds: a process that has read nothing yet asks for a cluster's credential beside the keys that say whether a pass
// holds, so that both are one round trip.
func TestFirstCallByPass(t *testing.T) {
	m := clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	getsBoth(t, http.StatusOK, func() (code int, body string) {
		h := newGatewayForPasses(t, &watched{before: atOnce(passes.PassKeys)})
		h.AddCluster("m", m.Kubeconfig("{token: members-token}"))
		return h.byToken(pass(t, h.Objects, h.Secrets), "/clusters/m/api/v1/pods")
	})
}

// TestFirstCallPrivate holds: a process that has read nothing yet asks for a private cluster's credential beside the keys that it connects to
// the tunnel port with. (No port is there: the answer says that it was looked for.)
func TestFirstCallPrivate(t *testing.T) {
	m := clustertest.NewMember(t, func(http.ResponseWriter, *http.Request) {})
	getsBoth(t, http.StatusBadGateway, func() (code int, body string) {
		h := newGatewayForPasses(t, &watched{before: atOnce(passes.TunnelKeys)})
		h.AddCluster("m", m.Kubeconfig("{token: members-token}"), func(spec *v1alpha1.ClusterSpec) {
			spec.SyncMode, spec.ProxyURL = v1alpha1.Pull, "https://127.0.0.1:1"
		})
		issuer := &passes.Issuer{Objects: h.Objects, Secrets: h.Secrets, URL: gatewayURL}
		of := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
		if _, err := issuer.EnrolAgent(t.Context(), of, time.Hour); err != nil { // so that there are keys
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

// TestMadeUpPasses holds: who makes passes up has one cluster read for them in a process, waits for nothing of it, and learns nothing.
func TestMadeUpPasses(t *testing.T) {
	end := make(chan struct{})
	s := &watched{before: func(_ context.Context, name string) error {
		if name != passes.PassKeys {
			<-end // whatever the deadline
		}
		return nil
	}}
	h := newGatewayForPasses(t, s)
	t.Cleanup(func() { close(end) })
	m := clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	h.AddCluster("m", m.Kubeconfig("{token: members-token}"))
	pass(t, h.Objects, h.Secrets) // so that there are keys

	other := clustertest.NewInstallation(t)
	madeUp := pass(t, other.Objects, other.Secrets)
	code, existing := h.byToken(madeUp, "/clusters/m/api/v1/pods")
	if code != http.StatusUnauthorized {
		t.Errorf("%d %s", code, existing)
	}
	for i := range 20 {
		if code, body := h.byToken(madeUp, fmt.Sprintf("/clusters/n%d/api/v1/pods", i)); code != http.StatusUnauthorized || body != existing {
			t.Errorf("%d %s, of a cluster that exists %s", code, body, existing)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clusters := map[string]int{}
	for _, name := range s.asked {
		if kind, of, _ := strings.Cut(name, " "); of != passes.PassKeys {
			clusters[kind]++
			if of != v1alpha1.Prefix+"m" {
				t.Errorf("asked for %s", name)
			}
		}
	}
	if clusters["object"] > 1 || clusters["secret"] > 1 {
		t.Errorf("the stores were asked for %v", s.asked)
	}
}

// TestTokensOfOthers holds: a bearer token that is nothing to the gateway has no secret read, but that of a cluster that takes such tokens.
func TestTokensOfOthers(t *testing.T) {
	s := &watched{before: func(context.Context, string) error { return nil }}
	h := newGatewayForPasses(t, s)
	m := clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	h.AddCluster("m", m.Kubeconfig("{token: members-token}"))
	h.AddCluster("p", m.Kubeconfig("{}"), func(spec *v1alpha1.ClusterSpec) { spec.Identity = v1alpha1.Passthrough })
	codeOf, of := h.byToken("abc", "/clusters/m/api/v1/pods")
	codeOfNone, ofNone := h.byToken("abc", "/clusters/none/api/v1/pods")
	if codeOf != http.StatusUnauthorized || codeOf != codeOfNone || of != ofNone {
		t.Errorf("%d %s, where there is no cluster %d %s", codeOf, of, codeOfNone, ofNone)
	}
	if code, body := h.byToken("abc", "/clusters/p/api/v1/pods"); code != http.StatusOK {
		t.Errorf("%d %s", code, body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if want := []string{"object clusters/m", "object clusters/none", "object clusters/p", "secret clusters/p"}; !slices.Equal(slices.Compact(s.asked), want) {
		t.Errorf("the stores were asked for %v, want %v", s.asked, want)
	}
}
