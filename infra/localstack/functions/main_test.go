package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterpass/clusterpass/infra/localstack/clienttest"
	"github.com/clusterpass/clusterpass/shared/waittest"
)

// kubectl sends no token to an http URL, so the functions of an emulator answer it with 401.
func TestKubeconfigSendsItsTokenByHTTPS(t *testing.T) {
	emulator := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Authorization")+" "+r.RequestURI)
	}))
	defer emulator.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	data := t.TempDir()
	cert, err := certificate(data)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(emulator.URL + "/_aws/execute-api/a1b2/gateway")
	if err != nil {
		t.Fatal(err)
	}
	ln := listen(t)
	started := filepath.Join(data, "started")
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, ln, target, cert, []string{"sh", "-c", "touch " + started + "; exec sleep 600"})
	}()
	waittest.Until(t, "the command runs", func() bool {
		_, err := os.Stat(started)
		return err == nil || len(ended) > 0
	})
	ca, err := os.ReadFile(filepath.Join(data, "pki", "server-ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	const path = "/clusters/prod/api/v1/namespaces/a%2Fb?limit=1"
	for _, tt := range []struct{ name, server, want string }{
		{"http", emulator.URL, " " + path},
		{"https", "https://" + ln.Addr().String(), "Bearer token /_aws/execute-api/a1b2/gateway" + path},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := answer(t, tt.server, ca, path); got != tt.want {
				t.Errorf("the emulator got %q, want %q", got, tt.want)
			}
		})
	}
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("it ended with %v, want the end of its command", err)
	}
}

// answer makes a request as kubectl does, by a kubeconfig with a token.
func answer(t *testing.T, server string, ca []byte, path string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "token"}
	config.Contexts["c"], config.CurrentContext = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}, "c"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	_, body := clienttest.Get(t, cfg, path)
	return body
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// Without the server, the command would run for ever, and no client would reach the functions.
func TestCommandEndsWithServer(t *testing.T) {
	cert, err := certificate(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ln := listen(t)
	_ = ln.Close()
	err = serve(t.Context(), ln, &url.URL{}, cert, []string{"sleep", "600"})
	if err == nil || !strings.Contains(err.Error(), "serve https: ") {
		t.Errorf("it ended with %v", err)
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "usage: "},
		{[]string{"127.0.0.1:0", "emulator", t.TempDir(), "true"}, "has no host"},
		{[]string{"127.0.0.1:0", "http://127.0.0.1:4566/gateway", t.TempDir(), "false"}, "exit status 1"},
	} {
		if err := run(t.Context(), tt.args); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.want)
		}
	}
}
