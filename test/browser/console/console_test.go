package console

import (
	"strconv"
	"strings"
	"testing"
)

// maxFirstLoad is the number of compressed bytes that the browser may load before it shows the first view.
const maxFirstLoad = 150_000

// TestConsoleOpens fails if the console is not built into the gateway, or if its policy blocks its own scripts. It also
// fails if a key does not work, or if the first view needs too many bytes.
func TestConsoleOpens(t *testing.T) {
	s := startAsOwner(t, "smoke.mjs")
	line := s.Line("bytes ")
	bytes, err := strconv.Atoi(strings.TrimPrefix(line, "bytes "))
	if err != nil || bytes == 0 || bytes > maxFirstLoad {
		t.Errorf("the first view loads %s, want at most %d", line, maxFirstLoad)
	}
	t.Logf("the first view loads %d compressed bytes", bytes)
	s.end()
}
