package control_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/cluster"
	"github.com/clusterpass/clusterpass/shared/control"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/objects"
	objectsdir "github.com/clusterpass/clusterpass/shared/objects/dir"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/secrets"
	secretsdir "github.com/clusterpass/clusterpass/shared/secrets/dir"
)

func TestMain(m *testing.M) {
	// klog flushes for as long as a process lives.
	leaktest.Main(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// house is one installation: stores, and gateways over them.
type house struct {
	t       *testing.T
	dir     string
	secrets secrets.Store
	objects objects.Store
	ca      *pki.CA
	log     *lockedBuffer
	audit   *lockedBuffer
	behind  string // the control-plane cluster; "" for none
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{t: t, dir: t.TempDir(), log: &lockedBuffer{}, audit: &lockedBuffer{}}
	h.secrets, h.objects = h.stores()
	ca, err := pki.LoadCA(h.dir, "client-ca")
	if err != nil {
		t.Fatal(err)
	}
	h.ca = ca
	return h
}

// stores opens the installation's stores once more, as another process would.
func (h *house) stores() (secrets.Store, objects.Store) {
	h.t.Helper()
	sec, err := secretsdir.Open(filepath.Join(h.dir, "secrets"))
	if err != nil {
		h.t.Fatal(err)
	}
	obj, err := objectsdir.Open(filepath.Join(h.dir, "objects"))
	if err != nil {
		h.t.Fatal(err)
	}
	return sec, obj
}

// door is a gateway of its own over the installation's stores.
type door struct {
	*httptest.Server
	h *house
}

func (h *house) gateway() *door { return h.gatewayWith(control.Options{}) }

func (h *house) gatewayWith(opts control.Options) *door {
	h.t.Helper()
	opts.ServerCA = gateway.Certificates{PEM: h.ca.PEM()}
	sec, obj := h.stores()
	log := slog.New(slog.NewJSONHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	members := cluster.NewMembers(cluster.Config{Objects: obj, Secrets: sec, Policy: cluster.DialPolicy{AllowLoopback: true}, Log: log})
	authorizer := access.NewAuthorizer(access.Config{Store: obj, Log: log})
	root, err := opts.Root(gatewayURL, h.behind)(gateway.Parts{Objects: obj, Secrets: sec, Access: authorizer, Members: members, Log: log})
	if err != nil {
		h.t.Fatal(err)
	}
	verifier := passes.NewVerifier(passes.Config{Objects: obj, Secrets: sec, URL: gatewayURL, Log: log})
	gw := gateway.New(gateway.Config{
		Identity: identity.Chain{
			identity.X509{Roots: h.ca.Pool(), Peer: identity.TLSPeer, Inspect: verifier.Certificate}, identity.Bearer{verifier},
		},
		Access: authorizer, Members: members, Log: log, Root: root, Audit: audit.New(audit.Config{To: h.audit, Log: log}),
	})
	d := &door{httptest.NewUnstartedServer(gw), h}
	d.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	d.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	d.StartTLS()
	h.t.Cleanup(func() { d.CloseClientConnections(); d.Close(); members.Close() })
	return d
}

// config is how a client reaches d as user.
func (d *door) config(user string, groups ...string) *rest.Config {
	d.h.t.Helper()
	cert, key, err := d.h.ca.Client(user, groups)
	if err != nil {
		d.h.t.Fatal(err)
	}
	return &rest.Config{Host: d.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
		CAData:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: d.Certificate().Raw}),
		CertData: cert, KeyData: key,
	}}
}

// master is the configuration of who may do everything.
func (d *door) master() *rest.Config { return d.config("root", access.Masters) }

func (d *door) dynamic(cfg *rest.Config) dynamic.Interface {
	d.h.t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		d.h.t.Fatal(err)
	}
	d.h.t.Cleanup(client.CloseIdleConnections)
	dyn, err := dynamic.NewForConfigAndClient(cfg, client)
	if err != nil {
		d.h.t.Fatal(err)
	}
	return dyn
}

// call makes one request and returns its answer's code and body.
func (d *door) call(cfg *rest.Config, method, path, contentType, body string) (int, string) {
	d.h.t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		d.h.t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(d.h.t.Context(), method, d.URL+path, strings.NewReader(body))
	if err != nil {
		d.h.t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := client.Do(req)
	if err != nil {
		d.h.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		d.h.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

var (
	clusterGVR  = schema.GroupVersionResource{Group: "cluster.karmada.io", Version: "v1alpha1", Resource: "clusters"}
	registryGVR = schema.GroupVersionResource{Group: "search.karmada.io", Version: "v1alpha1", Resource: "resourceregistries"}
	passGVR     = schema.GroupVersionResource{Group: "clusterpass.io", Version: "v1alpha1", Resource: "passes"}
	roleGVR     = rbacv1.SchemeGroupVersion.WithResource("clusterroles")
	bindingGVR  = rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")
)

// gatewayURL is what the gateways take for their own.
const gatewayURL = "https://gateway.example.com"

const clusters = "/apis/cluster.karmada.io/v1alpha1/clusters"

func object(t *testing.T, doc string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// caData is a CA certificate as kubeconfigs have it.
var caData = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "ca")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ca, err := pki.LoadCA(dir, "ca")
	if err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(ca.PEM())
})

// kubeconfig is one for a member with that server and token.
func kubeconfig(server, token string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],`+
		`"clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority-data":%q}}],"users":[{"name":"u","user":{"token":%q}}]}`, server, caData(), token)
}

// stored are the secrets that there are, by name.
func (h *house) stored() map[string]string {
	h.t.Helper()
	out := map[string]string{}
	root := filepath.Join(h.dir, "secrets")
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		s, err := h.secrets.Get(h.t.Context(), name)
		if err == nil {
			out[name] = string(s.Value.Reveal())
		}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

// within bounds what a test waits for.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
