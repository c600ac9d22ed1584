package rules

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFilesOfTheFleetHaveNoCycles: a reader begins at the top file of a package. Files that call each other have no
// top.
func TestFilesOfTheFleetHaveNoCycles(t *testing.T) {
	found := 0
	for _, p := range list(t, "./shared/fleet/...") {
		calls := fileCalls(t, filepath.Join("../..", strings.TrimPrefix(p.ImportPath, module)))
		found += len(calls)
		for from := range calls {
			if cycle := pathTo(calls, from, from); cycle != nil {
				t.Errorf("%s: %s; move what the lower file calls into it, or below it", p.ImportPath,
					strings.Join(append([]string{from}, cycle...), " calls "))
				break // the other files of the cycle would repeat it
			}
		}
	}
	if found < 30 {
		t.Errorf("found only %d files that call others", found)
	}
}

// fileCalls maps each file of a folder to the other files whose functions and methods it uses.
func fileCalls(t *testing.T, folder string) map[string][]string {
	t.Helper()
	fset := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: noImports{}, Error: func(error) {}} // other packages' names stay unknown
	_, _ = conf.Check(folder, fset, files, &info)
	calls := map[string][]string{}
	for ident, object := range info.Uses {
		if _, ok := object.(*types.Func); !ok || !object.Pos().IsValid() {
			continue
		}
		from := filepath.Base(fset.Position(ident.Pos()).Filename)
		to := filepath.Base(fset.Position(object.Pos()).Filename)
		if from != to && !slices.Contains(calls[from], to) {
			calls[from] = append(calls[from], to)
		}
	}
	return calls
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("no imports") }

// pathTo returns the files on a path of calls from one file to another, or nil.
func pathTo(calls map[string][]string, from, to string) []string {
	before := map[string]string{}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		for _, next := range calls[queue[0]] {
			if _, seen := before[next]; seen {
				continue
			}
			before[next] = queue[0]
			if next == to {
				files := []string{to}
				for at := before[to]; at != from; at = before[at] {
					files = slices.Insert(files, 0, at)
				}
				return files
			}
			queue = append(queue, next)
		}
	}
	return nil
}
