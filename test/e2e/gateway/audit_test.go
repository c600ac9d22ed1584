package gateway_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/shared/audit"
	"github.com/clusterpass/clusterpass/test/e2e"
)

const (
	auditLimit = 100 << 20 // bytes of a full audit file
	auditFree  = 4 << 10   // bytes that are free at first, enough for a few events
)

// TestAuditRotates: the rotation must not lose or repeat events, or make a file readable for other users.
func TestAuditRotates(t *testing.T) {
	bin := e2e.Program(t, "websocket-bridge", "websocket-bridge")
	const events = 40
	dir := t.TempDir()
	file := filepath.Join(dir, "audit.log")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, auditLimit-auditFree); err != nil { // a sparse file uses no disk
		t.Fatal(err)
	}
	b := e2e.StartBridgeProgram(t, bin, "CLUSTERPASS_AUDIT="+file, "CLUSTERPASS_DRAIN_DELAY=100ms")
	pass, err := os.ReadFile(e2e.Shared(t).Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("",
		e2e.WriteFile(t, strings.ReplaceAll(string(pass), e2e.HostOf(t, e2e.Shared(t).Kubeconfig), e2e.BridgeFront(t, b))))
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{}
	for range events {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cfg.Host+"/version", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		missing[resp.Header.Get(audit.IDHeader)] = true
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
	}
	client.CloseIdleConnections()
	_ = b.Cmd.Process.Signal(syscall.SIGTERM)
	if code := b.ExitCode(); code != 0 {
		t.Errorf("the bridge ended with %d", code)
	}

	checkAuditFiles(t, file, missing)

}

func checkAuditFiles(t *testing.T, file string, missing map[string]bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*.log"))
	if err != nil || len(files) != 2 {
		t.Fatalf("want a full file and a new one: %v, %v", files, err)
	}
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if path != file {
			_, err = f.Seek(auditLimit-auditFree, io.SeekStart)
		}
		if info.Mode().Perm() != 0o600 || info.Size() > auditLimit || err != nil {
			t.Errorf("%s: %s, %d bytes, %v", path, info.Mode(), info.Size(), err)
		}
		data, err := io.ReadAll(f)
		if err != nil || len(data) == 0 {
			t.Fatalf("%s: %d bytes, %v", path, len(data), err)
		}
		_, _ = e2e.Printed.Write(data)
		for line := range bytes.Lines(data) {
			var e audit.Event
			if err := json.Unmarshal(line, &e); err != nil || !missing[e.AuditID] {
				t.Errorf("%s: %v, or twice: %s", path, err, line)
			}
			delete(missing, e.AuditID)
		}
	}
	if len(missing) > 0 {
		t.Errorf("lost: %v", missing)
	}
}
