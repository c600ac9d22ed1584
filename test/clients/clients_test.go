// Package clients runs client programs whose languages make test does not need. make test-clients installs nothing. It
// needs Node 20.10 or later.
package clients

import (
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/test/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }

// TestJavaScriptExample: the example of docs/guide/streams.md must work.
func TestJavaScriptExample(t *testing.T) {
	s := e2e.StartExample(t, "js", "node", "--experimental-websocket", "--no-warnings", "--eval")
	wanted := map[string]bool{"web says": false, "ADDED": false, "{ stdout: 'hello' }": false,
		"{ exit: { code: 0 } }": false, "1000": false}
	for left := len(wanted); left > 0; {
		line := s.WaitForLine("all of them", func(string) bool { return true })
		for want, seen := range wanted {
			if !seen && strings.Contains(line, want) {
				wanted[want] = true
				left--
			}
		}
	}
}
