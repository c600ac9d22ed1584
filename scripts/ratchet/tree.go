package main

import (
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

	"github.com/clusterpass/clusterpass/scripts/ratchet/prose"
)

// finding is one place that breaks a rule.
type finding struct {
	file string // relative to the root, with slashes
	line int
	rule string
	text string
}

func (f finding) place() place {
	if slices.Contains(prose.Rules(), f.rule) {
		return place{path.Dir(f.file), f.rule}
	}
	return place{f.file, f.rule}
}

// tree has the findings of all Go and Markdown files.
type tree struct {
	findings []finding
	sleepers []string // tests that call time.Sleep, also within bubbles
}

// readTree reads all files that belong to the project: no testdata, no build results, no hidden directory but .github.
func readTree(root string, limits limits) (*tree, error) {
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
		isGo := strings.HasSuffix(name, ".go")
		if !isGo && !strings.HasSuffix(name, ".md") {
			return nil
		}
		source, err := os.ReadFile(file) //nolint:gosec // a file of this project
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		if isGo {
			return t.addGo(filepath.ToSlash(relative), source, limits)
		}
		t.addProse(filepath.ToSlash(relative), prose.Markdown(source))
		return nil
	})
	return t, err
}

func (t *tree) addGo(file string, source []byte, limits limits) error {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if ast.IsGenerated(parsed) {
		return nil
	}
	code := goFile{file, source, fset, parsed}
	sleeps, sleepsInBubble := code.sleeps()
	t.findings = slices.Concat(t.findings,
		code.longLines(limits), code.longFunctions(limits), code.complexFunctions(limits), sleeps)
	if len(sleeps) > 0 || sleepsInBubble {
		t.sleepers = append(t.sleepers, file)
	}
	t.addProse(file, prose.Comments(fset, parsed))
	return nil
}

func (t *tree) addProse(file string, blocks []prose.Block) {
	for _, block := range blocks {
		for _, f := range prose.Check(block) {
			t.findings = append(t.findings, finding{file, f.Line, f.Rule, f.Text})
		}
	}
}

func (t *tree) counts() counts {
	all := counts{}
	for _, f := range t.findings {
		all[f.place()]++
	}
	return all
}

// list prints the findings in the files and below the directories that paths name; all if there are none.
func (t *tree) list(paths []string, out io.Writer) error {
	for _, f := range t.findings {
		isBelow := func(p string) bool {
			p = path.Clean(filepath.ToSlash(p))
			return p == "." || f.file == p || strings.HasPrefix(f.file, p+"/")
		}
		if len(paths) == 0 || slices.ContainsFunc(paths, isBelow) {
			if _, err := fmt.Fprintf(out, "%s:%d: %s: %s\n", f.file, f.line, f.rule, f.text); err != nil {
				return err
			}
		}
	}
	return nil
}
