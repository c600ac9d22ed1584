package gateway_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/gatewaytest"
)

func upgradingMember(t *testing.T, talk func(conn *tls.Conn, r *bufio.Reader)) *clustertest.Member {
	return clustertest.NewMember(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/refuse" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		if r.URL.Path == "/api/v1/redirect" {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			return
		}
		conn, brw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"+
			"Upgrade: "+r.Header.Get("Upgrade")+"\r\nX-Stream-Protocol-Version: v4\r\n\r\n")
		talk(conn.(*tls.Conn), brw.Reader)
	})
}

func (h *fixture) dialUpgrade(path, first string) (*tls.Conn, *bufio.Reader, *http.Response) {
	h.t.Helper()
	request := "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, upgrade\r\nUpgrade: spdy/3.1\r\n" +
		"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.c2VjcmV0, v4.channel.k8s.io\r\n" +
		"Impersonate: x\r\n\r\n" + first
	resp, conn, r := gatewaytest.SendRaw(h.t, h.Listener.Addr().String(), h.ClientTLS, request)
	return conn, r, resp
}

// Lost bytes would break exec and port-forward.
func TestUpgradeCarriesBothDirections(t *testing.T) {
	data := make([]byte, 5<<20)
	_, _ = rand.Read(data)
	// The member echoes until the client closes its half, and then writes once more.
	m := upgradingMember(t, func(conn *tls.Conn, r *bufio.Reader) {
		if _, err := io.Copy(conn, r); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(conn, "goodbye")
		_ = conn.CloseWrite()
	})
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	conn, r, resp := h.dialUpgrade("/clusters/m/api/v1/x?a=%2F", "early ")
	if resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "SPDY/3.1" ||
		resp.Header.Get("X-Stream-Protocol-Version") != "v4" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	go func() {
		_, _ = conn.Write(data)
		_ = conn.CloseWrite()
	}()
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, append(append([]byte("early "), data...), "goodbye"...)) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	events := h.Audit.Events(t, 2)
	end := events[len(events)-1].Annotations
	sent, _ := strconv.Atoi(end[audit.SentAnnotation])
	// The count of sent bytes includes the response header.
	if most := len(got) + 1<<10; end[audit.ReceivedAnnotation] != strconv.Itoa(len("early ")+len(data)) ||
		sent < len(got) || sent > most {
		t.Errorf("%d bytes in each direction: the event has %v", len(got), end)
	}
	s := m.Requests()[0]
	if s.URI != "/api/v1/x?a=%2F" || s.Proto != "HTTP/1.1" || s.Header.Get("Authorization") != "Bearer members-token" ||
		s.Header.Get("Impersonate-User") != "alice" || s.Header.Get("Sec-Websocket-Protocol") != "v4.channel.k8s.io" {
		t.Errorf("the member received %+v", s)
	}
}

func TestUpgradeEnds(t *testing.T) {
	t.Run("the member closes", func(t *testing.T) {
		m := upgradingMember(t, func(conn *tls.Conn, _ *bufio.Reader) { _, _ = io.WriteString(conn, "bye") })
		h := newGateway(t, gatewaytest.Options{})
		h.AddCluster("m", m.Kubeconfig(token))
		_, r, _ := h.dialUpgrade("/clusters/m/api/v1/x", "")
		if got, err := io.ReadAll(r); err != nil || string(got) != "bye" {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("the client closes", func(t *testing.T) {
		closed := make(chan struct{})
		m := upgradingMember(t, func(_ *tls.Conn, r *bufio.Reader) {
			_, _ = io.Copy(io.Discard, r)
			close(closed)
		})
		h := newGateway(t, gatewaytest.Options{})
		h.AddCluster("m", m.Kubeconfig(token))
		conn, _, _ := h.dialUpgrade("/clusters/m/api/v1/x", "")
		_ = conn.Close()
		<-closed
	})
}

func TestUpgradeRefused(t *testing.T) {
	m := upgradingMember(t, nil)
	h := newGateway(t, gatewaytest.Options{})
	h.AddCluster("m", m.Kubeconfig(token))
	_, _, resp := h.dialUpgrade("/clusters/m/api/v1/refuse", "")
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 403 || strings.TrimSpace(string(body)) != "no" {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
	_, _, resp = h.dialUpgrade("/clusters/m/api/v1/redirect", "")
	gatewaytest.WantStatus(t, resp, 502, "bad_redirect", "redirects an upgrade")
}
