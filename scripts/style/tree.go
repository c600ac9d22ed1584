package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/clusterpass/clusterpass/scripts/style/prose"
)

type finding struct {
	file string // relative to the root, with slashes
	line int
	rule string
	text string
}

type tree struct{ findings []finding }

// readTree reads all files that belong to the project: no testdata, no build results, no hidden directory but .github.
func readTree(root string) (*tree, error) {
	t := &tree{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			hidden := strings.HasPrefix(name, ".") && name != ".github" && file != root
			if hidden || slices.Contains([]string{"testdata", "dist", "node_modules"}, name) {
				return filepath.SkipDir
			}
			return nil
		}
		info, err := entry.Info()
		if err != nil || !info.Mode().IsRegular() || !mayHaveProse(name, info.Size()) {
			return err
		}
		source, err := os.ReadFile(file) //nolint:gosec // a file of this project
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		return t.add(filepath.ToSlash(relative), source)
	})
	return t, err
}

// markers maps file extensions to what begins a comment.
var markers = map[string]string{
	".ts": "//", ".tsx": "//", ".mjs": "//", ".py": "#", ".yaml": "#", ".yml": "#", ".service": "#",
}

const maxScript = 64 << 10 // bytes; a larger file without an extension is a program

func mayHaveProse(name string, size int64) bool {
	extension := path.Ext(name)
	return extension == ".go" || extension == ".md" || markers[extension] != "" || extension == "" && size <= maxScript
}

// add adds the findings of a file, if it is in a language that is known.
func (t *tree) add(name string, source []byte) error {
	switch extension := path.Ext(name); extension {
	case ".go":
		return t.addGo(name, source)
	case ".md":
		t.addMarkdown(name, source)
	case "":
		if path.Base(name) == "Makefile" || bytes.HasPrefix(source, []byte("#!")) {
			t.addProse(name, prose.LineComments(source, "#"))
		}
	default:
		t.addProse(name, prose.LineComments(source, markers[extension]))
	}
	return nil
}

func (t *tree) addGo(name string, source []byte) error {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if ast.IsGenerated(file) {
		return nil
	}
	if strings.HasSuffix(name, "_test.go") {
		for _, pos := range sleeps(file) {
			const text = "time.Sleep in a test: wait for the condition that it needs, or use testing/synctest"
			t.findings = append(t.findings, finding{name, fset.Position(pos).Line, "sleep", text})
		}
	}
	t.addProse(name, prose.Comments(fset, file))
	return nil
}

func (t *tree) addMarkdown(name string, source []byte) {
	for _, line := range longLines(source) {
		const text = "prose in Markdown has at most 100 columns"
		t.findings = append(t.findings, finding{name, line, "long-line", text})
	}
	t.addProse(name, prose.Markdown(source))
}

func (t *tree) addProse(file string, blocks []prose.Block) {
	for _, block := range blocks {
		for _, f := range prose.Check(block) {
			t.findings = append(t.findings, finding{file, f.Line, f.Rule, f.Text})
		}
	}
}

func (t *tree) print(paths []string, out io.Writer) (n int, err error) {
	for _, f := range t.findings {
		isBelow := func(p string) bool {
			p = path.Clean(filepath.ToSlash(p))
			return p == "." || f.file == p || strings.HasPrefix(f.file, p+"/")
		}
		if len(paths) > 0 && !slices.ContainsFunc(paths, isBelow) {
			continue
		}
		n++
		if _, err := fmt.Fprintf(out, "%s:%d: %s: %s\n", f.file, f.line, f.rule, f.text); err != nil {
			return n, err
		}
	}
	return n, nil
}
