package terminal

import (
	"os/exec"
	"strings"
	"testing"
)

// TestScreenShowsWhatAPersonSees: output that the program has overwritten must not satisfy a wait.
func TestScreenShowsWhatAPersonSees(t *testing.T) {
	const program = `stty -echo; printf 'first line\n'; read -r name
		printf '\033[2J\033[Hhello \033[31m%s\033[0m\n' "$name"; stty size; read -r end`
	shown := Start(t, exec.CommandContext(t.Context(), "sh", "-c", program))
	shown.WaitFor("first line")
	shown.Type("wörld" + Enter)
	shown.WaitFor("hello wörld\n50 200")
	if screen := shown.Screen(); strings.Contains(screen, "first line") {
		t.Errorf("the screen shows what was deleted:\n%s", screen)
	}
	shown.Type(Enter)
	shown.WaitForEnd()
}
