package prose

import (
	"bytes"
	"maps"
	"slices"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	table "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// Markdown returns the prose of a Markdown file, without code blocks and HTML blocks.
func Markdown(source []byte) []Block {
	doc := goldmark.New(goldmark.WithExtensions(extension.Table)).Parser().Parse(text.NewReader(source))
	var blocks []Block
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n.Kind() {
		case ast.KindHeading, ast.KindParagraph, ast.KindTextBlock, table.KindTableCell:
			title := n.Kind() == ast.KindHeading || n.Parent().Kind() == table.KindTableHeader
			blocks = append(blocks, Block{Lines: inlineText(n, source), Title: title})
			return ast.WalkSkipChildren, nil
		}
		return ast.WalkContinue, nil
	})
	return blocks
}

func inlineText(block ast.Node, source []byte) []Line {
	byNumber := map[int]string{}
	number := 1 + bytes.Count(source[:max(0, block.Pos())], []byte("\n"))
	_ = ast.Walk(block, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			number = 1 + bytes.Count(source[:n.Segment.Start], []byte("\n"))
			byNumber[number] += string(n.Segment.Value(source))
			if n.SoftLineBreak() || n.HardLineBreak() {
				number++
			}
		case *ast.CodeSpan, *ast.AutoLink:
			byNumber[number] += codeSpan
			return ast.WalkSkipChildren, nil
		}
		return ast.WalkContinue, nil
	})
	var lines []Line
	for _, number := range slices.Sorted(maps.Keys(byNumber)) {
		lines = append(lines, Line{number, byNumber[number]})
	}
	return lines
}
