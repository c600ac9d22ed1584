package control_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/access"
	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/control"
	"github.com/clusterpass/clusterpass/shared/gateway"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/identity"
	"github.com/clusterpass/clusterpass/shared/leaktest"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

func TestMain(m *testing.M) {
	// klog flushes for the whole life of a process.
	leaktest.Main(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

const gatewayURL = "https://gateway.example.com"

type installation struct {
	*clustertest.Installation
	t            *testing.T
	log, audit   waittest.Buffer
	controlPlane string // serves the paths that the gateway does not; "" for none
}

func newInstallation(t *testing.T) *installation {
	t.Helper()
	return &installation{Installation: clustertest.NewInstallation(t), t: t}
}

type server struct {
	*gatewaytest.Gateway
	t   *testing.T
	api *control.Server
}

func (h *installation) gateway() *server { return h.gatewayWith(func(*control.Config) {}) }

func (h *installation) gatewayWith(configure func(*control.Config)) *server {
	h.t.Helper()
	stores := h.Reopen()
	log := slog.New(slog.NewJSONHandler(&h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var api *control.Server
	started := gatewaytest.Start(h.t, stores, gatewaytest.Options{Log: log, Configure: func(c *gateway.Config) {
		cfg := control.Config{
			Objects: stores.Objects, Secrets: stores.Secrets, Access: c.Access, Members: c.Members, ControlPlane: h.controlPlane,
			Issuer:   &passes.Issuer{Objects: stores.Objects, Secrets: stores.Secrets, URL: gatewayURL},
			ServerCA: h.CA.PEM(), Log: log,
		}
		configure(&cfg)
		var err error
		api, err = control.New(cfg)
		if err != nil {
			h.t.Fatal(err)
		}
		api.PublishKeys(h.t.Context())
		verifier := passes.NewVerifier(passes.Config{Objects: stores.Objects, Secrets: stores.Secrets,
			URL: gatewayURL, Log: log})
		c.Identity = identity.Chain{
			identity.X509{
				CA: identity.NewClientCA(h.CA.Pool(), nil), Peer: identity.TLSPeer, Inspect: verifier.CheckCertificate,
			},
			identity.Bearer{verifier},
		}
		c.API, c.Audit = api, audit.New(audit.Config{To: &h.audit, Log: log})
		c.Fleet, c.Tokens, c.Recheck = nil, nil, 0
	}})
	return &server{started, h.t, api}
}

func (d *server) config(user string, groups ...string) *rest.Config {
	d.t.Helper()
	cert, key, err := d.CA.Client(user, groups)
	if err != nil {
		d.t.Fatal(err)
	}
	return &rest.Config{Host: d.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
		CAData:   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: d.Certificate().Raw}),
		CertData: cert, KeyData: key,
	}}
}

func (d *server) master() *rest.Config { return d.config("root", access.Masters) }

func (d *server) dynamic(cfg *rest.Config) dynamic.Interface {
	d.t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(client.CloseIdleConnections)
	dyn, err := dynamic.NewForConfigAndClient(cfg, client)
	if err != nil {
		d.t.Fatal(err)
	}
	return dyn
}

func (d *server) call(cfg *rest.Config, method, path, contentType, body string) (int, string) {
	d.t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		d.t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.URL+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := client.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

var (
	clusterGVR  = schema.GroupVersionResource{Group: "cluster.karmada.io", Version: "v1alpha1", Resource: "clusters"}
	registryGVR = schema.GroupVersionResource{Group: "search.karmada.io", Version: "v1alpha1",
		Resource: "resourceregistries"}
	passGVR    = schema.GroupVersionResource{Group: "clusterpass.io", Version: "v1alpha1", Resource: "passes"}
	roleGVR    = rbacv1.SchemeGroupVersion.WithResource("clusterroles")
	bindingGVR = rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")
)

const clusters = "/apis/cluster.karmada.io/v1alpha1/clusters"

func object(t *testing.T, doc string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

var caPEM = sync.OnceValue(func() []byte {
	dir, err := os.MkdirTemp("", "ca")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ca, err := pki.LoadCA(dir, "ca")
	if err != nil {
		panic(err)
	}
	return ca.PEM()
})

func kubeconfig(server, token string) string {
	return string(clustertest.Kubeconfig(server, caPEM(), fmt.Sprintf(`{"token":%q}`, token)))
}

func (h *installation) storedSecrets() map[string]string {
	h.t.Helper()
	out := map[string]string{}
	root := filepath.Join(h.Dir, "secrets")
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		s, err := h.Secrets.Get(h.t.Context(), name)
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

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
	t.Cleanup(cancel)
	return ctx
}
