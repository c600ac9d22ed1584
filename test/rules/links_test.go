package rules

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

type markdownPage struct {
	anchors map[string]bool
	links   []string
}

// TestRelativeLinksResolve: a reader who follows a link between pages must arrive at the page and its section.
func TestRelativeLinksResolve(t *testing.T) {
	files := sourceFiles(t)
	pages := map[string]markdownPage{}
	for name, content := range files {
		if strings.HasSuffix(name, ".md") {
			pages[name] = parseMarkdown([]byte(content))
		}
	}
	if len(pages) < 30 {
		t.Fatalf("the repository has only %d pages", len(pages))
	}
	for name, p := range pages {
		for _, link := range p.links {
			if err := checkLink(files, pages, name, link); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestNamedPagesExist: users must find the pages that help texts, error messages and comments name.
func TestNamedPagesExist(t *testing.T) {
	named := regexp.MustCompile("(?m)(?:^|[\\s\"'`(\\[<:,;])/?(docs/[\\w/-]+\\.(?:md|dot|svg))")
	found := 0
	files := sourceFiles(t)
	for name, content := range files {
		if strings.HasPrefix(name, "scripts/style/") && strings.HasSuffix(name, "_test.go") {
			continue // its tests create pages of their own
		}
		for _, match := range named.FindAllStringSubmatch(content, -1) {
			found++
			if _, ok := files[match[1]]; !ok {
				t.Errorf("%s names %s, which does not exist", name, match[1])
			}
		}
	}
	if found < 30 {
		t.Errorf("found only %d names of pages", found)
	}
}

func TestEveryPageIsInTheIndex(t *testing.T) {
	files := sourceFiles(t)
	listed := map[string]bool{}
	for _, index := range []string{"docs/README.md", "docs/decisions/README.md"} {
		for _, link := range parseMarkdown([]byte(files[index])).links {
			listed[path.Join(path.Dir(index), link)] = true
		}
	}
	for name := range files {
		isPage := strings.HasPrefix(name, "docs/") && strings.HasSuffix(name, ".md") && name != "docs/README.md"
		if isPage && !listed[name] {
			t.Errorf("no index lists %s", name)
		}
	}
}

// checkLink reports why a link of the page from does not resolve. Absolute URLs always do.
func checkLink(files map[string]string, pages map[string]markdownPage, from, link string) error {
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "" {
		return err
	}
	target := from
	if u.Path != "" {
		target = path.Join(path.Dir(from), u.Path)
	}
	if isPicture(target) {
		_, err := os.Stat(path.Join("../..", target))
		return err
	}
	if _, ok := files[target]; !ok {
		return fmt.Errorf("the link %s leads to no file", link)
	}
	if u.Fragment != "" && !pages[target].anchors[u.Fragment] {
		return fmt.Errorf("the link %s leads to no heading of %s", link, target)
	}
	return nil
}

// isPicture reports whether a file is a picture of the documentation.
func isPicture(name string) bool { return path.Dir(name) == "docs/images" && path.Ext(name) == ".png" }

// sourceFiles maps the path of each text file of the repository, from its root, to its content.
func sourceFiles(t *testing.T) map[string]string {
	t.Helper()
	root := os.DirFS("../..")
	extensions := regexp.MustCompile(`\.(md|go|ya?ml|dot|svg|service|sh)$|(^|/)[A-Za-z-]+$`)
	files := map[string]string{}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && name != ".github" && (strings.HasPrefix(d.Name(), ".") ||
			d.Name() == "node_modules" || name == "dist"):
			return fs.SkipDir
		case !d.Type().IsRegular() || !extensions.MatchString(name):
			return nil
		}
		content, err := fs.ReadFile(root, name)
		files[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func parseMarkdown(source []byte) markdownPage {
	page := markdownPage{anchors: map[string]bool{}}
	parser := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser()
	_ = ast.Walk(parser.Parse(text.NewReader(source)), func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			page.addAnchor(headingText(n, source))
		case *ast.Link:
			page.links = append(page.links, string(n.Destination))
		case *ast.Image:
			page.links = append(page.links, string(n.Destination))
		}
		return ast.WalkContinue, nil
	})
	return page
}

// addAnchor adds the anchor that GitHub makes of a heading. A repeated anchor gets a number.
func (p markdownPage) addAnchor(heading string) {
	slug := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
	anchor := slug
	for i := 1; p.anchors[anchor]; i++ {
		anchor = fmt.Sprintf("%s-%d", slug, i)
	}
	p.anchors[anchor] = true
}

func headingText(heading *ast.Heading, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(heading, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if segment, ok := n.(*ast.Text); ok && entering {
			b.Write(segment.Segment.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}
