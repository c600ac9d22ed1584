package main

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/control"
)

// TestDiscover: login asks the gateway for its login methods and writes the matching entry.
func TestDiscover(t *testing.T) {
	const (
		oidc  = "oidc:\n- {url: https://login.example.com, audiences: [cp], requiredClaims: {tenant: secretive}}\n"
		oidc2 = "- {url: https://other.example.com, audiences: [cp]}\n"
		aws   = "awsIAM: {gatewayID: cp, accounts: ['111122223333']}\n"
	)
	for config, want := range map[string]string{
		oidc:         "kubectl oidc-login get-token --oidc-issuer-url=https://login.example.com --oidc-client-id=cp",
		aws:          "aws eks get-token --cluster-name cp",
		"":           "accepts only passes and client certificates",
		oidc + aws:   "choose one: --oidc-issuer https://login.example.com --oidc-client cp, --eks-name cp",
		oidc + oidc2: "https://other.example.com",
	} {
		var a assembly.Authentication
		if err := a.Decode(config); err != nil {
			t.Fatal(err)
		}
		api, err := control.New(control.Config{Authentication: a.String()})
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rec := httptest.NewRecorder()
			if !api.ServePublic(rec, r, r.URL.Path) {
				w.WriteHeader(http.StatusUnauthorized) // the response to all later requests
				return
			}
			if strings.Contains(rec.Body.String(), "secretive") || strings.Contains(rec.Body.String(), "1111") {
				t.Errorf("everybody is told %s", rec.Body)
			}
			_, _ = w.Write(rec.Body.Bytes())
		}))
		defer srv.Close()
		ca := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}),
			0o600); err != nil {
			t.Fatal(err)
		}
		req := &loginRequest{ca: ca, clusters: []string{"m1"}, kubeconfig: filepath.Join(t.TempDir(), "config")}
		u, err := req.user(t.Context(), srv.URL, nil)
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %s", config, err, want)
			}
			continue
		}
		if err := req.write(&strings.Builder{}, u, req.clusters); err != nil {
			t.Fatal(err)
		}
		kc, err := clientcmd.LoadFromFile(req.kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		if e := kc.AuthInfos["clusterpass"].Exec; !strings.Contains(e.Command+" "+strings.Join(e.Args, " "), want) {
			t.Errorf("%q: %s %q, want %s", config, e.Command, e.Args, want)
		}
	}
}
