package prose

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
)

var (
	// directive matches comments for tools, e.g. //go:embed, //nolint:gosec and // +k8s:openapi-gen=true.
	directive = regexp.MustCompile(`^//([a-z0-9]+:[a-z0-9]|nolint\b|line |export | ?\+[a-z])`)
	listItem  = regexp.MustCompile(`^\s*([-*+•]|\d+[.)])\s+`)
	codeQuote = regexp.MustCompile("`[^`]+`")
)

// Comments returns the prose of a Go file's comments. An indented line is code unless it belongs to a list.
func Comments(fset *token.FileSet, file *ast.File) []Block {
	var blocks []Block
	for _, group := range file.Comments {
		var r commentReader
		for _, c := range group.List {
			number := fset.Position(c.Pos()).Line
			if directive.MatchString(c.Text) {
				r.end()
				continue
			}
			text, isLine := strings.CutPrefix(c.Text, "//")
			if !isLine {
				text = strings.TrimSuffix(strings.TrimPrefix(c.Text, "/*"), "*/")
			}
			for i, line := range strings.Split(text, "\n") {
				r.add(Line{number + i, codeQuote.ReplaceAllString(strings.TrimPrefix(line, " "), codeSpan)})
			}
		}
		r.end()
		blocks = append(blocks, r.blocks...)
	}
	return blocks
}

// LineComments returns the prose of the comments of another language. marker begins them, such as "#". Comments after
// code, and those of several lines with one marker, are not read.
func LineComments(source []byte, marker string) []Block {
	var r commentReader
	number := 0
	for line := range strings.Lines(string(source)) {
		number++
		text, isComment := strings.CutPrefix(strings.TrimSpace(line), marker)
		if !isComment || strings.HasPrefix(text, "!") {
			r.end()
			r.inList = false
			continue
		}
		r.add(Line{number, codeQuote.ReplaceAllString(strings.TrimPrefix(text, " "), codeSpan)})
	}
	r.end()
	return r.blocks
}

type commentReader struct {
	blocks []Block
	open   Block
	inList bool
}

func (r *commentReader) end() {
	if len(r.open.Lines) > 0 {
		r.blocks = append(r.blocks, r.open)
	}
	r.open = Block{}
}

func (r *commentReader) add(line Line) {
	text := strings.TrimSpace(line.Text)
	isIndented := line.Text != "" && (line.Text[0] == ' ' || line.Text[0] == '\t')
	marker := listItem.FindString(line.Text)
	switch {
	case text == "":
		r.end()
		return
	case strings.HasPrefix(line.Text, "# "):
		r.end()
		r.blocks = append(r.blocks, Block{Lines: []Line{{line.Number, text[len("# "):]}}, Title: true})
		r.inList = false
		return
	case marker != "":
		r.end()
		r.inList = true
		text = line.Text[len(marker):]
	case isIndented && !r.inList:
		r.end()
		return
	case !isIndented && r.inList:
		r.end()
		r.inList = false
	}
	r.open.Lines = append(r.open.Lines, Line{line.Number, text})
}
