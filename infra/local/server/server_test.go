package server

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	searchv1alpha1 "github.com/clusterpass/clusterpass/shared/api/search/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/objects"
	objectsdir "github.com/clusterpass/clusterpass/shared/objects/dir"
	"github.com/clusterpass/clusterpass/shared/pki"
	"github.com/clusterpass/clusterpass/shared/stores"
)

// TestBusyPort: a second gateway on one machine fails at once, and the error names the flag that helps.
func TestBusyPort(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	cfg := newConfig(t, t.TempDir())
	cfg.Listen = ln.Addr().String()
	err = Run(t.Context(), cfg, Output{io.Discard, io.Discard}, func() { t.Error("the gateway accepts requests") })
	if err == nil || !strings.Contains(err.Error(), "CLUSTERPASS_LISTEN: ") ||
		!strings.Contains(err.Error(), "; choose another address with --listen") {
		t.Errorf("error %v", err)
	}
}

// TestOwnContextsAreLeftOut: a shell whose KUBECONFIG is the gateway's must not make it register itself.
func TestOwnContextsAreLeftOut(t *testing.T) {
	dir := t.TempDir()
	t.Run("first start", func(t *testing.T) { start(t, newConfig(t, dir)) })
	cfg := newConfig(t, dir)
	cfg.Register = cfg.Kubeconfig
	printed := start(t, cfg).progress.String()
	if !strings.Contains(printed, "  clusterpass, fleet, fleet@: not registered: this gateway itself\n") ||
		!strings.Contains(printed, "It has no clusters yet.") {
		t.Error(printed)
	}
}

