package rules

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFilesOfTheFleetHaveNoCycles: a reader begins at the top file of a package. Files that call each other have no
// top. A file may use the types of any other file.
func TestFilesOfTheFleetHaveNoCycles(t *testing.T) {
	found := 0
	for _, p := range checkFleet(t) {
		calls := p.fileCalls()
		found += len(calls)
		for from := range calls {
			if cycle := pathTo(calls, from, from); cycle != nil {
				t.Errorf("%s: %s; move what the lower file calls into it, or below it", p.types.Path(),
					strings.Join(append([]string{from}, cycle...), " calls "))
				break // the other files of the cycle would repeat it
			}
		}
	}
	if found < 30 {
		t.Errorf("found only %d files that call others", found)
	}
}

// TestTypesOfTheFleetHaveFewMethods: a type with more methods does the work of several. Those of embedded types of the
// fleet count, too.
func TestTypesOfTheFleetHaveFewMethods(t *testing.T) {
	const most = 25
	found := 0
	for _, p := range checkFleet(t) {
		for _, name := range p.types.Scope().Names() {
			declared, ok := p.types.Scope().Lookup(name).(*types.TypeName)
			if !ok || declared.IsAlias() {
				continue
			}
			n := 0
			for method := range types.NewMethodSet(types.NewPointer(declared.Type())).Methods() {
				if from := method.Obj().Pkg(); from != nil && strings.HasPrefix(from.Path(), module+"shared/fleet") {
					n++
				}
			}
			if found += n; n > most {
				t.Errorf("%s.%s has %d methods, want %d at most", p.types.Path(), name, n, most)
			}
		}
	}
	if found < 300 {
		t.Errorf("found only %d methods", found)
	}
}

// checkedPackage is a package with the types of its expressions, without its tests.
type checkedPackage struct {
	types *types.Package
	uses  map[*ast.Ident]types.Object
	fset  *token.FileSet
}

// checkFleet checks the types of the packages in shared/fleet.
func checkFleet(t *testing.T) []checkedPackage {
	t.Helper()
	exports := map[string]string{}
	for _, p := range list(t, "-export", "-deps", "./shared/fleet/...") {
		exports[p.ImportPath] = p.Export
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var checked []checkedPackage
	for _, p := range list(t, "./shared/fleet/...") {
		names, err := filepath.Glob(filepath.Join("../..", strings.TrimPrefix(p.ImportPath, module), "*.go"))
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
		conf := types.Config{Importer: imports}
		one, err := conf.Check(p.ImportPath, fset, files, &info)
		if err != nil {
			t.Fatal(err)
		}
		checked = append(checked, checkedPackage{one, info.Uses, fset})
	}
	return checked
}

// fileCalls maps each file to the other files whose functions and methods it uses.
func (p checkedPackage) fileCalls() map[string][]string {
	calls := map[string][]string{}
	for ident, object := range p.uses {
		if _, ok := object.(*types.Func); !ok || object.Pkg() != p.types {
			continue
		}
		from := filepath.Base(p.fset.Position(ident.Pos()).Filename)
		to := filepath.Base(p.fset.Position(object.Pos()).Filename)
		if from != to && !slices.Contains(calls[from], to) {
			calls[from] = append(calls[from], to)
		}
	}
	return calls
}

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
