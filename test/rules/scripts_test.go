package rules

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

// newerBash matches what bash 3.2 lacks: associative arrays, references, mapfile, coproc, wait -n, some variables and
// expansions, negative indexes, and the operators |&, &>> and ;&.
var newerBash = regexp.MustCompile(strings.Join([]string{
	`\b(?:declare|local|typeset) -[a-zA-Z]*[Ang]`, `\b(?:mapfile|readarray|coproc)\b`, `\bwait -[fnp]\b`,
	`\b(?:EPOCHSECONDS|EPOCHREALTIME|BASHPID|SRANDOM)\b`, `\$\{\w+(?:\[[^]]*\])?(?:[,^]|@[A-Za-z])`, `\w\[-\d+\]`,
	`\[\[ -[vR] `, `\bread -[a-zA-Z]*N\b`, `\bread -[a-zA-Z]*t ?\d*\.\d`, `printf '[^']*%\([^)]*\)T`, `\|&|&>>|;;?&`,
	`\{\d+\.\.\d+\.\.\d+\}`, `\bshopt -s (?:globstar|lastpipe|inherit_errexit)\b`, `\bexec \{\w+\}`,
}, "|"))

// TestScriptsNeedNoNewerBash fails if a script needs a later bash than 3.2, which is that of macOS.
func TestScriptsNeedNoNewerBash(t *testing.T) {
	for _, line := range []string{
		"declare -A seen", "local -n ref=$1", "mapfile -t lines", "wait -n", "now=$EPOCHREALTIME", `echo "${name,,}"`,
		`echo "${name^}"`, `echo "${all[@]@Q}"`, "echo ${all[-1]}", "[[ -v name ]]", "read -rt 0.5 line", "make |& tee log",
		"printf '%(%s)T'",
	} {
		if !newerBash.MatchString(line) {
			t.Errorf("%s is not found", line)
		}
	}
	scripts := 0
	for name, data := range trackedFiles(t) {
		if !bytes.HasPrefix(data, []byte("#!/usr/bin/env bash\n")) {
			continue
		}
		scripts++
		n := 0
		for line := range strings.Lines(string(data)) {
			n++
			if found := newerBash.FindString(line); found != "" && !strings.HasPrefix(strings.TrimSpace(line), "#") {
				t.Errorf("%s:%d: bash 3.2 does not have %q", name, n, found)
			}
		}
	}
	if scripts < 10 {
		t.Errorf("only %d scripts are found", scripts)
	}
}