// TestOwnAddress: a context of a gateway whose data was deleted has another CA.
func TestOwnAddress(t *testing.T) {
	own := ownAddress{ca: []byte("PEM\n"), hosts: []string{"127.0.0.1:8443", "localhost:8443"}}
	for _, tt := range []struct {
		server, ca string
		want       bool
	}{
		{"https://127.0.0.1:8443/clusters/a", "", true}, {"https://localhost:8443", "other", true},
		{"https://gateway.example.com/fleet", "PEM", true}, {"https://127.0.0.1:6443", "other", false},
		{"https://127.0.0.1:6443", "", false}, {"%", "", false},
	} {
		got := own.has(&clientcmdapi.Cluster{Server: tt.server, CertificateAuthorityData: []byte(tt.ca)})
		if got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// writePluginKubeconfig writes contexts that the gateway can register, with a token or a plugin, and others.
func writePluginKubeconfig(t *testing.T, path string) {
	t.Helper()
	ca, err := pki.LoadCA(t.TempDir(), "ca")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(path, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: gke,
contexts: [{name: gke, context: {cluster: c, user: plugin}}, {name: lab, context: {cluster: c, user: token}},
  {name: Lab, context: {cluster: c, user: token}}, {name: prod, context: {cluster: c, user: token}},
  {name: old, context: {cluster: c, user: old}}, {name: insecure, context: {cluster: insecure, user: plugin}}],
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", certificate-authority-data: %s}},
  {name: insecure, cluster: {server: "https://127.0.0.1:1", insecure-skip-tls-verify: true}}],
users: [{name: token, user: {token: sesame}}, {name: plugin, user: {exec: {apiVersion: client.authentication.k8s.io/v1,
  command: no-such-plugin, args: [sesame], interactiveMode: Never, installHint: "Install it from example.com."}}},
  {name: old, user: {auth-provider: {name: gcp, config: {access-token: sesame}}}}]}`,
			base64.StdEncoding.EncodeToString(ca.PEM())), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestContextsAreOffered: a new user without KUBECONFIG must see what the gateway would do, and how.
func TestContextsAreOffered(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	path := filepath.Join(home, ".kube", "config")
	writePluginKubeconfig(t, path)
	printed := start(t, newConfig(t, t.TempDir())).progress.String()
	for _, want := range []string{
		"KUBECONFIG is not set, so no context is registered. " + path + " has these contexts:\n",
		"  gke, with the credential plugin \"no-such-plugin\"\n", "  prod\n",
		"  lab: would not be registered: contexts Lab, lab would all be cluster \"lab\"",
		"  old: would not be registered: kubeconfig: users[old].user.auth-provider: \"gcp\" is not supported",
		"  insecure: would not be registered: kubeconfig: clusters[insecure].cluster.insecure-skip-tls-verify: not allowed",
		fmt.Sprintf("\n  export KUBECONFIG=%q\n", path), "It has no clusters yet.\n",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("%q is missing in:\n%s", want, printed)
		}
	}
	if strings.Contains(printed, "sesame") || strings.Contains(printed, "stop it, and start") {
		t.Error(printed)
	}
}

// TestPluginIsNamed: users must see which program the gateway runs, but not its arguments. Functions run none.
func TestPluginIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	writePluginKubeconfig(t, path)
	for mode, want := range map[Mode]string{
		Inline: "Registering the contexts of " + path + ":\n" +
			"  gke: runs the credential plugin \"no-such-plugin\"\n" +
			"  Lab: not registered: contexts Lab, lab would all be cluster \"lab\"; add them under other names: clusterpass " +
			"cluster add NAME --context \"Lab\"\n" +
			"  gke: not registered: its credential plugin \"no-such-plugin\" failed: its program cannot be started: it is " +
			"missing, or not in the PATH of the gateway\nInstall it from example.com.\n",
		Process: "  gke: not registered: functions in processes of their own run no credential plugin such as " +
			"\"no-such-plugin\"; start the gateway with --functions=inline\n",
	} {
		t.Run(string(mode), func(t *testing.T) {
			cfg := newConfig(t, t.TempDir())
			cfg.Register, cfg.Functions = path, mode
			printed := start(t, cfg).progress.String()
			if !strings.Contains(printed, want) || strings.Contains(printed, "sesame") {
				t.Errorf("%q is missing in:\n%s", want, printed)
			}
		})
	}
}

// TestHandshakeErrorsAreLogged fails if an operator who sets the log level DEBUG does not see why TLS fails.
func TestHandshakeErrorsAreLogged(t *testing.T) {
	t.Setenv("CLUSTERPASS_LOG_LEVEL", "DEBUG")
	out := start(t, newConfig(t, t.TempDir()))
	_, after, _ := strings.Cut(out.progress.String(), "https://")
	address, _, _ := strings.Cut(after, "\n")
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	out.log.WaitFor(t, "TLS handshake error")
}

// TestNewStoreHasDefaultRegistry fails if the fleet of a new user is empty, or if a start restores what was deleted.
func TestNewStoreHasDefaultRegistry(t *testing.T) {
	const key = searchv1alpha1.Prefix + stores.DefaultRegistry
	// startOnce starts and ends a gateway, and returns the registry of its store.
	startOnce := func(data, controlPlane string) (objects.Store, objects.Object, error) {
		t.Helper()
		cfg := newConfig(t, data)
		cfg.ControlPlane = controlPlane
		ctx, stop := context.WithCancel(t.Context())
		if err := Run(ctx, cfg, Output{io.Discard, io.Discard}, stop); err != nil {
			t.Fatal(err)
		}
		store, err := objectsdir.Open(filepath.Join(data, "objects"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		o, err := store.Get(t.Context(), key)
		return store, o, err
	}
	if _, _, err := startOnce(t.TempDir(), "cp"); !errors.Is(err, objects.ErrNotFound) {
		t.Errorf("with a control-plane cluster: %v", err)
	}
	data := t.TempDir()
	store, o, err := startOnce(data, "")
	if err != nil {
		t.Fatalf("a new store: %v", err)
	}
	if _, err := store.Delete(t.Context(), key, o.Revision); err != nil {
		t.Fatal(err)
	}
	if _, _, err := startOnce(data, ""); !errors.Is(err, objects.ErrNotFound) {
		t.Errorf("after it was deleted: %v", err)
	}
}
