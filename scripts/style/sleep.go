package main

import (
	"go/ast"
	"go/token"
)

// sleeps returns the calls of time.Sleep in a file, except those within synctest.Test. Time is simulated there.
func sleeps(file *ast.File) (calls []token.Pos) {
	var bubbleEnd token.Pos
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch callee(call) {
		case "synctest.Test":
			bubbleEnd = max(bubbleEnd, call.End())
		case "time.Sleep":
			if call.Pos() >= bubbleEnd {
				calls = append(calls, call.Pos())
			}
		}
		return true
	})
	return calls
}

func callee(call *ast.CallExpr) string {
	if selector, ok := call.Fun.(*ast.SelectorExpr); ok {
		if pkg, ok := selector.X.(*ast.Ident); ok {
			return pkg.Name + "." + selector.Sel.Name
		}
	}
	return ""
}
