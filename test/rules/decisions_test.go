package rules

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDecisionsNameWhatExists: a reader of a record must find the code and the tests that it names.
func TestDecisionsNameWhatExists(t *testing.T) {
	tests := regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w+`)
	paths := regexp.MustCompile("[` /](" + strings.Join(topFolders(), "|") + `)/[\w./-]+`)
	symbols := regexp.MustCompile("`([a-z]+)\\.([A-Z]\\w*)(?:\\.([A-Z]\\w*))?`")
	files := sourceFiles(t)
	declared := testsIn(files)
	packages := packageTexts(t, files)
	found := 0
	for name, text := range files {
		if !strings.HasPrefix(name, "docs/decisions/0") {
			continue
		}
		for _, test := range tests.FindAllString(text, -1) {
			if found++; !declared[test] {
				t.Errorf("%s names %s, which does not exist", name, test)
			}
		}
		for _, match := range paths.FindAllString(text, -1) {
			found++
			file := strings.TrimRight(match[1:], "./")
			if _, err := os.Stat(filepath.Join("../..", file)); err != nil {
				t.Errorf("%s names %s, which does not exist", name, file)
			}
		}
		for _, match := range symbols.FindAllStringSubmatch(text, -1) {
			source, isOwn := packages[match[1]]
			if found++; isOwn && !declares(source, match[2], match[3]) {
				t.Errorf("%s names %s, which does not exist", name, match[0])
			}
		}
	}
	if found < 150 {
		t.Errorf("found only %d names", found)
	}
}

func topFolders() []string {
	var names []string
	for name := range folderImports {
		names = append(names, name)
	}
	return names
}

func testsIn(files map[string]string) map[string]bool {
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	names := map[string]bool{}
	for file, text := range files {
		if strings.HasSuffix(file, "_test.go") {
			for _, match := range declaration.FindAllStringSubmatch(text, -1) {
				names[match[1]] = true
			}
		}
	}
	return names
}

// packageTexts maps the names of packages to their source text. Packages of one name are one text.
func packageTexts(t *testing.T, files map[string]string) map[string]string {
	t.Helper()
	names := map[string]string{} // by folder
	for _, p := range list(t, "./...") {
		names[strings.TrimPrefix(p.ImportPath, module)] = p.Name
	}
	texts := map[string]string{}
	for file, text := range files {
		if name := names[path.Dir(file)]; name != "" && strings.HasSuffix(file, ".go") {
			texts[name] += text
		}
	}
	return texts
}

// declares reports whether a package declares a name and, unless it is "", the method or field of that type.
func declares(source, name, member string) bool {
	if member == "" {
		return regexp.MustCompile(fmt.Sprintf(`(?m)^(?:(?:func|type|var|const) |\t)%s\b`, name)).MatchString(source)
	}
	body := regexp.MustCompile(fmt.Sprintf(`(?s)\ntype %s (?:struct|interface) \{.*?\n\}`, name)).FindString(source)
	return regexp.MustCompile(fmt.Sprintf(`(?m)^\t(?:\w+, )*%s\b`, member)).MatchString(body) ||
		regexp.MustCompile(fmt.Sprintf(`(?m)^func \(\w* ?\*?%s\) %s\(`, name, member)).MatchString(source)
}
