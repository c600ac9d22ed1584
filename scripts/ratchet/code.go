package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
	"unicode/utf8"

	"github.com/fzipp/gocyclo"
)

// goFile is a parsed file. Its methods count as the linters of golangci-lint do.
type goFile struct {
	name   string
	source []byte
	fset   *token.FileSet
	parsed *ast.File
}

func (g goFile) found(pos token.Pos, rule, format string, args ...any) finding {
	return finding{g.name, g.fset.Position(pos).Line, rule, fmt.Sprintf(format, args...)}
}

// longLines counts as lll does, with a tab as one character. Imports, directives and the struct tags of envconfig do
// not count. A tag cannot be wrapped.
func (g goFile) longLines(l limits) []finding {
	var found []finding
	inImport := false
	number := 0
	for line := range strings.Lines(string(g.source)) {
		number++
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "//go:"), strings.Contains(line, "`envconfig:\""):
		case strings.HasPrefix(line, "import"):
			inImport = strings.HasSuffix(line, "(")
		case inImport:
			inImport = line != ")"
		default:
			if n := utf8.RuneCountInString(line); n > l.lineLength {
				found = append(found, finding{g.name, number, "lll", fmt.Sprintf("%d characters", n)})
			}
		}
	}
	return found
}

// longFunctions counts as funlen does: the lines between a function's first and last, without comments.
func (g goFile) longFunctions(l limits) []finding {
	line := func(pos token.Pos) int { return g.fset.Position(pos).Line }
	var found []finding
	for _, decl := range g.parsed.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		lines := line(fn.End()) - line(fn.Pos()) - 1
		for _, group := range g.parsed.Comments {
			if line(group.Pos()) > line(fn.Pos()) && line(group.End()) < line(fn.End()) {
				lines -= len(group.List)
			}
		}
		if lines > l.functionLines {
			found = append(found, g.found(fn.Name.Pos(), "funlen", "%s has %d lines", fn.Name.Name, lines))
		}
	}
	return found
}

func (g goFile) complexFunctions(l limits) []finding {
	var found []finding
	for _, s := range gocyclo.AnalyzeASTFile(g.parsed, g.fset, nil) {
		if s.Complexity > l.complexity {
			text := fmt.Sprintf("%s has complexity %d", s.FuncName, s.Complexity)
			found = append(found, finding{g.name, s.Pos.Line, "gocyclo", text})
		}
	}
	return found
}

// sleeps returns the calls of time.Sleep in a test, and reports whether there are more within synctest.Test. Time is
// simulated there.
func (g goFile) sleeps() (found []finding, inBubble bool) {
	if !strings.HasSuffix(g.name, "_test.go") {
		return nil, false
	}
	var bubbleEnd token.Pos
	ast.Inspect(g.parsed, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch isCallOf := callee(call); {
		case isCallOf == "synctest.Test":
			bubbleEnd = max(bubbleEnd, call.End())
		case isCallOf == "time.Sleep" && call.Pos() < bubbleEnd:
			inBubble = true
		case isCallOf == "time.Sleep":
			found = append(found, g.found(call.Pos(), "sleep", "time.Sleep in a test"))
		}
		return true
	})
	return found, inBubble
}

// callee returns the package and the name of a called function, e.g. time.Sleep.
func callee(call *ast.CallExpr) string {
	if selector, ok := call.Fun.(*ast.SelectorExpr); ok {
		if pkg, ok := selector.X.(*ast.Ident); ok {
			return pkg.Name + "." + selector.Sel.Name
		}
	}
	return ""
}
