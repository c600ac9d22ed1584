package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestForeignEntries: files of other contexts may be missing. Those of the gateway's context are read.
func TestForeignEntries(t *testing.T) {
	_, theirs := setup(t) // next to its ca.pem
	kc, err := clientcmd.LoadFromFile(theirs)
	if err != nil {
		t.Fatal(err)
	}
	kc.Clusters["gone"] = &clientcmdapi.Cluster{Server: "https://gone.example.com", CertificateAuthority: "gone.pem"}
	kc.AuthInfos["gone"] = &clientcmdapi.AuthInfo{ClientCertificate: "gone.pem", ClientKey: "gone.pem"}
	kc.Contexts["gone"] = &clientcmdapi.Context{Cluster: "gone", AuthInfo: "gone"}
	if err := clientcmd.WriteToFile(*kc, theirs); err != nil {
		t.Fatal(err)
	}
	u, err := (&userFlags{theirs, "lab"}).load()
	if err != nil || len(u.cluster.CertificateAuthorityData) == 0 || u.cluster.CertificateAuthority != "" ||
		u.auth.Token == "" {
		t.Errorf("%+v, %v", u, err)
	}
	if _, err := (&userFlags{theirs, "gone"}).load(); err == nil || !strings.Contains(err.Error(), "gone.pem") {
		t.Errorf("the files of the context itself: %v", err)
	}
}

type heard struct{ texts []string }

func (h *heard) HandleWarningHeader(_ int, _, text string) { h.texts = append(h.texts, text) }

// TestNoWarningsBetween: warnings of the gateway do not appear within a command's own output.
func TestNoWarningsBetween(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Warning", `299 - "something is deprecated"`)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(
			[]byte(
				`{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "status": {"resourceRules": [], ` +
					`"nonResourceRules": []}}`))
	}))
	defer srv.Close()
	var h heard
	rest.SetDefaultWarningHandler(&h)
	defer rest.SetDefaultWarningHandler(rest.WarningLogger{})
	u := &user{
		url: srv.URL, cluster: &clientcmdapi.Cluster{InsecureSkipTLSVerify: true}, auth: &clientcmdapi.AuthInfo{Token: "x"},
	}
	if found, _, err := u.reachable(t.Context()); err != nil || len(found) > 0 || len(h.texts) > 0 {
		t.Errorf("%v, %v, warned of %q", found, err, h.texts)
	}
}

// TestGatewayOfEachContext fails if clusterpass doctor refuses a context that login wrote.
func TestGatewayOfEachContext(t *testing.T) {
	u := &user{url: "https://gateway.example.com", cluster: clientcmdapi.NewCluster(), auth: clientcmdapi.NewAuthInfo()}
	kc := u.contexts("", []string{"m1"})
	if len(kc.Contexts) != 4 {
		t.Errorf("contexts %v", kc.Contexts)
	}
	for name := range kc.Contexts {
		if got, err := userOf(kc, name); err != nil || got.url != u.url {
			t.Errorf("context %s: %+v, %v", name, got, err)
		}
	}
}

// A user with a missing kubeconfig or an untrusted certificate needs instructions.
func TestPlainWords(t *testing.T) {
	c, theirs := setup(t)
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	defer srv.Close()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "nosuch"))
	aimless := kubeconfigFile(t, strings.Replace(labKubeconfig, "current-context: lab", "", 1))
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"login"}, "name its URL, such as clusterpass login https://"},
		{[]string{"login", srv.URL}, "name the file with --ca"},
		{
			[]string{"login", srv.URL, "--ca", filepath.Join(filepath.Dir(theirs), "ca.pem")},
			"not signed by the CA that you gave",
		},
		{[]string{"kubeconfig"}, "there is no kubeconfig"},
		{[]string{"doctor"}, "there is no kubeconfig"},
		{[]string{"doctor", "--kubeconfig", aimless}, "no current context; it has: dead, lab, plugin"},
	} {
		out, err := c.run(t, tt.args...)
		if err == nil || !strings.Contains(out+err.Error(), tt.want) || strings.Contains(out+err.Error(), `""`) {
			t.Errorf("%v: %s%v, want %q", tt.args, out, err, tt.want)
		}
	}
}
