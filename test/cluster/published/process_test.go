package published

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/leaktest"
)

// Environment of a child process, which downloads with the certificates of SSL_CERT_FILE and the default limits.
const (
	envIndex = "CLUSTERPASS_TEST_INDEX"
	envCache = "CLUSTERPASS_TEST_CACHE"
)

func TestMain(m *testing.M) {
	if index := os.Getenv(envIndex); index != "" {
		s := &Source{Index: index, Cache: os.Getenv(envCache), Progress: os.Stderr}
		dir, err := s.Download(context.Background(), minor)
		if err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(dir)
		os.Exit(0)
	}
	leaktest.Main(m)
}

// Several tests or demos may start at once on a new machine. They must not disturb each other's download.
func TestProcessesShareOneDownload(t *testing.T) {
	m := newMirror(t, pack(t, release3()...))
	s := m.source(t)
	const processes = 3
	var children []*exec.Cmd
	var outputs [processes]strings.Builder
	for i := range processes {
		cmd := child(t, m, s)
		cmd.Stdout = &outputs[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		children = append(children, cmd)
	}
	for i, cmd := range children {
		if err := cmd.Wait(); err != nil {
			t.Errorf("process %d: %v", i, err)
		}
		if got := strings.TrimSpace(outputs[i].String()); got != s.dir(release) {
			t.Errorf("process %d prints %q, want %q", i, got, s.dir(release))
		}
	}
	wantComplete(t, s, s.dir(release), nil)
	if got := m.requests(); len(got) != 1 {
		t.Errorf("%d requests for the archive, want 1", len(got))
	}
}

// A killed process leaves a part, and no lock. The next one continues it.
func TestNextProcessContinuesAfterAKill(t *testing.T) {
	m := newMirror(t, pack(t, release3()...))
	s := m.source(t)
	isHalf := make(chan struct{})
	m.serve = func(w http.ResponseWriter, r *http.Request) {
		m.sendHalf(w)
		close(isHalf)
		<-r.Context().Done()
	}
	first := child(t, m, s)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	<-isHalf
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	if s.Cached(minor) != "" {
		t.Error("half a download is cached")
	}
	m.serve = nil
	second := child(t, m, s)
	if err := second.Run(); err != nil {
		t.Fatal(err)
	}
	wantComplete(t, s, s.dir(release), nil)
}

func child(t *testing.T, m *mirror, s *Source) *exec.Cmd {
	t.Helper()
	roots := t.TempDir() + "/roots.pem"
	block := &pem.Block{Type: "CERTIFICATE", Bytes: m.Certificate().Raw}
	if err := os.WriteFile(roots, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	this, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), this)
	cmd.Env = append(os.Environ(), envIndex+"="+m.URL, envCache+"="+s.Cache, "SSL_CERT_FILE="+roots,
		"SSL_CERT_DIR=/nonexistent")
	cmd.Stderr = t.Output()
	return cmd
}
