package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestVariablesAreDocumented: a search for a variable of an error message or of --help must find it in the
// documentation.
func TestVariablesAreDocumented(t *testing.T) {
	const root = "../.."
	documented := map[string]bool{}
	for file, text := range sourceFiles(t) {
		if !strings.HasPrefix(file, "docs/") {
			continue
		}
		for _, name := range regexp.MustCompile(`CLUSTERPASS_[A-Z0-9_]+`).FindAllString(text, -1) {
			documented[name] = true
		}
	}
	variables := map[string]string{}
	for _, folder := range []string{"shared", "functions", "websocket-bridge", "infra", "scripts"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				err = addVariables(variables, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(variables) < 40 {
		t.Fatalf("found only the variables %v", variables)
	}
	for name, file := range variables {
		if !documented[name] {
			t.Errorf("the pages of docs do not mention %s of %s", name, file)
		}
	}
}

func addVariables(to map[string]string, file string) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok || field.Tag == nil {
			return true
		}
		tag, err := strconv.Unquote(field.Tag.Value)
		if name := reflect.StructTag(tag).Get("envconfig"); err == nil && name != "" {
			to[name] = file
		}
		return true
	})
	return nil
}
