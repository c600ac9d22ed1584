package browser

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/shared/recording/replay"
	"github.com/clusterpass/clusterpass/shared/recording/storetest"
)

const playerPage = `<!DOCTYPE html>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/player/asciinema-player.css">
<div id="player"></div>
<script src="/player/asciinema-player.min.js"></script>
<script>
  const at = document.getElementById('player');
  const player = AsciinemaPlayer.create('/session.cast', at, { autoPlay: true });
  player.addEventListener('ended', () => { globalThis.hasEnded = true; });
</script>`

// exportSession returns the exported file of a session with everything that a recording can have.
func exportSession(t *testing.T) []byte {
	t.Helper()
	signer, keys := storetest.NewSigner(t)
	store := &storetest.Memory{}
	s, err := recording.New(recording.Config{Store: store, Signer: signer}).Begin(t.Context(), recording.Info{
		User: "ann", Cluster: "prod", Namespace: "web", Pod: "web-0", Kind: recording.Exec, Command: []string{"sh"},
		TTY: true, HasInput: true, RecordsInput: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { return s.Resize(100, 30) },
		func() error { return s.Output(1, []byte("$ ")) },
		func() error { return s.Input([]byte("echo\r")) },
		func() error { return s.Output(1, []byte("\x1b[31mred\x1b[0m \xe2\x82")) },
		func() error { return s.Output(1, []byte("\xac and \xff\r\n")) },
		func() error { return s.Output(2, []byte("from standard error\r\n")) },
		func() error { return s.Exit([]byte(`{"status":"Success"}`)) },
		s.Close,
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	r, err := recording.Open(t.Context(), store, s.ID(), keys)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := replay.Export(t.Context(), &out, r, replay.ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestExportedRecordingPlays fails if asciinema's player does not show what the user saw.
func TestExportedRecordingPlays(t *testing.T) {
	cast := exportSession(t)
	mux := http.NewServeMux()
	mux.Handle("/player/", http.StripPrefix("/player/",
		http.FileServer(http.Dir("node_modules/asciinema-player/dist/bundle"))))
	mux.HandleFunc("/session.cast", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(cast) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, playerPage)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), browserTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "play.mjs", server.URL)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	shown, err := cmd.Output()
	if err != nil {
		t.Fatalf("the browser: %v\n%s%s", err, shown, &stderr)
	}
	for _, want := range []string{"$ red € and \uFFFD", "from standard error"} {
		if !strings.Contains(string(shown), want) {
			t.Errorf("the player shows %q, want %q in it", shown, want)
		}
	}
}
