package kubelet_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func TestPortForward(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := runPod(t, func(p *corev1.Pod) {
		p.Spec.Containers[0].Command = []string{self}
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: serveEnv, Value: "1"}}
	})
	var port string
	waittest.Until(t, "the server listens", func() bool {
		port = strings.TrimSpace(must(t, "logs", name))
		return port != ""
	})

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := command(t, "port-forward", name, ":"+port)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	line, err := bufio.NewReader(pipe).ReadString('\n')
	local := regexp.MustCompile(`127\.0\.0\.1:(\d+)`).FindString(line)
	if local == "" {
		t.Fatal(line, err)
	}
	for _, size := range []int64{0, 1, 3_000_000} {
		data, err := os.ReadFile(randomFile(t, size))
		if err != nil {
			t.Fatal(err)
		}
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", local)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		conn.Close()
		if want := fmt.Sprintf("%d %x", size, sha256.Sum256(data)); err != nil || string(got) != want {
			t.Errorf("%d bytes: got %q, %v; want %q", size, got, err, want)
		}
	}
}

// TestWebsocket uses the older websocket protocol, like a browser. The API server passes it on unchanged.
func TestWebsocket(t *testing.T) {
	t.Parallel()
	name := runPod(t)
	config := world.cluster.RESTConfig()
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	dialer := websocket.Dialer{
		TLSClientConfig: tlsConfig, Subprotocols: []string{"v4.channel.k8s.io"}, HandshakeTimeout: patience,
	}
	query := url.Values{
		"stdin": {"true"}, "stdout": {"true"}, "stderr": {"true"},
		"command": {"sh", "-c", "read x; echo got $x; echo err >&2; exit 6"},
	}
	conn, _, err := dialer.DialContext(t.Context(),
		strings.Replace(config.Host, "https", "wss", 1)+"/api/v1/namespaces/default/pods/"+name+"/exec?"+query.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.WriteMessage(websocket.BinaryMessage, []byte("\x00hello\n")); err != nil {
		t.Fatal(err)
	}
	channels := map[byte]string{}
	for {
		_, message, err := conn.ReadMessage()
		if err != nil {
			break
		}
		channels[message[0]] += string(message[1:])
	}
	var status metav1.Status
	if err := json.Unmarshal([]byte(channels[3]), &status); err != nil {
		t.Fatalf("channels %q: %v", channels, err)
	}
	if channels[1] != "got hello\n" || channels[2] != "err\n" || status.Details == nil ||
		status.Details.Causes[0].Message != "6" {
		t.Errorf("channels %q", channels)
	}
}

// TestCallers: only callers with access to nodes/proxy may call the kubelet.
func TestCallers(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		user   string
		groups []string
		want   int
	}{
		"nobody":        {want: http.StatusUnauthorized},
		"somebody":      {user: "somebody", want: http.StatusForbidden},
		"administrator": {user: "root", groups: []string{"system:masters"}, want: http.StatusOK},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: world.cluster.CA()}}
			if test.user != "" {
				pair, err := world.cluster.IssueUser(test.user, test.groups...)
				if err != nil {
					t.Fatal(err)
				}
				config.CertData, config.KeyData = pair.Cert, pair.Key
			}
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			client.Timeout = patience
			defer client.CloseIdleConnections()
			for path, want := range map[string]string{"/healthz": "ok", "/pods": `"kind":"PodList"`} {
				response, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d%s", world.node.port(), path))
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(response.Body)
				response.Body.Close()
				if err != nil || response.StatusCode != test.want ||
					test.want == http.StatusOK != strings.Contains(string(body), want) {
					t.Errorf("%s: status %d, want %d: %.100s (%v)", path, response.StatusCode, test.want, body, err)
				}
			}
		})
	}
	t.Run("strange certificate", func(t *testing.T) {
		t.Parallel()
		other, err := tls.LoadX509KeyPair(world.node.file("pki/front-proxy-client.crt"),
			world.node.file("pki/front-proxy-client.key"))
		if err != nil {
			t.Fatal(err)
		}
		dialer := tls.Dialer{Config: &tls.Config{
			InsecureSkipVerify: true,
			// A client omits its certificate if the server does not request one.
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &other, nil },
		}}
		conn, err := dialer.DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", world.node.port()))
		if err != nil {
			return
		}
		defer conn.Close()
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("a certificate of another authority was taken: %v", err)
		}
	})
}
