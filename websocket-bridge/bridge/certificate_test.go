package bridge

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/config"
	"github.com/clusterpass/clusterpass/shared/passes"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// startWith runs a bridge with these variables until the test ends. It returns its address.
func startWith(t *testing.T, variables map[string]string) string {
	t.Helper()
	for variable, value := range variables {
		t.Setenv("CLUSTERPASS_"+variable, value)
	}
	for _, variable := range []string{"LISTEN", "ADMIN_LISTEN", "TUNNEL_LISTEN"} {
		t.Setenv("CLUSTERPASS_"+variable, "127.0.0.1:0")
	}
	t.Setenv("CLUSTERPASS_DRAIN_DELAY", "0s")
	t.Setenv("CLUSTERPASS_PROBE_INTERVAL", "0s")
	cfg := &Config{}
	if err := config.Load(cfg); err != nil {
		t.Fatal(err)
	}
	log, ended := &waittest.Buffer{}, make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() { ended <- Run(ctx, cfg, log) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	var address string
	waittest.Until(t, "the bridge listens", func() bool {
		if m := regexp.MustCompile(`"listening","address":"([^"]+)"`).FindStringSubmatch(log.String()); m != nil {
			address = m[1]
		}
		return address != "" || len(ended) > 0
	})
	return address
}

// clientOf trusts ca, and has a client certificate of users.
func clientOf(t *testing.T, users *pki.CA, ca []byte) *http.Client {
	t.Helper()
	cert, key, err := users.Client("ann", []string{"system:masters"})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{
			RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: "gateway.example.com",
		},
		DisableKeepAlives: true,
	}
	return &http.Client{Transport: transport}
}

// callerStatus is the status of a request that only an authenticated caller may make, or 0 if TLS fails.
func callerStatus(t *testing.T, client *http.Client, address string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"https://"+address+"/apis/cluster.karmada.io/v1alpha1/clusters", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func newCA(t *testing.T, name string) *pki.CA {
	t.Helper()
	ca, err := pki.NewCA(name)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// TestReplicasShareCAOfTheirCertificates fails if clients that trust one replica refuse another, or if a bridge on
// Kubernetes does not know the caller by a client certificate.
func TestReplicasShareCAOfTheirCertificates(t *testing.T) {
	users, store := newCA(t, "client-ca"), "dir:"+t.TempDir()
	variables := map[string]string{"STORE": store, "CLIENT_CA": string(users.PEM()), "HOSTS": "gateway.example.com",
		"SOURCE_ADDRESS": "peer"}
	addresses := []string{startWith(t, variables), startWith(t, variables)}
	var address stores.Address
	if err := address.Decode(store); err != nil {
		t.Fatal(err)
	}
	st, err := stores.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := passes.LoadServerCA(t.Context(), st.Secrets)
	if err != nil {
		t.Fatal(err)
	}
	client := clientOf(t, users, ca.PEM())
	for _, address := range addresses {
		if code := callerStatus(t, client, address); code != http.StatusOK {
			t.Errorf("%s answers %d", address, code)
		}
	}
}

// TestCertificateIsReadAgain fails if a bridge keeps its certificate when cert-manager renews it.
func TestCertificateIsReadAgain(t *testing.T) {
	users, dir := newCA(t, "client-ca"), t.TempDir()
	// write replaces the files as a kubelet does: a symbolic link leads to the directory of one version.
	write := func(version string, ca *pki.CA) {
		t.Helper()
		get := ca.Serve([]string{"gateway.example.com"})
		pair, err := get(nil)
		if err != nil {
			t.Fatal(err)
		}
		cert, key, err := pki.PEM(pair)
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.Join(dir, version)
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, data := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
			if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(version, filepath.Join(dir, "next")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "current")); err != nil {
			t.Fatal(err)
		}
	}
	first, second := newCA(t, "first"), newCA(t, "second")
	write("v1", first)
	address := startWith(t, map[string]string{
		"STORE": "dir:" + t.TempDir(), "CLIENT_CA": string(users.PEM()),
		"TLS_CERT": filepath.Join(dir, "current", "tls.crt"), "TLS_KEY": filepath.Join(dir, "current", "tls.key"),
		"SOURCE_ADDRESS": "peer",
	})
	if code := callerStatus(t, clientOf(t, users, first.PEM()), address); code != http.StatusOK {
		t.Fatalf("with the first certificate: %d", code)
	}
	write("v2", second)
	if err := os.RemoveAll(filepath.Join(dir, "v1")); err != nil {
		t.Fatal(err)
	}
	client := clientOf(t, users, second.PEM())
	waittest.Until(t, "the bridge has the second certificate", func() bool {
		return callerStatus(t, client, address) == http.StatusOK
	})
}

// TestCertificateSettings fails if a bridge could serve another certificate than the operator believes. It also fails
// if clients that connect to that certificate could choose their address or their client certificate.
func TestCertificateSettings(t *testing.T) {
	const header = "X-Amzn-Mtls-Clientcert"
	for name, tt := range map[string]struct {
		variables map[string]string
		problem   string // "" for none
	}{
		"no key":         {map[string]string{"TLS_CERT": "a"}, "together with CLUSTERPASS_TLS_KEY"},
		"two":            {map[string]string{"HOSTS": "a", "SELF_SIGNED": "true"}, "set only one of"},
		"files and host": {map[string]string{"HOSTS": "a", "TLS_CERT": "a", "TLS_KEY": "b"}, "set only one of"},

		"files, no source": {map[string]string{"TLS_CERT": "a", "TLS_KEY": "b"}, "CLUSTERPASS_SOURCE_ADDRESS"},
		"host, no source":  {map[string]string{"HOSTS": "a"}, "CLUSTERPASS_SOURCE_ADDRESS"},
		"host, source":     {map[string]string{"HOSTS": "a", "SOURCE_ADDRESS": "none"}, ""},
		"host, header": {
			map[string]string{"HOSTS": "a", "SOURCE_ADDRESS": "peer", "MTLS_HEADER": header}, "CLUSTERPASS_MTLS_HEADER",
		},
		"host, header behind a balancer": {
			map[string]string{"HOSTS": "a", "SOURCE_ADDRESS": "forwarded", "MTLS_HEADER": header}, "",
		},
		"no certificate, header": {map[string]string{"MTLS_HEADER": header}, ""},
		"self-signed, header":    {map[string]string{"SELF_SIGNED": "true", "MTLS_HEADER": header}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CLUSTERPASS_STORE", "dir:"+t.TempDir())
			t.Setenv("CLUSTERPASS_CLIENT_CA", string(newCA(t, "client-ca").PEM()))
			for variable, value := range tt.variables {
				t.Setenv("CLUSTERPASS_"+variable, value)
			}
			err := config.Load(&Config{})
			if tt.problem == "" && err != nil || tt.problem != "" && (err == nil || !strings.Contains(err.Error(), tt.problem)) {
				t.Errorf("error %v, want %q", err, tt.problem)
			}
		})
	}
}
