package clients

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/test/e2e"
)

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

// TestJavaScriptClient: a program with @kubernetes/client-node must read, write, inform itself, follow a log and run a
// command.
func TestJavaScriptClient(t *testing.T) {
	program, err := filepath.Abs("javascript/client.mjs")
	if err != nil {
		t.Fatal(err)
	}
	ns := e2e.StreamPods(t, e2e.Members, "talker-a")
	coverEverything(t)
	for _, p := range places {
		t.Run(p.context, func(t *testing.T) {
			pod, name := "talker-a"+p.name, "settings-"+p.suffix()+p.name
			printed := must(t, environment(t), "node", program, p.context, ns+p.namespace, pod, name)
			e2e.WantText(t, printed, fmt.Sprintf("read: %s Running", pod), "log: followed", "exec: Success",
				"patch: "+name+" third", "informer: delete "+name)
		})
	}
}
