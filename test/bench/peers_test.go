package main

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// TestPeerEndpoint fails if a peer got no credential by HTTPS, or the cluster's credential as plain text by HTTP.
func TestPeerEndpoint(t *testing.T) {
	var path, authorization string
	gateway := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		path, authorization = r.URL.Path, r.Header.Get("Authorization")
	})
	encrypted, plain := httptest.NewTLSServer(gateway), httptest.NewServer(gateway)
	defer encrypted.Close()
	defer plain.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: encrypted.Certificate().Raw})
	direct := &rest.Config{Host: "https://cluster.example.com", BearerToken: "direct",
		TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	kubeconfig := filepath.Join(t.TempDir(), "peer")
	if err := clientcmd.WriteToFile(api.Config{
		CurrentContext: "c", Contexts: map[string]*api.Context{"c": {Cluster: "c", AuthInfo: "c"}},
		Clusters:  map[string]*api.Cluster{"c": {Server: encrypted.URL + "/c", CertificateAuthorityData: ca}},
		AuthInfos: map[string]*api.AuthInfo{"c": {Token: "own"}},
	}, kubeconfig); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{
		encrypted.URL + "/c/": "Bearer direct", plain.URL + "/c": "", kubeconfig: "Bearer own",
	} {
		p, err := parsePeer("other=" + address)
		if err != nil {
			t.Fatal(err)
		}
		e, err := p.endpoint(direct)
		if err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		if err := get(t.Context(), e, "/version"); err != nil {
			t.Errorf("%s: %v", address, err)
		}
		if path != "/c/version" || authorization != want {
			t.Errorf("%s: the peer gets %s with %q, want /c/version with %q", address, path, authorization, want)
		}
	}
	redirect := httptest.NewServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer redirect.Close()
	e, err := peer{"other", redirect.URL}.endpoint(direct)
	if err != nil {
		t.Fatal(err)
	}
	if err := get(t.Context(), e, "/version"); err == nil {
		t.Error("a redirect is followed")
	}
	missing := filepath.Join(t.TempDir(), "missing")
	if _, err := (peer{"other", missing}).endpoint(direct); err == nil || !os.IsNotExist(err) {
		t.Errorf("a missing kubeconfig: %v", err)
	}
	for _, bad := range []string{
		"", "name", "name=", "=https://a.example.com", "name=127.0.0.1:8443/c", "name=gateway:8443/c",
		"name=https://user:password@a.example.com", "name=ftp://a.example.com",
		ofGateway + "=https://a.example.com",
	} {
		if _, err := parsePeer(bad); err == nil {
			t.Errorf("--peer %q is accepted", bad)
		}
	}
}
