package e2e

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Caller returns the owner's HTTP client, which does not follow redirects, and the URL of the gateway's root.
func Caller(t *testing.T) (*http.Client, string) {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", Shared(t).Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client, cfg.Host[:strings.Index(cfg.Host, "/clusters/")]
}

// HostOf returns the host and port of the server in a kubeconfig.
func HostOf(t *testing.T, pass string) string {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", pass)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(cfg.Host, "https://")
	addr, _, _ := strings.Cut(rest, "/")
	return addr
}

// StatusOf calls a path that the gateway refuses. It returns the code and message of the Status. A token replaces the
// certificate of the kubeconfig.
func StatusOf(t *testing.T, pass, path string, token *string) string {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", pass)
	if err != nil {
		t.Fatal(err)
	}
	url := cfg.Host[:strings.Index(cfg.Host, "/clusters/")] + path
	if token != nil {
		cfg.CertData, cfg.KeyData, cfg.BearerToken = nil, nil, *token
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var got metav1.Status
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || int(got.Code) != resp.StatusCode {
		t.Fatalf("%s: %v, %+v", resp.Status, err, got)
	}
	return fmt.Sprintf("%d %s", got.Code, got.Message)
}

// DirectClient returns client-go for a cluster, past the gateway.
func DirectClient(t *testing.T, member string) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(Clusters.Cluster(member).RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// DialWebsocket opens a websocket at a path below the server of k. The connection closes with the test.
func DialWebsocket(t *testing.T, k Kubectl, path string, protocols ...string) *websocket.Conn {
	t.Helper()
	conn, resp, err := DialWebsocketFrom(t, k, path, "", protocols...)
	if err != nil {
		if resp != nil {
			t.Fatalf("%s: %v: %s", path, err, resp.Status)
		}
		t.Fatalf("%s: %v", path, err)
	}
	return conn
}

// DialWebsocketFrom is DialWebsocket with the Origin of a web page. An empty origin becomes the server's own.
func DialWebsocketFrom(t *testing.T, k Kubectl, path, origin string, protocols ...string) (*websocket.Conn,
	*http.Response, error) {
	t.Helper()
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{
		ExplicitPath: k.Kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: k.Context,
			ClusterInfo: clientcmdapi.Cluster{Server: k.Server}}).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	tlsConfig.NextProtos = []string{"http/1.1"}
	tlsConfig.MinVersion = tls.VersionTLS12
	d := websocket.Dialer{TLSClientConfig: tlsConfig, Subprotocols: protocols, HandshakeTimeout: Patience}
	if origin == "" {
		u, err := url.Parse(cfg.Host)
		if err != nil {
			t.Fatal(err)
		}
		origin = "https://" + u.Host
	}
	header := http.Header{"Origin": {origin}}
	if cfg.BearerToken != "" {
		header.Set("Authorization", "Bearer "+cfg.BearerToken)
	}
	conn, resp, err := d.DialContext(t.Context(), strings.Replace(cfg.Host, "https://", "wss://", 1)+path, header)
	if err == nil {
		_ = conn.SetReadDeadline(time.Now().Add(Patience))
		t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, resp, err
}
