package browser

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/cluster"
	"github.com/clusterpass/clusterpass/test/e2e"
	"github.com/clusterpass/clusterpass/test/kubelet"
)

// podEnv makes this program the server of a user interface, at that address.
const podEnv = "BROWSER_TEST_POD"

func TestMain(m *testing.M) {
	if address := os.Getenv(podEnv); address != "" {
		fmt.Println(http.ListenAndServe(address, userInterface()))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// liveTitle is the title that the page of the user interface gets from its websocket.
const liveTitle = "live"

// userInterface returns a handler of a page that needs a script and a websocket, and of an API.
func userInterface() http.Handler {
	files := map[string]struct{ contentType, text string }{
		"/{$}":    {"text/html", `<!DOCTYPE html><title>waiting</title><script src="app.js"></script>`},
		"/app.js": {"text/javascript", appScript},
		"/api":    {"text/plain", "data"},
	}
	mux := http.NewServeMux()
	for path, file := range files {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", file.contentType)
			_, _ = w.Write([]byte(file.text))
		})
	}
	mux.HandleFunc("/socket", func(w http.ResponseWriter, r *http.Request) {
		conn, err := new(websocket.Upgrader).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		if conn.WriteMessage(websocket.TextMessage, []byte(liveTitle)) == nil {
			_, _, _ = conn.ReadMessage() // until the page closes
		}
	})
	return mux
}

const appScript = `
fetch("ran");
const url = new URL("socket", location.href);
url.protocol = url.protocol.replace("http", "ws");
new WebSocket(url).onmessage = (event) => { document.title = event.data; };`

// interfaceYAML has a pod of the user interface, its service, and the right of alice to use them. It is a format for
// the network of the pod, the node, the path of this program and podEnv.
const interfaceYAML = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: alice}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
---
apiVersion: v1
kind: Service
metadata: {name: dashboard}
spec:
  selector: {app: dashboard}
  ports: [{port: 80, targetPort: http}]
---
apiVersion: v1
kind: Pod
metadata: {name: dashboard, labels: {app: dashboard}, annotations: {process-kubelet/address: %s}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  containers:
  - name: dashboard
    image: any
    command: [%q]
    env:
    - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: %s, value: "$(IP):8080"}
    ports: [{name: http, containerPort: 8080}]
    readinessProbe: {httpGet: {path: /api, port: http}, periodSeconds: 1}
`

// startInterface starts a cluster with the user interface, and returns the cluster, its kubectl and the pod's address.
func startInterface(t *testing.T) (c *cluster.Cluster, kubectl string, pod *url.URL) {
	t.Helper()
	set := cluster.Start(t, cluster.Options{Minimal: true})
	c, kubectl = set.Clusters()[0], set.Kubectl()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	k := e2e.Kubectl{Kubeconfig: c.KubeconfigFile(), Context: c.Name()}
	run := func(stdin string, args ...string) string {
		t.Helper()
		r := k.RunWith(t, kubectl, strings.NewReader(stdin), args...)
		if r.Code != 0 {
			t.Fatalf("kubectl %v: %v", args, r)
		}
		return r.Stdout
	}
	run(fmt.Sprintf(interfaceYAML, kubelet.NewNetwork(), c.Node(), self, podEnv), "apply", "-f", "-")
	run("", "wait", "--for=condition=Ready", "pod/dashboard", "--timeout=4m")
	ip := run("", "get", "pod", "dashboard", "-o", "jsonpath={.status.podIP}")
	return c, kubectl, &url.URL{Scheme: "http", Host: ip + ":8080"}
}

// kubectlThrough returns kubectl for a cluster of the gateway, with the certificate that the browser has.
func kubectlThrough(t *testing.T, g *gatewaytest.Gateway, name string) e2e.Kubectl {
	t.Helper()
	certificate, key := writeCertificate(t, g)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.Certificate().Raw})
	user := fmt.Sprintf(`{"client-certificate":%q,"client-key":%q}`, certificate, key)
	if err := os.WriteFile(file, clustertest.Kubeconfig(g.URL+"/clusters/"+name, ca, user), 0o600); err != nil {
		t.Fatal(err)
	}
	return e2e.Kubectl{Kubeconfig: file, Context: "x"}
}

// TestUserInterfaceRunsByPortForward: a user interface behind spec.serviceProxy has the gateway's origin, so a browser
// must not run it there. Its API must work there, and kubectl port-forward must show the whole interface.
func TestUserInterfaceRunsByPortForward(t *testing.T) {
	c, kubectl, pod := startInterface(t)
	// A kube-apiserver refuses proxy subresources of pods on loopback, so another member answers these.
	const proxied = "/api/v1/namespaces/default/services/dashboard:80/proxy"
	member := http.NewServeMux()
	member.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	member.Handle(proxied+"/", http.StripPrefix(proxied,
		&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(pod) }}))
	g, requests := newGateway(t, member)
	g.EditCluster("m", func(c *v1alpha1.Cluster) { c.Spec.ServiceProxy = []string{"services/default/dashboard:80"} })

	const path = "/clusters/m" + proxied + "/"
	if text, resp := g.DoText(http.MethodGet, path+"api", nil, ""); text != "data" {
		t.Errorf("the API of the interface: %d %q", resp.StatusCode, text)
	}
	if codes := browse(t, g, g.URL+path); len(codes) != 1 || codes[0] != "200" || !requests.has("GET "+path) {
		t.Fatalf("the page is not shown: %v", codes)
	}
	for _, name := range []string{"ran", "socket"} {
		if requests.has("GET " + path + name) {
			t.Errorf("the browser requests %s on the gateway's origin", name)
		}
	}

	g.AddCluster(c.Name(), c.Kubeconfig())
	k := kubectlThrough(t, g, c.Name())
	waittest.Until(t, "member knows the rights of alice", func() bool {
		return k.RunWith(t, kubectl, nil, "auth", "can-i", "create", "pods/portforward").Code == 0
	})
	s := k.Start(t, kubectl, "port-forward", "service/dashboard", ":80")
	address, _, _ := strings.Cut(strings.TrimPrefix(s.Line("Forwarding from 127.0.0.1:"), "Forwarding from "), " ")
	if codes := browseUntil(t, g, liveTitle, "http://"+address); len(codes) != 1 || codes[0] != "200" {
		t.Errorf("the page by port-forward: %v", codes)
	}
}
