package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/backup"
)

// TestBackupKnowsEveryKindOfObject: objects of a kind that no list of package backup has would be lost by a move.
func TestBackupKnowsEveryKindOfObject(t *testing.T) {
	value := regexp.MustCompile(`^[a-z]+/([a-z]+)?$`)
	name := regexp.MustCompile(`([pP]refix|[kK]ey)$`)
	found := 0
	for file, source := range sourceFiles(t) {
		if !strings.HasPrefix(file, "shared/") || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != len(spec.Names) {
				return true
			}
			for i, v := range spec.Values {
				literal, ok := v.(*ast.BasicLit)
				if !ok || !name.MatchString(spec.Names[i].Name) {
					continue
				}
				text, err := strconv.Unquote(literal.Value)
				if err != nil || !value.MatchString(text) {
					continue
				}
				found++
				resource := text[:strings.Index(text, "/")+1]
				if _, left := backup.Left[resource]; !left && !slices.Contains(backup.Prefixes, resource) {
					t.Errorf("%s: objects below %s are in neither Prefixes nor Left of package backup", file, resource)
				}
			}
			return true
		})
	}
	if want := len(backup.Prefixes); found < want {
		t.Errorf("found %d prefixes in the sources, want at least %d", found, want)
	}
}
