package bridge

import (
	"errors"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/waittest"
)

// TestRefusedConnectionsClose: clients without a credential must not keep connections open, except behind a balancer,
// where other callers use them.
func TestRefusedConnectionsClose(t *testing.T) {
	const attack = 300
	hs := serve(t, Limits{}, Drain{}, stays)
	for range attack {
		resp, conn := hs.get("", listPath)
		if resp.StatusCode != http.StatusUnauthorized {
			t.Fatal(resp.Status)
		}
		_ = conn.SetReadDeadline(time.Now().Add(waittest.Patience))
		_, _ = io.Copy(io.Discard, resp.Body)
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("the connection goes on: %v", err)
		}
	}

	hs = serve(t, Limits{Unidentified: behindBalancer}, Drain{}, stays)
	resp, conn := hs.get("", listPath)
	_, _ = io.Copy(io.Discard, resp.Body)
	if _, err := io.WriteString(conn, request(listPath)); err != nil || resp.Close {
		t.Errorf("the balancer's connection ends: %v", err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Errorf("another caller on the balancer's connection: %v", err)
	}
}

// TestIdleConnectionsOfOneSourceAreClosed: one address must not use up the descriptors of the bridge by idle
// connections.
func TestIdleConnectionsOfOneSourceAreClosed(t *testing.T) {
	const most = 3
	answer := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }
	hs := serve(t, Limits{Unidentified: Unidentified{MaxIdlePerSource: most}}, Drain{}, answer)
	closed := make(chan struct{}, most+1)
	for range most + 1 {
		_, conn := hs.get("alice", listPath)
		go func() { // ends when the bridge closes the connection, or the test does
			_, _ = io.Copy(io.Discard, conn)
			closed <- struct{}{}
		}()
	}
	select {
	case <-closed:
	case <-time.After(waittest.Patience):
		t.Error("all connections stay open")
	}
	if resp, _ := hs.get("alice", listPath); resp.StatusCode != http.StatusOK {
		t.Errorf("the next call: %s", resp.Status)
	}
}
