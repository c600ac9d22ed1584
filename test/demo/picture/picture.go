// Package picture draws a part of the demo's output as an SVG file, for the README.
//
// The text stays text, so that it can be selected and searched. A style sheet in the file has colors for light and for
// dark pages. The file refers to no other one.
package picture

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// shown are the beginnings of the commands in the picture, in this order. Of several commands it has the last.
var shown = []string{
	"kubectl --context fleet get pods -A",
	"kubectl --context fleet exec ",
	"kubectl --context fleet logs ",
	"clusterpass pass create ",
	"kubectl --kubeconfig ann.kubeconfig --context member1 delete ",
}

// Sizes in pixels. Longer lines are wrapped after so many columns, as in a terminal.
const (
	columns    = 100
	charWidth  = 8
	lineHeight = 19
	margin     = 18
)

const style = `
.page{fill:#f6f8fa;stroke:#d1d9e0}
text{fill:#1f2328;white-space:pre}
.note{fill:#59636e}
.command{fill:#0550ae;font-weight:bold}
@media (prefers-color-scheme:dark){
.page{fill:#0d1117;stroke:#3d444d}
text{fill:#d1d7e0}
.note{fill:#9198a1}
.command{fill:#79c0ff}
}
`

// block is a command with its explanation, its output and its time.
type block struct {
	command string
	lines   []string
}

// Draw returns the picture of the output of a whole run of the demo.
func Draw(output string) ([]byte, error) {
	blocks := parse(output)
	var lines []string
	for _, beginning := range shown {
		var found *block
		for i := range blocks {
			if strings.HasPrefix(blocks[i].command, beginning) {
				found = &blocks[i]
			}
		}
		if found == nil {
			return nil, fmt.Errorf("draw the demo: its output has no command that begins with %q", beginning)
		}
		if len(lines) > 0 {
			lines = append(lines, "")
		}
		for _, line := range found.lines {
			if logLine.MatchString(line) {
				return nil, fmt.Errorf("draw the demo: a log line of kubectl is in the output of %q: %s; draw it again, with "+
					"kubectl 1.34 or later in PATH", found.command, line)
			}
			lines = append(lines, wrap(line)...)
		}
	}
	return draw(lines), nil
}

const prompt = "$ "

// logLine matches a line of klog, which would read as a fault. kubectl before 1.34 logs one by chance, because
// exec reads the first message before its streams exist.
var logLine = regexp.MustCompile(`^[EWIF]\d{4} `)

// parse returns the commands of the output. An explanation is a line of # after an empty line.
func parse(output string) []block {
	var blocks []block
	explanation, afterEmpty, isOpen := "", false, false
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case line == "":
			isOpen = false
		case strings.HasPrefix(line, "# ") && afterEmpty:
			explanation = line
		case strings.HasPrefix(line, prompt):
			b := block{command: strings.TrimPrefix(line, prompt)}
			if explanation != "" {
				b.lines = append(b.lines, explanation)
			}
			b.lines = append(b.lines, line)
			blocks = append(blocks, b)
			explanation, isOpen = "", true
		case isOpen:
			last := &blocks[len(blocks)-1]
			last.lines = append(last.lines, line)
		}
		afterEmpty = line == ""
	}
	return blocks
}

// wrap returns the lines of a terminal for one line of output.
func wrap(line string) []string {
	var lines []string
	for utf8.RuneCountInString(line) > columns {
		runes := []rune(line)
		lines = append(lines, string(runes[:columns]))
		line = string(runes[columns:])
	}
	return append(lines, line)
}

func draw(lines []string) []byte {
	width := columns*charWidth + 2*margin
	height := len(lines)*lineHeight + 2*margin
	var b bytes.Buffer
	write := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format, args...) }
	write(`<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" `+
		`font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="13">`+"\n",
		width, height)
	write("<title>A terminal session: kubectl uses two clusters through Clusterpass</title>\n<style>%s</style>\n", style)
	write(`<rect class="page" x=".5" y=".5" width="%d" height="%d" rx="8"/>`+"\n", width-1, height-1)
	for i, line := range lines {
		if line == "" {
			continue
		}
		class := ""
		switch {
		case strings.HasPrefix(line, prompt):
			class = ` class="command"`
		case strings.HasPrefix(line, "# "):
			class = ` class="note"`
		}
		write(`<text x="%d" y="%d"%s xml:space="preserve">`, margin, margin+(i+1)*lineHeight-5, class)
		_ = xml.EscapeText(&b, []byte(line)) // a buffer accepts everything
		write("</text>\n")
	}
	write("</svg>\n")
	return b.Bytes()
}
