package console

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/recording"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// sizesCast has sizes of the terminal at which a player fails.
const sizesCast = `{"version": 2, "width": 65535, "height": 0}
[0.1, "r", "65535x65535"]
[0.1, "o", "first"]
[0.2, "r", "0x0"]
[0.2, "\u0072", "65535x0"]
[0.3, "r", "100x24"]
[0.3, "o", " last"]
`

// TestRecording fails if an exported recording does not play in the console, or if its facts are missing or run as a
// script. It also fails if a recorded user can stop the player by sizes of the terminal.
func TestRecording(t *testing.T) {
	ns := e2e.StreamPods(t, []string{"member1"}, "shell")
	k := e2e.Through(t, "member1")
	e2e.RecordNamespace(t, ns, "bestEffort", false, func() { k.Must(t, "exec", "-n", ns, "shell", "--", "true") })
	const hostile = `<img src=x onerror="hostile()">`
	k.Must(t, "exec", "-n", ns, "shell", "--", "sh", "-c", `printf '\033[32mrecorded\033[0m %s\n' '`+hostile+`'`)
	found := e2e.WaitForRecording(t, ns, "printf", func(r e2e.Recording) bool {
		return strings.Contains(r.Events[recording.Output], "recorded")
	})
	dir := t.TempDir()
	cast := filepath.Join(dir, "session.cast")
	if out, err := e2e.CLI(t, "", "recording", "export", found.ID, cast); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	broken := filepath.Join(dir, "broken.cast")
	if err := os.WriteFile(broken, []byte("no recording\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sizes := filepath.Join(dir, "sizes.cast")
	if err := os.WriteFile(sizes, []byte(sizesCast), 0o600); err != nil {
		t.Fatal(err)
	}
	startAsOwner(t, "recording.mjs", "CAST="+cast, "BROKEN="+broken, "SIZES="+sizes, "ID="+found.ID,
		"POD="+found.Pod).end()
}
