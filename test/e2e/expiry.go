package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// CheckStreamsExpire checks that streams end with an expiring credential, not before, and give the reason. If a busy
// machine does not open them in time, it doubles the lifetime.
func CheckStreamsExpire(t *testing.T, h *Gateway,
	credential func(t *testing.T, until time.Time) *clientcmdapi.AuthInfo) {
	t.Helper()
	namespace := StreamPods(t, []string{"member1"}, "shell")
	for life := 6 * time.Second; ; life *= 2 {
		until := time.Now().Add(life).Truncate(time.Second)
		a := credential(t, until)
		pass := passWith(t, h.Kubeconfig, a)
		NoteFiles(pass)
		opened, err := openUntil(t, pass, namespace, until)
		if err != nil && (time.Now().Before(until) || life > 5*time.Minute) {
			t.Fatal(err)
		} else if err != nil {
			continue
		}
		for stream, end := range opened {
			if err := end(); err != nil {
				t.Errorf("%s: %v", stream, err)
			}
			if early := time.Until(until); early > 0 {
				t.Errorf("%s ends %s before its credential", stream, early)
			}
		}
		return
	}
}

// openUntil opens streams of the pod shell. For each it returns a function that waits for its end, until Patience after
// until.
func openUntil(t *testing.T, pass, namespace string, until time.Time) (map[string]func() error, error) {
	t.Helper()
	pods := "/api/v1/namespaces/" + namespace + "/pods"
	k := Kubectl{Kubeconfig: pass, Context: "member1"}
	ends := map[string]func() error{}
	for stream, s := range map[string]struct{ path, protocol, first string }{
		"exec": {pods + "/shell/exec?command=sh&command=-c&command=echo+started%3B+exec+sleep+1000&stdout=1",
			"v5.channel.k8s.io", "started"},
		"watch": {pods + "?watch=1", "v1.text.clusterpass.io", "ADDED"},
	} {
		conn, resp, err := DialWebsocketFrom(t, k, s.path, "", s.protocol)
		if resp != nil && err != nil {
			err = fmt.Errorf("%w: %s", err, resp.Status)
		}
		for got := ""; err == nil && !strings.Contains(got, s.first); {
			var message []byte
			_, message, err = conn.ReadMessage()
			got += string(message)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", stream, err)
		}
		_ = conn.SetReadDeadline(until.Add(Patience))
		ends[stream] = func() error {
			for {
				_, _, err := conn.ReadMessage()
				if websocket.IsCloseError(err, websocket.CloseGoingAway) &&
					strings.Contains(err.Error(), "your credential has expired") {
					return nil
				} else if err != nil {
					return fmt.Errorf("it ends with %w", err)
				}
			}
		}
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", pass)
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithDeadline(t.Context(), until.Add(Patience))
	t.Cleanup(cancel)
	root := cfg.Host[:strings.Index(cfg.Host, "/clusters/")]
	for stream, prefix := range map[string]string{"watch without websocket": "/clusters/member1",
		"watch of the fleet": "/apis/cluster.karmada.io/v1alpha1/clusters/*/proxy"} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, root+prefix+pods+"?watch=1", nil)
		if err != nil {
			return nil, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", stream, err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil || resp.StatusCode != http.StatusOK {
			return nil, errors.Join(fmt.Errorf("%s: %s", stream, resp.Status), err)
		}
		ends[stream] = func() error { _, err := io.Copy(io.Discard, resp.Body); return err }
	}
	return ends, nil
}
